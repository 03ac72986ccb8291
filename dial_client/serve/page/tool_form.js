// A dialog in which the user calls one tool: its schema, a form for its arguments, the approval, and the result.
//
// Approvals and the audit log apply to it as to a call of the model. It is part of no conversation, and no model reads it.

import { readEvents } from "./api.js";
import { renderRequest } from "./approvals.js";
import { ArgumentEditor } from "./argument_editor.js";
import { createButton, el, toJson } from "./dom.js";
import { parseJson } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { renderResult } from "./tool_card.js";
import { translate, translateNodes } from "./language.js";
import { describeError } from "./descriptions.js";

/** Open the dialog for a tool by the name under which it is offered. */
export async function openToolForm(api, name) {
  const tool = await api.fetchJson("GET", `tools/${encodeURIComponent(name)}`);
  new ToolForm(api, tool).open();
}

class ToolForm {
  #api;
  #tool;
  #editor;
  #requests = el("div", {});
  #result = el("div.tool-form-result", { "aria-live": "polite" });
  #button = el("button.button.primary", {}, translate("tool.call"));
  #abort = null;

  constructor(api, tool) {
    this.#api = api;
    this.#tool = tool;
    this.#editor = new ArgumentEditor(tool.schema);
  }

  open() {
    const { names, claims, schema } = this.#tool;
    const onsubmit = (event) => {
      event.preventDefault();
      if (!this.#abort) this.#call();
    };
    const onclose = () => {
      this.#abort?.abort();
      dialog.remove();
    };
    const text = escapeInvisible((claims.description ?? "").trim());
    const schemaBlock = el("pre", { tabindex: "0", "aria-label": translate("tool.schema_label") }, toJson(schema));
    const title = { tool: el("strong", {}, names.tool), server: el("strong", {}, names.server) };
    const dialog = el("dialog.small.tool-form", { "aria-labelledby": "tool-form-title", onclose },
      el("h2", { id: "tool-form-title" }, ...translateNodes("tool.title", title)),
      text ? el("p.request-message.quiet", {}, translate("server.says", { server: names.server, text })) : null,
      el("details.more", {}, el("summary", {}, translate("tool.schema")), schemaBlock),
      el("form.request-form", { onsubmit }, this.#editor.element,
        el("div.dialog-buttons", {}, createButton(translate("close"), () => dialog.close()), this.#button)),
      this.#requests, this.#result);
    document.body.append(dialog);
    dialog.showModal();
    this.#editor.focus();
  }

  async #call() {
    const { args, problem } = this.#editor.read();
    if (problem) return this.#showFailure(problem);
    this.#abort = new AbortController();
    this.#button.textContent = translate("tool.calling");
    this.#result.replaceChildren();
    try {
      await this.#run(args);
    } catch (error) {
      if (!this.#abort.signal.aborted) this.#showFailure(describeError(error));
    }
    this.#abort = null;
    this.#button.textContent = translate("tool.call");
    this.#requests.replaceChildren();
  }

  async #run(args) {
    const body = { name: this.#tool.name, arguments: args };
    const response = await this.#api.fetch("POST", "tools/call", { body, signal: this.#abort.signal });
    for await (const { name, data } of readEvents(response)) {
      const event = parseJson(data);
      if (name === "approval" || name === "question") this.#showRequest({ ...event, kind: name });
      else if (name === "approval_done" || name === "question_done") this.#requests.replaceChildren();
      else if (name === "error") return this.#showFailure(event.message);
      else if (name === "result") return this.#showResult(event);
    }
    return this.#showFailure(translate("error.lost"));
  }

  #showRequest(request) {
    const path = `${request.kind}s/${encodeURIComponent(request.id)}`;
    const answer = (body) => this.#api.fetchJson("POST", path, body).catch((error) => {
      this.#showFailure(describeError(error));
    });
    const check = (args) => this.#api.fetchJson("POST", `${path}/check`, { arguments: args });
    this.#requests.replaceChildren(renderRequest(request, { answer, check }));
    this.#requests.scrollIntoView({ block: "end" }); // the buttons are at the end
  }

  #showResult({ success, content, error }) {
    const text = content?.length ? content : error ?? translate("tool.no_output");
    this.#result.replaceChildren(...renderResult(text, success));
    this.#result.scrollIntoView({ block: "nearest" });
  }

  #showFailure(text) {
    this.#result.replaceChildren(el("p.failure", { role: "alert" }, escapeInvisible(text)));
  }
}
