"""The files in deploy/: proxies are run with them, the rest is compared with schemas and with what the program has.

There is no container engine here: nobody has built the image, or started compose.yaml and kubernetes.yaml, in a test.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import anyio
import httpx2
import jsonschema_rs
import msgspec
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.server import MCPServer

from tests.inner import REQUEST_ID, AccessPolicy, Options, Proxies, ServeOptions, open_socket, parse_proxy
from tests.support.http_service import TOKEN, Gate, read_events, serve
from tests.support.program import LONG

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAME = "chat.example.com"
FORGED = "forged-by-the-client"
SNI = {"sni_hostname": NAME}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of `NAME` that nobody has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "fullchain.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(*encoding))
    return files


def write_nginx(folder: Path, port: int, upstream: str) -> list[str]:
    """Write the configuration of nginx around the documented block, on another port, and return the command."""
    certificate, key = write_certificate(folder)
    block = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for before, after in {
        "  server 127.0.0.1:8001;\n  server 127.0.0.1:8002;": f"  server {upstream};",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/dial/fullchain.pem": str(certificate),
        "/etc/ssl/dial/key.pem": str(key),
    }.items():
        assert before in block
        block = block.replace(before, after)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{block}}}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def write_caddy(folder: Path, port: int, upstream: str) -> list[str]:
    """Write the documented Caddyfile for a port of loopback, with a certificate of its own, and return the command."""
    certificate, key = write_certificate(folder)
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    head = "{$DIAL_HOST:chat.example.com} {\n"
    assert head in text
    here = f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}\n"
    options = f"{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {folder}\n}}\n"
    text = text.replace(head, here).replace("127.0.0.1:8001 127.0.0.1:8002", upstream)
    (folder / "Caddyfile").write_text(options + text)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


WriteProxy = Callable[[Path, int, str], list[str]]
PROXIES = [
    pytest.param(
        write, id=name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")
    )
    for name, write in (("nginx", write_nginx), ("caddy", write_caddy))
]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "proxy.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin"}
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


async def wait_for(http: httpx2.AsyncClient, url: str) -> None:
    """Wait until the proxy passes requests on."""
    with anyio.fail_after(60):
        while True:
            with suppress(httpx2.TransportError):
                if (await http.get(url, extensions=SNI)).status_code == 200:
                    return
            await anyio.sleep(0.05)


@pytest.mark.parametrize("write_proxy", PROXIES)
async def test_the_page_and_streams_work_behind_the_proxy_on_any_port_and_below_a_path(
    tmp_path: Path, write_proxy: WriteProxy
) -> None:
    gate = Gate()
    clock = MCPServer("clock")

    @clock.tool()
    async def now() -> str:
        """Tells the time."""
        await gate.passed()
        return "noon"

    call = {"tool_calls": [{"name": "now", "arguments": {}}]}
    policy = AccessPolicy(TOKEN, hosts=frozenset({"127.0.0.1", NAME}))
    proxies = Proxies((parse_proxy("127.0.0.1"),), frozenset({REQUEST_ID}))
    with closing(open_socket("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with serve(
        [call, "Noon.", call, "Noon."], {"clock": clock}, allow=["*"], policy=policy, proxies=proxies
    ) as service:
        command = write_proxy(tmp_path, port, service.url.removeprefix("http://"))
        # Nobody looks the name up: the connection goes to loopback, with the name in TLS and in `Host`.
        headers = {"host": f"{NAME}:{port}", "authorization": f"Bearer {TOKEN}", "origin": f"https://{NAME}:{port}"}
        with started(command, tmp_path):
            async with httpx2.AsyncClient(headers=headers, verify=False, trust_env=False, timeout=LONG) as http:
                await wait_for(http, f"https://127.0.0.1:{port}/readyz")
                for base in (f"https://127.0.0.1:{port}", f"https://127.0.0.1:{port}/chat"):
                    page = await http.get(f"{base}/", extensions=SNI)
                    script = await http.get(f"{base}/assets/bundle.js", headers={REQUEST_ID: FORGED}, extensions=SNI)
                    created = await http.post(f"{base}/conversations", json={}, extensions=SNI)
                    where = f"{base}/conversations/{created.json()['id']}/chat"
                    names = []
                    async with http.stream("POST", where, json={"text": "What time is it?"}, extensions=SNI) as answer:
                        async for event in read_events(answer):
                            names.append(event.name)
                            if event.name == "tool_call":
                                gate.open.set()  # a proxy that buffers would never pass the event on
                    gate.open = anyio.Event()
                    assert (page.status_code, script.status_code, created.status_code) == (200, 200, 201)
                    assert page.headers["content-type"].startswith("text/html")
                    assert script.headers[REQUEST_ID] != FORGED
                    assert re.fullmatch(r"[0-9a-f-]{32,36}", script.headers[REQUEST_ID])
                    assert names[-2:] == ["done", ""]


def test_the_documented_unit_and_proxy_block_are_the_files_in_deploy() -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    for language, name in (("ini", "dial-chat.service"), ("nginx", "nginx.conf")):
        assert f"```{language}\n{(DEPLOY / name).read_text(encoding='utf-8')}```" in page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "dial-chat.service").read_text(encoding="utf-8")
    unit = tmp_path / "dial-chat.service"
    unit.write_text(text.replace("/srv/dial/.venv/bin/dial-chat", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def find_compose_errors(text: str, folder: Path) -> str:
    """Return what the JSON Schema of the Compose Specification has against a file."""
    file = folder / "compose.yaml"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr


def find_kubernetes_errors(text: str) -> str:
    """Return what the types of the API of Kubernetes have against manifests; of fields that are not theirs, too."""
    errors: list[jsonschema_rs.ValidationError] = []
    for manifest in yaml.safe_load_all(text):
        group, _, version = manifest["apiVersion"].rpartition("/")
        module = import_module(f"lightkube.models.{group.partition('.')[0] or 'core'}_{version}")
        schema = msgspec.json.schema(getattr(module, manifest["kind"]))
        for definition in schema["$defs"].values():
            if "properties" in definition:
                definition["additionalProperties"] = False
        errors += jsonschema_rs.validator_for(schema).iter_errors(manifest)
    return "\n".join(map(str, errors))


COMPOSE_MISTAKES = [("stop_grace_period", "stop_grace_perod"), ("cap_drop: [ALL]", "cap_drop: ALL")]
KUBERNETES_MISTAKES = [
    ("terminationGracePeriodSeconds", "terminationGracePeriodSecond"),
    ("readOnlyRootFilesystem", "readonlyRootFilesystem"),
    ("replicas: 2", "replicas: two"),
    ("pathType: Prefix, ", ""),
    ("minAvailable", "minimumAvailable"),
]


def test_the_schema_of_compose_accepts_the_file_in_deploy(tmp_path: Path) -> None:
    assert find_compose_errors((DEPLOY / "compose.yaml").read_text(encoding="utf-8"), tmp_path) == ""


@pytest.mark.parametrize(("right", "wrong"), COMPOSE_MISTAKES)
def test_the_schema_of_compose_finds_a_mistake(tmp_path: Path, right: str, wrong: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert right in text
    assert "dial-1" in find_compose_errors(text.replace(right, wrong), tmp_path)


def test_the_types_of_kubernetes_accept_the_manifests_in_deploy() -> None:
    assert find_kubernetes_errors((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")) == ""


@pytest.mark.parametrize(("right", "wrong"), KUBERNETES_MISTAKES)
def test_the_types_of_kubernetes_find_a_mistake(right: str, wrong: str) -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
    assert right in text
    assert find_kubernetes_errors(text.replace(right, wrong))


def test_every_option_in_the_files_is_one_of_serve_and_every_process_is_the_same() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    deployment, service, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    used = set(re.findall(r"--[a-z-]+", " ".join([*compose["services"]["dial-1"]["command"], *container["args"]])))
    options = {f"--{field.name.replace('_', '-')}" for kind in (Options, ServeOptions) for field in fields(kind)}
    assert used <= options
    assert compose["services"]["dial-1"] == compose["services"]["dial-2"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    user = deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in image
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for file in ("servers.json", "Caddyfile"):
        assert any(
            f"./{file}:" in volume for part in compose["services"].values() for volume in part.get("volumes", [])
        )
