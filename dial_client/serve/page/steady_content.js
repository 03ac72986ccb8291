// Content that is rendered again while the user works with it: clicks in progress and the focus are kept.

/** Return a function that shows new content of an element; it takes a function that returns the new children. */
export function createSteadyContent(element) {
  let isPressed = false;
  let renderNext = null;
  const show = () => {
    if (!renderNext || isPressed) return;
    const render = renderNext;
    renderNext = null;
    const focused = element.contains(document.activeElement) ? describe(document.activeElement) : null;
    element.replaceChildren(...render());
    if (focused) [...element.querySelectorAll(focused.tag)].find((each) => describe(each).key === focused.key)?.focus();
  };
  element.addEventListener("pointerdown", () => { isPressed = true; });
  const release = () => {
    if (!isPressed) return;
    isPressed = false;
    setTimeout(show); // the click comes first
  };
  addEventListener("pointerup", release, true);
  addEventListener("pointercancel", release, true);
  return (render) => {
    renderNext = render;
    show();
  };
}

/** Describe a control by what stays the same when it is rendered again. */
function describe(control) {
  const place = control.closest("[data-key]")?.dataset.key ?? control.closest("article")?.querySelector("h3")?.textContent;
  const own = control.dataset.key ? "" : control.getAttribute("aria-label") ?? control.getAttribute("href");
  return { tag: control.tagName, key: JSON.stringify([place, own]) };
}
