// Dark and light: as the system has it, until the person says otherwise.

import { byId } from "./dom.js";

const KEY = "dial-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Show the theme that was chosen, and let the button change it. */
export function theme() {
  show();
  dark.addEventListener("change", show);
  byId("theme").addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    if ((wanted === "dark") === dark.matches) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, wanted);
    show();
  });
}

const isDark = () => (localStorage.getItem(KEY) ?? (dark.matches ? "dark" : "light")) === "dark";

function show() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  const label = isDark() ? "Light colours" : "Dark colours";
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}
