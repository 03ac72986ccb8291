// Dark and light colours: the system's choice unless the user chooses another.

import { byId } from "./dom.js";
import { translate } from "./language.js";

const KEY = "dial-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Apply the chosen theme and connect the button that changes it. */
export function initTheme() {
  applyTheme();
  dark.addEventListener("change", applyTheme);
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    if ((theme === "dark") === dark.matches) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
    applyTheme();
  });
}

const isDark = () => (localStorage.getItem(KEY) ?? (dark.matches ? "dark" : "light")) === "dark";

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  const label = translate(isDark() ? "page.light" : "page.dark");
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}
