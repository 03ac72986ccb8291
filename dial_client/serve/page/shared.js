// The page of a shared conversation: it is read with the key in the fragment of the address, and can only be read.

import { byId, el } from "./dom.js";
import { parseJson } from "./exact_json.js";
import { renderTurns } from "./html_export.js";
import { escapeInvisible } from "./invisible_characters.js";
import { DIRECTION, LANGUAGE, translate } from "./language.js";

document.documentElement.lang = LANGUAGE;
document.documentElement.dir = DIRECTION;

async function show() {
  const key = location.hash.slice(1);
  const response = await fetch("shared/conversation", { headers: { "X-Share-Key": key }, cache: "no-store" })
    .catch(() => null);
  if (!response?.ok) {
    const text = translate(response?.status === 404 ? "shared.gone" : "error.unreachable");
    byId("shared").replaceChildren(el("h1", {}, "dial-chat"), el("p", { role: "alert" }, text));
    return;
  }
  const stored = parseJson(await response.text());
  const title = escapeInvisible(stored.title || translate("conversation"));
  const day = new Date(stored.created).toLocaleDateString(LANGUAGE, { dateStyle: "long" });
  document.title = title;
  byId("shared").replaceChildren(
    el("h1", { dir: "auto" }, title), el("p.quiet", {}, translate("shared.since", { day })), ...renderTurns(stored));
}

addEventListener("hashchange", show);
await show();
