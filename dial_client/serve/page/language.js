// The language of the page, and its texts, which are in strings.js, and in strings_LANGUAGE.js for other languages.

import { ENGLISH } from "./strings.js";

const KEY = "dial-language";

/** The languages that have texts, with their native names. */
export const LANGUAGES = {
  ar: "العربية", de: "Deutsch", en: "English", es: "Español", fr: "Français", ja: "日本語",
};
const RIGHT_TO_LEFT = ["ar"];

/** The language that the user has chosen; null to follow the browser. */
export function readChosenLanguage() {
  try {
    const chosen = localStorage.getItem(KEY);
    return Object.hasOwn(LANGUAGES, chosen) ? chosen : null;
  } catch {
    return null;
  }
}

/** Choose a language for the next load of the page; null to follow the browser. */
export function saveLanguage(language) {
  if (language) localStorage.setItem(KEY, language);
  else localStorage.removeItem(KEY);
}

/** The chosen language, or the first language of the browser that has texts. */
export const LANGUAGE = readChosenLanguage() ?? (globalThis.navigator?.languages ?? [])
  .map((tag) => tag.split("-")[0])
  .find((language) => Object.hasOwn(LANGUAGES, language)) ?? "en";

export const DIRECTION = RIGHT_TO_LEFT.includes(LANGUAGE) ? "rtl" : "ltr";

/** Texts that cannot be loaded are shown in English. */
const OWN = LANGUAGE === "en" ? ENGLISH : await import(`./strings_${LANGUAGE}.js`).then(({ TEXTS }) => TEXTS, () => ({}));
const PLURALS = new Intl.PluralRules(LANGUAGE);

export const formatNumber = (number, options) => number.toLocaleString(LANGUAGE, options);

/** Return a text in the user's language; `values` replace {name}. For a number `count` there may be a "KEY.one". */
export function translate(key, values = {}) {
  return findText(key, values).replace(/\{(\w+)\}/g, (_, name) => formatValue(values[name]));
}

/** Return the nodes of a text; values may be elements. */
export function translateNodes(key, values) {
  const parts = findText(key, values).split(/\{(\w+)\}/);
  // Every second part is the name of a value.
  return parts.map((part, at) => (at % 2 ? values[part] : part)).filter((part) => part !== "");
}

function findText(key, { count }) {
  const form = typeof count === "number" ? `${key}.${PLURALS.select(count)}` : key;
  return OWN[form] ?? OWN[key] ?? (count === 1 ? ENGLISH[`${key}.one`] : undefined) ?? ENGLISH[key];
}

const formatValue = (value) => (typeof value === "number" ? formatNumber(value) : String(value));
