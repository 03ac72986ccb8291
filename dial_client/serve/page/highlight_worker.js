// Splits code into tokens, in a worker: a text for which a grammar takes too long blocks only this worker.
//
// Receives {id, language, text} and responds {id, tokens}: a flat list of [scope, text, …], with "" for plain text.

import highlighter from "./vendor/highlight/core.min.js";

/** Languages in which code of other languages is embedded. */
const EMBEDDED = {
  xml: ["css", "javascript"], markdown: ["xml"], php: ["xml"], dart: ["markdown"], dockerfile: ["bash"], shell: ["bash"],
};

/** Collects tokens instead of markup (implements the interface "__emitter" of Highlight.js). */
class TokenList {
  #scopes = [];
  tokens = [];

  addText(text) {
    if (text) this.tokens.push(this.#scopes.at(-1) ?? "", text);
  }

  openNode(scope) {
    this.#scopes.push(scope.split(".", 1)[0]);
  }

  closeNode() {
    this.#scopes.pop();
  }

  startScope(scope) {
    this.openNode(scope);
  }

  endScope() {
    this.closeNode();
  }

  __addSublanguage(emitter) {
    this.tokens.push(...emitter.tokens);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}

highlighter.configure({ __emitter: TokenList });
const loading = new Map();

function load(language) {
  if (!loading.has(language)) {
    const module = import(`./vendor/highlight/languages/${language}.min.js`);
    const registered = module.then(({ default: grammar }) => highlighter.registerLanguage(language, grammar));
    loading.set(language, Promise.all([registered, ...(EMBEDDED[language] ?? []).map(load)]));
  }
  return loading.get(language);
}

addEventListener("message", async ({ data: { id, language, text } }) => {
  let tokens = null;
  try {
    await load(language);
    postMessage({ id, isStarted: true });
    const { errorRaised, _emitter: emitter } = highlighter.highlight(text, { language, ignoreIllegals: true });
    tokens = errorRaised ? null : emitter.tokens;
  } catch {
    // The text stays without colours.
  }
  postMessage({ id, tokens });
});
