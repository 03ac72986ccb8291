// Requests that need the user's answer: approvals of tool calls, and elicitations of servers. One is shown at a time,
// above the message field. None takes the focus: a key pressed for the message field must not approve anything.

import { formatArguments } from "./argument_block.js";
import { createButton, el, createIcon, setText } from "./dom.js";
import { parseSafeUrl } from "./markdown_inline.js";
import { renderForm } from "./elicitation_form.js";
import { createLink } from "./markdown_view.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeAnnotations, describeInvisible } from "./strings.js";

/** Return the card for a request; `answer(body)` sends the user's answer. */
export function renderRequest(request, answer) {
  const children = request.kind === "approval" ? renderApproval(request, answer) : renderElicitation(request, answer);
  const attributes = { role: "group", "aria-labelledby": "request-title", "data-request": request.id };
  return el("section.request", attributes, ...children);
}

/** The details scroll; the question and its buttons stay visible below them. */
function renderApproval(request, answer) {
  const tool = request.names?.tool ?? escapeInvisible(request.tool);
  const server = request.names?.server ?? escapeInvisible(request.server);
  const question = ["Allow ", el("strong", {}, server), " to run ", el("strong", {}, tool), "?"];
  return [
    el("div.request-body", {},
      renderHeading("shield", el("strong", {}, server), " wants to run ", el("strong", {}, tool)),
      request.isOfApp ? el("p.request-warning", {}, "The app asks for this call, not the model.") : null,
      renderChange(request.change),
      renderClaims(request, server),
      request.why_asked ? el("p.request-warning", {}, "Why you are asked: ", escapeInvisible(request.why_asked)) : null,
      ...describeInvisible(request).map((text) => el("p.request-warning", {}, text)),
      renderArguments(request.call)),
    renderDecisions(answer, el("p.request-question", {}, ...question)),
  ];
}

const renderHeading = (icon, ...texts) => el("h2", { id: "request-title" }, createIcon(icon), ...texts);

/** The server's own description of its tool, marked as such. A long description is folded. */
function renderClaims(request, server) {
  const claims = request.claims ?? { title: request.title, description: request.description, annotations: {} };
  const title = escapeInvisible(claims.title ?? "").replace(/\s+/g, " ").trim();
  const text = escapeInvisible(claims.description ?? "").trim();
  const annotations = describeAnnotations(claims.annotations);
  if (!text && !annotations && (!title || title === request.tool)) return null;
  return el("div.request-claims", {},
    title && title !== request.tool ? el("p", {}, "Its own title: “", title, "”") : null,
    text ? renderDescription(text, server) : null,
    annotations ? el("p", {}, `${server} says ${annotations}.`) : null);
}

function renderDescription(text, server) {
  if (text.length <= 160) return el("p.request-description", {}, `${server} says: `, text);
  return el("details.request-description", {}, el("summary", {}, `Description from ${server}`), el("p", {}, text));
}

function renderChange(change) {
  if (!change) return null;
  const text = el("p", {}, "The tool's definition has changed since you allowed it:");
  return el("div.request-warning", {}, text, el("pre", {}, escapeInvisible(change)));
}

function renderArguments(call) {
  if (!Object.keys(call.arguments ?? {}).length) return el("p.quiet", {}, "No arguments.");
  const pre = el("pre", { tabindex: "0", "aria-label": "Arguments" });
  const block = el("div", {}, pre);
  setText(pre, formatArguments(call.arguments), block);
  return block;
}

function renderDecisions(answer, question) {
  const reason = el("input", {
    type: "text",
    id: "request-reason",
    maxlength: "500",
    placeholder: "Reason (optional)",
    "aria-label": "Reason for the model",
  });
  const deny = (event) => {
    event.preventDefault();
    answer({ decision: "deny", reason: reason.value.trim() });
  };
  return el("div.request-decisions", {}, question,
    el("div.request-buttons", {},
      createButton("Allow once", () => answer({ decision: "once" }), ".primary"),
      createButton("This session", () => answer({ decision: "session" })),
      createButton("Always", () => answer({ decision: "always" }))),
    el("form.request-denial", { onsubmit: deny }, reason, el("button.button", {}, "Deny")));
}

function renderElicitation(request, answer) {
  const tools = (request.names?.tools ?? []).slice(0, 3).join(", ");
  return [el("div.request-body", {},
    renderHeading("question", el("strong", {}, request.names?.server ?? escapeInvisible(request.server)),
      tools ? ` asks for input while it runs ${tools}:` : " asks for input:"),
    el("p.request-message", {}, escapeInvisible(request.message ?? "")),
    ...(request.warnings ?? []).map((text) => el("p.request-warning", {}, escapeInvisible(text))),
    request.url ? renderUrl(request, answer) : renderForm(request, answer),
  )];
}

/** A URL is shown in full and opened only when the user clicks it. */
function renderUrl(request, answer) {
  const url = parseSafeUrl(request.url);
  const decline = createButton("Decline", () => answer({ action: "decline" }));
  if (!url || url.protocol === "mailto:") {
    const text = el("p.request-warning", {}, "The server asks you to open an address that is not a web address.");
    return el("div", {}, text, el("div.request-buttons", {}, decline));
  }
  const link = createLink(url, "Open");
  link.className = "button primary";
  link.addEventListener("click", () => answer({ action: "accept" }));
  return el("div.request-form", {},
    el("p", {}, "The server asks you to open this address:"),
    el("p.request-url", {}, escapeInvisible(url.href)),
    el("p", {}, "Host: ", el("strong", {}, url.host)),
    el("div.request-buttons", {}, link, decline));
}
