// What a turn asks of the person: permission for a call, or answers to a server's question. One at a time, above the
// field for messages. Nothing here takes the focus: a key that was meant for the field must not grant anything.

import { argumentBlock } from "./arguments.js";
import { button, el, icon, setText } from "./dom.js";
import { safeAddress } from "./inline.js";
import { formOf } from "./form.js";
import { anchor } from "./render.js";
import { visible } from "./unseen.js";
import { hintsIn, notesOn } from "./words.js";

/** Make the card for an ask; `answer(body)` sends what the person decides. */
export function askCard(ask, answer) {
  const inside = ask.kind === "approval" ? approval(ask, answer) : question(ask, answer);
  return el("section.ask", { role: "group", "aria-labelledby": "ask-title", "data-ask": ask.id }, ...inside);
}

/** What scrolls, and below it what is asked: the question is never scrolled away. */
function approval(ask, answer) {
  const [tool, server] = [ask.names?.tool ?? visible(ask.tool), ask.names?.server ?? visible(ask.server)];
  return [
    el("div.ask-body", {},
      heading("shield", el("strong", {}, server), " wants to run ", el("strong", {}, tool)),
      changeOf(ask.change),
      claimsOf(ask, server),
      ask.why_asked ? el("p.ask-warning", {}, "Why you are asked: ", visible(ask.why_asked)) : null,
      ...notesOn(ask).map((text) => el("p.ask-warning", {}, text)),
      argumentsOf(ask.call)),
    decisions(answer, el("p.ask-question", {}, "Run ", el("strong", {}, tool), " of ", el("strong", {}, server), "?")),
  ];
}

const heading = (picture, ...words) => el("h2", { id: "ask-title" }, icon(picture), ...words);

/** What the server says of its tool, as its words: at once where it is short, folded where it would push the rest aside. */
function claimsOf(ask, server) {
  const claims = ask.claims ?? { title: ask.title, description: ask.description, annotations: {} };
  const title = visible(claims.title ?? "").replace(/\s+/g, " ").trim();
  const text = visible(claims.description ?? "").trim();
  const hints = hintsIn(claims.annotations);
  if (!text && !hints && (!title || title === ask.tool)) return null;
  return el("div.ask-claims", {},
    title && title !== ask.tool ? el("p", {}, "It calls itself “", title, "”.") : null,
    text ? descriptionOf(text, server) : null,
    hints ? el("p", {}, `${server} says ${hints}.`) : null);
}

function descriptionOf(text, server) {
  if (text.length <= 160) return el("p.ask-about", {}, `${server} says: `, text);
  return el("details.ask-about", {}, el("summary", {}, `What ${server} says it does`), el("p", {}, text));
}

function changeOf(change) {
  if (!change) return null;
  const words = el("p", {}, "It is not described as it was when you allowed it:");
  return el("div.ask-warning", {}, words, el("pre", {}, visible(change)));
}

function argumentsOf(call) {
  if (!Object.keys(call.arguments ?? {}).length) return el("p.quiet", {}, "With no arguments.");
  const pre = el("pre", { tabindex: "0", "aria-label": "Arguments" });
  const whole = el("div", {}, pre);
  setText(pre, argumentBlock(call.arguments), whole);
  return whole;
}

function decisions(answer, question) {
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
  return el("div.ask-decisions", {}, question,
    el("div.ask-buttons", {},
      button("Allow once", () => answer({ decision: "once" }), ".primary"),
      button("This session", () => answer({ decision: "session" })),
      button("Always", () => answer({ decision: "always" }))),
    el("form.ask-denial", { onsubmit: deny }, reason, el("button.button", {}, "Deny")));
}

function question(ask, answer) {
  const tools = (ask.names?.tools ?? []).slice(0, 3).join(", ");
  return [el("div.ask-body", {},
    heading("question", el("strong", {}, ask.names?.server ?? visible(ask.server)),
      tools ? ` asks, while it runs ${tools}:` : " asks:"),
    el("p.ask-message", {}, visible(ask.message ?? "")),
    ...(ask.warnings ?? []).map((text) => el("p.ask-warning", {}, visible(text))),
    ask.url ? addressOf(ask, answer) : formOf(ask, answer),
  )];
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
