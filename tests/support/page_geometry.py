"""The controls of the page as a pointer finds them: inside the window, not covered, not cut off, large enough."""

from __future__ import annotations

from tests.support.browser import Tab

# What lies above the rest of the page on purpose: controls below it cannot be reached until it is closed.
_CONTROLS = """
(async () => {
  const above = ".menu, dialog:modal, .completions:not([hidden]), .with-sidebar .sidebar";
  const layers = [...document.querySelectorAll(above)]
    .filter((each) => !each.matches(".sidebar") || getComputedStyle(each).position === "fixed");
  const layer = layers.findLast((each) => !each.matches(".completions")) ?? document.body;
  const isAbove = (hit) => hit && layers.some((each) => each.contains(hit));
  const controls = "button, a[href], input, select, textarea, summary, [role=option], [role=menuitem]";
  const found = [];
  const describe = (control) => {
    const name = control.getAttribute("aria-label") ?? control.title ?? "";
    const parts = [control.tagName.toLowerCase(), ...control.classList].join(".");
    return `${parts}${control.id && "#" + control.id} “${(name || control.innerText || "").trim().slice(0, 40)}”`;
  };
  const isShown = (control) => control.checkVisibility({ visibilityProperty: true }) && !control.closest("[inert]")
    && !control.closest(".visually-hidden, .skip") && control.getBoundingClientRect().width > 0;
  const isHit = (control, hit) => control.contains(hit)
    || [...(control.labels ?? [])].some((label) => label.contains(hit));
  const findCover = (control) => {
    const [box] = control.getClientRects();
    if (!box) return undefined;  // it has left the page meanwhile
    const top = Math.max(box.top, 0);
    const y = top + (Math.min(box.bottom, innerHeight) - top) / 2;
    const inset = Math.min(4, box.width / 3);
    return [box.left + inset, box.left + box.width / 2, box.right - inset]
      .map((x) => document.elementFromPoint(x, y) ?? document.documentElement)
      .find((hit) => !isHit(control, hit));
  };
  const places = new Map([...document.querySelectorAll("*")].filter((each) => each.scrollTop || each.scrollLeft)
    .map((each) => [each, { top: each.scrollTop, left: each.scrollLeft, behavior: "instant" }]));
  for (const control of document.querySelectorAll(controls)) {
    if (!isShown(control)) continue;
    if (layer !== document.body && !layer.contains(control)) continue;
    const show = () => control.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    show();
    const [box] = control.getClientRects();
    const target = control.matches("input[type=checkbox], input[type=radio]") && control.closest("label") || control;
    const { width, height } = target.getBoundingClientRect();
    const isInline = getComputedStyle(control).display === "inline";
    if (!isInline && !control.disabled && (width < 23.9 || height < 23.9)) {
      found.push(`${describe(control)} is small: ${Math.round(width)} x ${Math.round(height)}`);
    }
    if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(`${describe(control)} leaves the window`);
    const style = getComputedStyle(control);
    if (control.matches("button, a") && style.textOverflow !== "ellipsis" && style.overflowX !== "visible"
        && control.scrollWidth > control.clientWidth + 1) found.push(`${describe(control)} cuts its text off`);
    let hit = findCover(control);
    // Parts of the page are laid out only when they come into view.
    for (let tries = 0; hit && tries < 3; tries++) {
      await new Promise(requestAnimationFrame);
      show();
      hit = findCover(control);
    }
    if (!hit || (layer === document.body && isAbove(hit))) continue;
    found.push(`${describe(control)} is covered by ${describe(hit)}`);
  }
  for (const each of document.querySelectorAll("*")) {
    if (places.has(each) || each.scrollTop || each.scrollLeft) {
      each.scrollTo(places.get(each) ?? { top: 0, left: 0, behavior: "instant" });
    }
  }
  const request = document.querySelector("#requests .request:not([hidden])");
  if (request && layer === document.body) {
    for (const button of request.querySelectorAll(".request-buttons button")) {
      const { top, bottom } = button.getBoundingClientRect();
      if (top < 0 || bottom > innerHeight) found.push(`${describe(button)} of a request leaves the screen`);
    }
  }
  const width = document.documentElement.scrollWidth - innerWidth;
  if (width > 0) found.push(`the page is ${width} px too wide`);
  for (const dialog of document.querySelectorAll("dialog:modal")) {
    if (dialog.scrollWidth > dialog.clientWidth) found.push(`${describe(dialog)} scrolls sideways`);
  }
  return [...new Set(found)];
})()
"""


def find_unreachable(tab: Tab) -> list[str]:
    """Return what a pointer cannot reach in the window as it is."""
    found: list[str] = tab.run(_CONTROLS)
    return found
