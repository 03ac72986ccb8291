// A call of a tool that waits for approval: the real names, the server's claims, the arguments, and the decisions.
// Only shown arguments run: changed arguments are shown again, as the server has read them, before they can be allowed.

import { formatArguments } from "./argument_block.js";
import { ArgumentEditor } from "./argument_editor.js";
import { createButton, el, createIcon, setText } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate, translateNodes } from "./language.js";
import { describeError, describeAnnotations, describeInvisible } from "./descriptions.js";

export class ApprovalCard {
  #request;
  #send;
  #check;
  #server;
  #tool;
  #arguments = el("div.request-arguments", {});
  #decisions = el("div.request-decisions", {});
  /** The arguments as the user changed them, with the server's details of them; null if they are unchanged. */
  #changed = null;

  /** `answer(body)` sends the decision. `check(args)` resolves to the details of changed arguments. */
  constructor(request, { answer, check }) {
    this.#request = request;
    this.#check = check;
    this.#server = request.names?.server ?? escapeInvisible(request.server);
    this.#tool = request.names?.tool ?? escapeInvisible(request.tool);
    this.#send = (body) => {
      const isChanged = this.#changed && body.decision !== "deny";
      answer(isChanged ? { ...body, arguments: this.#changed.args } : body);
    };
    this.#show();
  }

  /** The details scroll; the question and its buttons stay visible below them. */
  get children() {
    const request = this.#request;
    const why = request.why_asked
      ? renderWarning(translate("approval.why", { reason: escapeInvisible(request.why_asked) })) : null;
    const heading = translateNodes("approval.heading", this.#createNames());
    return [
      el("div.request-body", {},
        el("h2", { id: "request-title" }, createIcon("shield"), ...heading),
        request.isOfApp ? renderWarning(translate("approval.app")) : null,
        renderChange(request.change), renderClaims(request, this.#server), why, this.#arguments),
      this.#decisions,
    ];
  }

  #show() {
    const { call, removed_invisible: removed } = this.#request;
    const args = this.#changed?.args ?? call.arguments ?? {};
    const { invisible_in_arguments: hidden, file_changes: changes } = this.#changed ?? this.#request;
    this.#arguments.replaceChildren(
      ...describeInvisible({ removed_invisible: removed, invisible_in_arguments: hidden }).map(renderWarning),
      ...(this.#changed ? [el("p.request-note", {}, translate("approval.changed"))] : []),
      ...renderArguments(args, changes ?? []));
    this.#showDecisions();
  }

  #showDecisions() {
    const reason = el("input", {
      type: "text", id: "request-reason", maxlength: "500", placeholder: translate("approval.reason"),
      "aria-label": translate("approval.reason_label"), "data-shortcut": "n", "aria-keyshortcuts": "n",
    });
    const deny = (event) => {
      event.preventDefault();
      this.#send({ decision: "deny", reason: reason.value.trim() });
    };
    const allow = (text, decision) => createButton(text, () => this.#send({ decision }));
    const once = createShortcutButton(translate("approval.once"), "y", () => this.#send({ decision: "once" }), ".primary");
    const denial = el("button.button", {}, translate("approval.deny"), createKey("n"));
    const question = this.#changed ? "approval.question_changed" : "approval.question";
    this.#decisions.replaceChildren(
      el("p.request-question", {}, ...translateNodes(question, this.#createNames())),
      el("div.request-buttons", {}, once,
        this.#request.why_asked ? null : allow(translate("approval.conversation"), "conversation"),
        this.#request.why_asked ? null : allow(translate("approval.always"), "always"),
        this.#request.schema ? createShortcutButton(translate("edit"), "e", () => this.#edit()) : null),
      el("form.request-denial", { onsubmit: deny }, reason, denial));
  }

  /** Replace the arguments with a form. The call cannot be allowed until the form is closed. */
  #edit() {
    const editor = new ArgumentEditor(this.#request.schema, this.#changed?.args ?? this.#request.call.arguments);
    const problem = el("p.failure", { role: "alert" });
    const use = el("button.button.primary", {}, translate("approval.review"));
    const cancel = () => this.#close();
    const onkeydown = (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      event.preventDefault();
      cancel();
    };
    let isChecking = false; // a disabled button would lose the focus, and Escape with it
    const onsubmit = async (event) => {
      event.preventDefault();
      if (isChecking) return;
      isChecking = true;
      problem.textContent = escapeInvisible(await this.#apply(editor));
      isChecking = false;
    };
    const id = "request-editor";
    this.#arguments.replaceChildren(el("form.request-form", { id, onsubmit, onkeydown }, editor.element));
    use.setAttribute("form", id);
    this.#decisions.replaceChildren(problem,
      el("div.request-buttons", { onkeydown }, use, createButton(translate("cancel"), cancel)));
    editor.focus();
  }

  /** Use the arguments of the form if the server accepts them; return the problem otherwise. */
  async #apply(editor) {
    const { args, problem } = editor.read();
    if (problem) return problem;
    try {
      const checked = await this.#check(args);
      if (checked.problems.length) return translate("approval.unfit", { problems: checked.problems.join("; ") });
      const isChanged = JSON.stringify(args) !== JSON.stringify(this.#request.call.arguments ?? {});
      this.#changed = isChanged ? { ...checked, args } : null;
    } catch (error) {
      return describeError(error);
    }
    this.#close();
    return "";
  }

  #createNames() {
    return { server: el("strong", {}, this.#server), tool: el("strong", {}, this.#tool) };
  }

  #close() {
    this.#show();
    // The focus must not land on a button that allows the call.
    this.#arguments.querySelector("pre")?.focus();
  }
}

const renderWarning = (text) => el("p.request-warning", {}, text);
const createKey = (key) => el("kbd", { "aria-hidden": "true" }, key);

function createShortcutButton(text, key, onclick, classes) {
  const button = createButton(text, onclick, classes);
  button.dataset.shortcut = key;
  button.setAttribute("aria-keyshortcuts", key);
  button.append(createKey(key));
  return button;
}

/** The server's own description of its tool, marked as such. A long description is folded. */
function renderClaims(request, server) {
  const claims = request.claims ?? { title: request.title, description: request.description, annotations: {} };
  const title = escapeInvisible(claims.title ?? "").replace(/\s+/g, " ").trim();
  const text = escapeInvisible(claims.description ?? "").trim();
  const annotations = describeAnnotations(claims.annotations);
  if (!text && !annotations && (!title || title === request.tool)) return null;
  return el("div.request-claims", {},
    title && title !== request.tool ? el("p", {}, translate("approval.title", { title })) : null,
    text ? renderDescription(text, server) : null,
    annotations ? el("p", {}, translate("approval.claims", { server, claims: annotations })) : null);
}

function renderDescription(text, server) {
  if (text.length <= 160) return el("p.request-description", {}, translate("server.says", { server, text }));
  const summary = el("summary", {}, translate("approval.description", { server }));
  return el("details.request-description", {}, summary, el("p", {}, text));
}

function renderChange(change) {
  if (!change) return null;
  const text = el("p", {}, translate("approval.definition"));
  return el("div.request-warning", {}, text, el("pre", {}, escapeInvisible(change)));
}

/** The arguments without a diff, then the diffs of file changes, then all arguments, folded. */
function renderArguments(args, changes) {
  if (!Object.keys(args).length) return [el("p.quiet", {}, translate("approval.no_arguments"))];
  if (!changes.length) return [renderBlock(args, translate("call.arguments"))];
  const covered = new Set(changes.flatMap(({ argument, lines, replaces }) => lines.length ? [argument, ...replaces] : []));
  const withoutDiff = Object.fromEntries(Object.entries(args).filter(([name]) => !covered.has(name)));
  const label = translate("approval.all_arguments");
  const all = el("details.request-description", {}, el("summary", {}, label), renderBlock(args, label));
  const unchanged = Object.keys(withoutDiff).length ? [renderBlock(withoutDiff, translate("call.arguments"))] : [];
  return [...unchanged, ...changes.map(renderDiff), all];
}

function renderBlock(args, label) {
  const pre = el("pre", { tabindex: "0", "aria-label": label });
  const block = el("div", {}, pre);
  setText(pre, formatArguments(args), block);
  return block;
}

const LINE_KINDS = { "+": "added", "-": "removed", "@": "gap" };

function renderDiff({ argument, title, lines, unchanged }) {
  const name = escapeInvisible(argument);
  const rows = lines.map((line) => el(`span.${LINE_KINDS[line[0]] ?? "kept"}`, {}, `${escapeInvisible(line)}\n`));
  const rest = unchanged ? el("p.quiet", {}, translate("approval.unchanged", { count: unchanged })) : null;
  const label = translate("approval.changes", { name });
  const diff = rows.length ? el("pre", { tabindex: "0", "aria-label": label }, ...rows) : null;
  return el("div.request-diff", {}, el("p", {}, el("strong", {}, name), ` ${title}`), diff, rest);
}
