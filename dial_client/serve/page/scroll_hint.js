// Shows that an area has more content below what is in sight: a fade, with a button that scrolls on. What a person approves
// must not be out of sight unnoticed, and many systems hide scroll bars.

import { el, createIcon } from "./dom.js";
import { translate } from "./language.js";

/** Pixels that count as the end: sizes are rounded when the page is zoomed. */
const END_DISTANCE = 4;

/** Return an element around a scrolling area, with the hint. */
export function addScrollHint(area) {
  const onclick = () => area.scrollBy({ top: area.clientHeight * 0.8, behavior: "smooth" });
  const button = el("button.more-below", { type: "button", onclick }, createIcon("down"), translate("page.more_below"));
  const frame = el("div.scroll-frame", {}, area);
  const update = () => {
    const isEnd = area.scrollHeight - area.scrollTop - area.clientHeight <= END_DISTANCE;
    if (isEnd === !button.isConnected) return;
    // A focused button that disappears would send the focus to the top of the page.
    if (isEnd && button === document.activeElement) (area.querySelector("[tabindex]") ?? area).focus();
    if (isEnd) button.remove();
    else frame.append(button);
  };
  area.addEventListener("scroll", update, { passive: true });
  const resizes = new ResizeObserver(update);
  for (const element of [area, ...area.children]) resizes.observe(element);
  return frame;
}
