// Requests that need the user's answer: approvals of tool calls, and elicitations of servers. One is shown at a time,
// above the message field. None takes the focus: a key pressed for the message field must not approve anything.

import { ApprovalCard } from "./approval_card.js";
import { createButton, el, createIcon } from "./dom.js";
import { parseSafeUrl } from "./markdown_inline.js";
import { addScrollHint } from "./scroll_hint.js";
import { renderForm } from "./elicitation_form.js";
import { createLink } from "./markdown_view.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate, translateNodes } from "./language.js";

/** Return the card for a request; `answer(body)` sends the user's answer, `check(args)` has changed arguments checked. */
export function renderRequest(request, { answer, check }) {
  const isApproval = request.kind === "approval";
  const children = isApproval ? new ApprovalCard(request, { answer, check }).children : renderElicitation(request, answer);
  const attributes = { role: "group", "aria-labelledby": "request-title", "data-request": request.id };
  const [body, ...below] = children;
  return el("section.request", attributes, addScrollHint(body), ...below);
}

const renderHeading = (icon, ...texts) => el("h2", { id: "request-title" }, createIcon(icon), ...texts);

function renderElicitation(request, answer) {
  const tools = (request.names?.tools ?? []).slice(0, 3).join(", ");
  const heading = tools ? "elicitation.heading_tools" : "elicitation.heading";
  const name = request.names?.server ?? escapeInvisible(request.server);
  return [el("div.request-body", {},
    renderHeading("question", ...translateNodes(heading, { server: el("strong", {}, name), tools })),
    el("p.request-message", {}, escapeInvisible(request.message ?? "")),
    ...(request.warnings ?? []).map((text) => el("p.request-warning", {}, escapeInvisible(text))),
    request.url ? renderUrl(request, answer) : renderForm(request, answer),
  )];
}

/** A URL is shown in full and opened only when the user clicks it. */
function renderUrl(request, answer) {
  const url = parseSafeUrl(request.url);
  const decline = createButton(translate("decline"), () => answer({ action: "decline" }));
  if (!url || url.protocol === "mailto:") {
    const text = el("p.request-warning", {}, translate("elicitation.no_address"));
    return el("div", {}, text, el("div.request-buttons", {}, decline));
  }
  const link = createLink(url, translate("open"));
  link.className = "button primary";
  link.addEventListener("click", () => answer({ action: "accept" }));
  return el("div.request-form", {},
    el("p", {}, translate("elicitation.address")),
    el("p.request-url", {}, escapeInvisible(url.href)),
    el("p", {}, ...translateNodes("host", { host: el("strong", {}, url.host) })),
    el("div.request-buttons", {}, link, decline));
}
