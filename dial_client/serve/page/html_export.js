// A conversation as one HTML file without script: the elements of the page, and its styles.

import { el, saveFile } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { loadLibrary } from "./math_view.js";
import { isQuestion, toTurns } from "./stored_turns.js";
import { TurnView } from "./turn_view.js";
import { parseUserMessage } from "./user_message.js";
import { translate, LANGUAGE, DIRECTION } from "./language.js";

/** Nothing is loaded, and nothing runs. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
const CONTROLS = "button, iframe, form, input:not([type=checkbox]), .app, .table-buttons, .copy-button, [hidden]";
const FEET = ".user-foot, .turn-foot";
const STYLES = ["style.css", "turn.css", "adaptations.css"];

/** Save a stored conversation as an HTML file. */
export async function saveAsHtml(api, id) {
  const stored = await api.fetchJson("GET", `conversations/${encodeURIComponent(id)}`);
  const text = await toHtml(stored);
  saveFile(new Blob([text], { type: "text/html;charset=utf-8" }), stored.title, "html");
}

async function toHtml(stored) {
  const title = escapeInvisible(stored.title || translate("conversation"));
  const turns = renderTurns(stored, { isKept: true });
  const main = el("main.transcript", {}, el("h1", { dir: "auto" }, title), ...turns);
  if (main.querySelector(".math")) await loadLibrary();
  const styles = await Promise.all(STYLES.map((name) => fetch(`assets/${name}`).then((response) => response.text())));
  // Apps are added when app_frame.js has been loaded: there must be no `await` after this line.
  removeControls(main);
  return `<!doctype html>\n<html lang="${LANGUAGE}" dir="${DIRECTION}">\n<head>\n<meta charset="utf-8">\n`
    + `<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n`
    + '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    + `${serialize(el("title", {}, title))}\n<style>\n${styles.join("\n").replaceAll("</", "<\\/")}</style>\n</head>\n`
    + `<body class="document">\n${serialize(main)}\n</body>\n</html>\n`;
}

const removeControls = (root) => root.querySelectorAll(CONTROLS).forEach((control) => control.remove());

/** Return the turns of a stored conversation for reading only; with `isKept` their controls are removed later. */
export function renderTurns(stored, { isKept = false } = {}) {
  const turns = toTurns(stored).map(renderTurn);
  if (!isKept) turns.forEach((turn) => turn.querySelectorAll(FEET).forEach((foot) => foot.remove()));
  return turns;
}

function renderTurn(stored, number) {
  const turn = new TurnView(isQuestion(stored.messages[0]) ? parseUserMessage(stored.messages[0]) : null, number, {});
  turn.addStored(stored, () => "");
  turn.finish();
  turn.setStored({ ...stored, question: null, answer: null, questionVersions: null, answerVersions: null });
  return turn.element;
}

const serialize = (element) => new XMLSerializer().serializeToString(element);
