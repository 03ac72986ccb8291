// What a turn asks of the person: permission for a call, or answers to a server's question. One at a time, above the
// field for messages. Nothing here takes the focus: a key that was meant for the field must not grant anything.

import { asJson, button, el, icon, setText, visible } from "./dom.js";
import { safeAddress } from "./inline.js";
import { formOf } from "./form.js";
import { anchor } from "./render.js";

/** Make the card for an ask; `answer(body)` sends what the person decides. */
export function askCard(ask, answer) {
  const inside = ask.kind === "approval" ? approval(ask, answer) : question(ask, answer);
  return el("section.ask", { role: "group", "aria-labelledby": "ask-title", "data-ask": ask.id }, ...inside);
}

function approval(ask, answer) {
  const tool = visible(ask.title || ask.tool || ask.call.name);
  return [
    heading("shield", "Allow ", el("strong", {}, tool), " of ", el("strong", {}, visible(ask.server)), "?"),
    descriptionOf(visible(ask.description ?? "").trim()),
    changeOf(ask.change),
    argumentsOf(ask.call),
    ask.read_only ? el("p.quiet", {}, "Its server says that it only reads.") : null,
    decisions(answer),
  ];
}

const heading = (picture, ...words) => el("h2", { id: "ask-title" }, icon(picture), ...words);

/** What a tool says of itself: at once where it is short, folded where it would push the question aside. */
function descriptionOf(text) {
  if (!text) return null;
  if (text.length <= 160) return el("p.ask-about", {}, text);
  return el("details.ask-about", {}, el("summary", {}, "What it says it does"), el("p", {}, text));
}

function changeOf(change) {
  if (!change) return null;
  const words = el("p", {}, "It is not described as it was when you allowed it:");
  return el("div.ask-warning", {}, words, el("pre", {}, visible(change)));
}

function argumentsOf(call) {
  if (!Object.keys(call.arguments ?? {}).length) return el("p.quiet", {}, "It takes no arguments.");
  const pre = el("pre", { tabindex: "0", "aria-label": "Arguments" });
  const whole = el("div", {}, pre);
  setText(pre, asJson(call.arguments), whole);
  return whole;
}

function decisions(answer) {
  const reason = el("input", {
    type: "text",
    id: "ask-reason",
    maxlength: "500",
    placeholder: "Why not (optional)",
    "aria-label": "Reason, told to the model",
  });
  const deny = (event) => {
    event.preventDefault();
    answer({ decision: "deny", reason: reason.value.trim() });
  };
  return el("div.ask-decisions", {},
    el("div.ask-buttons", {},
      button("Allow once", () => answer({ decision: "once" }), ".primary"),
      button("Allow for this session", () => answer({ decision: "session" }))),
    el("form.ask-denial", { onsubmit: deny }, reason, el("button.button", {}, "Deny")));
}

function question(ask, answer) {
  return [
    heading("question", el("strong", {}, visible(ask.server)), " asks:"),
    el("p.ask-message", {}, visible(ask.message ?? "")),
    ...(ask.warnings ?? []).map((text) => el("p.ask-warning", {}, visible(text))),
    ask.url ? addressOf(ask, answer) : formOf(ask, answer),
  ];
}

/** An address is shown whole, and opened by nobody but the person. */
function addressOf(ask, answer) {
  const url = safeAddress(ask.url);
  const decline = button("Decline", () => answer({ action: "decline" }));
  if (!url || url.protocol === "mailto:") {
    const words = el("p.ask-warning", {}, "The address it wants to open is none of the web.");
    return el("div", {}, words, el("div.ask-buttons", {}, decline));
  }
  const link = anchor(url, "Open it");
  link.className = "button primary";
  link.addEventListener("click", () => answer({ action: "accept" }));
  return el("div.ask-form", {},
    el("p", {}, "It wants you to open this address:"),
    el("p.ask-address", {}, visible(url.href)),
    el("p", {}, "It leads to ", el("strong", {}, url.host), "."),
    el("div.ask-buttons", {}, link, decline));
}
