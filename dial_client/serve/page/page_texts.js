// The texts of the elements of index.html, which name the keys of their texts: `data-text` for the content, `data-label`
// for the accessible name, `data-title` for the tooltip, `data-hint` for both, `data-placeholder` for an empty field.

import { byId, el } from "./dom.js";
import { DIRECTION, LANGUAGE, LANGUAGES, readChosenLanguage, saveLanguage, translate } from "./language.js";

/** The keys of the message field, and what they do. */
const KEYS = [
  ["Enter", translate("keys.send")], ["Shift Enter", translate("keys.line")], ["Esc", translate("keys.stop")],
  ["/", translate("keys.commands")], ["@", translate("keys.resources")], ["↑", translate("keys.edit")],
];

/** Show the page in the user's language. */
export function initLanguage() {
  document.documentElement.lang = LANGUAGE;
  document.documentElement.dir = DIRECTION;
  const forEach = (name, apply) => {
    for (const element of document.querySelectorAll(`[data-${name}]`)) apply(element, translate(element.dataset[name]));
  };
  forEach("text", (element, text) => element.append(text));
  forEach("label", (element, text) => element.setAttribute("aria-label", text));
  forEach("placeholder", (element, text) => element.setAttribute("placeholder", text));
  forEach("title", (element, text) => (element.title = text));
  forEach("hint", (element, text) => {
    element.setAttribute("aria-label", text);
    element.title = text;
  });
  byId("keys").replaceChildren(...KEYS.flatMap(([key, text]) => [el("kbd", {}, key), ` ${text} `]));
  connectChoice(byId("language"));
}

/** Choosing a language reloads the page. Nothing is lost: drafts are stored. */
function connectChoice(select) {
  const chosen = readChosenLanguage();
  const options = Object.entries(LANGUAGES).map(([language, name]) => {
    return el("option", { value: language, lang: language, selected: language === chosen }, name);
  });
  select.append(el("option", { value: "" }, translate("page.browser_language")), ...options);
  select.addEventListener("change", () => {
    saveLanguage(select.value || null);
    location.reload();
  });
}
