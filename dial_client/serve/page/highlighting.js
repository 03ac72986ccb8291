// Colours of code. A worker splits the code into tokens; here tokens become elements.

/** Characters of code that is coloured; longer code is plain. */
const MAX_CODE = 60_000;
/** Characters of code that is coloured while it is written. */
const MAX_GROWING = 10_000;
/** Milliseconds in which the worker must process a text. */
const TIME_LIMIT = 1_000;

const WORKER = new URL("highlight_worker.js", import.meta.url).href;

/** Names of languages to the names of their grammars. */
const GRAMMARS = new Map(Object.entries({
  bash: "bash", sh: "bash", zsh: "bash", c: "c", h: "c", cpp: "cpp", "c++": "cpp", cc: "cpp", hpp: "cpp", csharp: "csharp",
  "c#": "csharp", cs: "csharp", css: "css", dart: "dart", diff: "diff", patch: "diff", dockerfile: "dockerfile",
  docker: "dockerfile", elixir: "elixir", ex: "elixir", go: "go", golang: "go", graphql: "graphql", gql: "graphql",
  haskell: "haskell", hs: "haskell", http: "http", ini: "ini", toml: "ini", conf: "ini", java: "java",
  javascript: "javascript", js: "javascript", jsx: "javascript", mjs: "javascript", node: "javascript", json: "json",
  jsonc: "json", json5: "json", jsonl: "json", julia: "julia", jl: "julia", kotlin: "kotlin", kt: "kotlin", latex: "latex",
  tex: "latex", lua: "lua", makefile: "makefile", make: "makefile", markdown: "markdown", md: "markdown", nginx: "nginx",
  objectivec: "objectivec", objc: "objectivec", perl: "perl", pl: "perl", php: "php", pgsql: "pgsql", postgresql: "pgsql",
  powershell: "powershell", ps1: "powershell", protobuf: "protobuf", proto: "protobuf", python: "python", py: "python",
  python3: "python", pycon: "python", r: "r", ruby: "ruby", rb: "ruby", rust: "rust", rs: "rust", scala: "scala",
  scss: "scss", shell: "shell", console: "shell", sql: "sql", sqlite: "sql", mysql: "sql", swift: "swift",
  typescript: "typescript", ts: "typescript", tsx: "typescript", xml: "xml", html: "xml", svg: "xml", vue: "xml",
  yaml: "yaml", yml: "yaml",
}));

/** Scopes of tokens to the classes of turn.css. Tokens of other scopes have the colour of the text. */
const CLASSES = new Map(Object.entries({
  keyword: "keyword", literal: "number", number: "number", symbol: "number", string: "string", regexp: "string",
  char: "string", link: "string", addition: "addition", deletion: "deletion", comment: "comment", quote: "comment",
  doctag: "comment", title: "name", section: "name", name: "name", "selector-tag": "keyword", type: "type",
  built_in: "type", "selector-class": "type", "selector-id": "type", attr: "attribute", attribute: "attribute",
  property: "attribute", variable: "attribute", "template-variable": "attribute", meta: "attribute", tag: "keyword",
}));

// With this Trusted Types policy, the browser accepts no other URL of a worker.
const policy = globalThis.trustedTypes?.createPolicy("dial-worker", {
  createScriptURL(url) {
    if (url !== WORKER) throw new TypeError("not the worker of the page");
    return url;
  },
});

let worker = null;
let nextId = 0;
/** Texts that wait for the worker: {id, language, text, onTokens}. The first one is being processed. */
const queue = [];
let timer;

/** True if code of this language gets colours. */
const isKnownLanguage = (language) => GRAMMARS.has(language.toLowerCase());

const observer = globalThis.IntersectionObserver && new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    color(target, target.dataset.language);
  }
}, { rootMargin: "600px" });

/** Colour a code element once it is near the visible part of the page. */
export function colorWhenVisible(code, language) {
  if (!isKnownLanguage(language)) return;
  code.dataset.language = language;
  observer.observe(code);
}

/** Colour a code element to which text is still added. */
export function colorGrowing(code, language) {
  if (code.textContent.length <= MAX_GROWING) color(code, language);
}

/** Colour a code element. Text that is added meanwhile stays, without colours. */
function color(code, language) {
  const text = code.textContent;
  const grammar = GRAMMARS.get(language.toLowerCase());
  if (!grammar || !text || text.length > MAX_CODE || code.dataset.coloring) return;
  code.dataset.coloring = "queued";
  queue.push({
    id: nextId++,
    language: grammar,
    text,
    onTokens: (tokens) => {
      // Code that takes too long is not tried again.
      if (!tokens) code.dataset.coloring = "failed";
      else delete code.dataset.coloring;
      if (tokens) show(code, text, tokens);
    },
  });
  if (queue.length === 1) startNext();
}

function startNext() {
  if (!queue.length) return;
  worker ??= createWorker();
  const { id, language, text } = queue[0];
  worker.postMessage({ id, language, text });
}

function createWorker() {
  const created = new Worker(policy ? policy.createScriptURL(WORKER) : WORKER, { type: "module" });
  created.addEventListener("message", ({ data }) => {
    if (data.id !== queue[0]?.id) return;
    // Loading a grammar may take long on a slow network: only the work on the text is limited.
    if (data.isStarted) timer = setTimeout(() => finish(null), TIME_LIMIT);
    else finish(data.tokens);
  });
  created.addEventListener("error", () => queue.length && finish(null));
  return created;
}

function finish(tokens) {
  clearTimeout(timer);
  if (!tokens) {
    worker.terminate();
    worker = null;
  }
  queue.shift().onTokens(tokens);
  startNext();
}

function show(code, text, tokens) {
  const now = code.textContent;
  const selection = getSelection();
  // Replacing text would lose the user's selection in it.
  const isSelected = !selection.isCollapsed && selection.containsNode(code, true);
  if (!now.startsWith(text) || isSelected) return;
  const parts = [];
  for (let at = 0; at < tokens.length; at += 2) {
    const name = CLASSES.get(tokens[at]);
    if (!name) {
      parts.push(tokens[at + 1]);
      continue;
    }
    const span = document.createElement("span");
    span.className = `code-${name}`;
    span.textContent = tokens[at + 1];
    parts.push(span);
  }
  const shown = tokens.reduce((sum, part, at) => sum + (at % 2 ? part.length : 0), 0);
  if (shown !== text.length) return;
  code.replaceChildren(...parts, now.slice(text.length));
}
