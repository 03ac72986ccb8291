// The HostContext for MCP Apps: the page's colours, fonts, size and language.

import { LANGUAGE } from "./language.js";

const root = document.documentElement;

/** The extension's names of colours, and the page's custom properties for them. */
const COLORS = {
  "background-primary": "paper", "background-secondary": "raised", "background-tertiary": "sunk",
  "background-inverse": "text", "background-info": "tint", "background-danger": "bad-tint",
  "background-success": "tint", "background-warning": "warn-tint", "background-disabled": "sunk",
  "text-primary": "text", "text-secondary": "quiet", "text-tertiary": "quiet", "text-inverse": "paper",
  "text-info": "accent", "text-danger": "bad", "text-success": "good", "text-warning": "warn",
  "text-disabled": "quiet", "text-ghost": "quiet",
  "border-primary": "line", "border-secondary": "line", "border-tertiary": "line", "border-inverse": "edge",
  "border-info": "accent", "border-danger": "bad", "border-success": "good", "border-warning": "warn",
  "border-disabled": "line",
  "ring-primary": "accent", "ring-secondary": "edge", "ring-inverse": "paper", "ring-info": "accent",
  "ring-danger": "bad", "ring-success": "good", "ring-warning": "warn",
};
const FIXED = {
  "--color-background-ghost": "transparent", "--color-border-ghost": "transparent",
  "--font-weight-normal": "400", "--font-weight-medium": "500",
  "--font-weight-semibold": "600", "--font-weight-bold": "700",
  "--font-text-xs-size": "0.75rem", "--font-text-sm-size": "0.875rem",
  "--font-text-md-size": "1rem", "--font-text-lg-size": "1.125rem",
  "--font-text-xs-line-height": "1.4", "--font-text-sm-line-height": "1.5",
  "--font-text-md-line-height": "1.6", "--font-text-lg-line-height": "1.6",
  "--font-heading-xs-size": "0.875rem", "--font-heading-sm-size": "1rem",
  "--font-heading-md-size": "1.1rem", "--font-heading-lg-size": "1.25rem",
  "--font-heading-xl-size": "1.5rem", "--font-heading-2xl-size": "1.75rem", "--font-heading-3xl-size": "2rem",
  "--border-radius-xs": "0.25rem", "--border-radius-sm": "0.4rem", "--border-radius-md": "0.65rem",
  "--border-radius-lg": "0.9rem", "--border-radius-xl": "1.1rem", "--border-radius-full": "9999px",
  "--border-width-regular": "1px",
};

/** Return the maximum height of an app, in pixels. */
export const maxHeight = () => Math.max(320, Math.round(innerHeight * 0.75));

/** Return the part of the context that may change: colours and size. `width` is the width of the frame. */
export function describeAppearance(width) {
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const colors = Object.entries(COLORS).map(([name, own]) => [`--color-${name}`, read(own)]);
  const variables = {
    ...Object.fromEntries(colors),
    ...FIXED,
    "--font-sans": read("font"),
    "--font-mono": read("mono"),
    "--shadow-hairline": `0 0 0 1px ${read("line")}`,
    "--shadow-sm": read("shadow"),
    "--shadow-md": read("shadow"),
    "--shadow-lg": read("shadow"),
  };
  return {
    theme: root.dataset.theme === "dark" ? "dark" : "light",
    styles: { variables },
    containerDimensions: { width: Math.round(width), maxHeight: maxHeight() },
  };
}

/** Return the whole context. `tool`: the definition of the tool whose call the app shows, or null. */
export function describeHost(width, tool) {
  return {
    ...describeAppearance(width),
    ...(tool ? { toolInfo: { tool } } : {}),
    displayMode: "inline",
    availableDisplayModes: ["inline"],
    locale: LANGUAGE === navigator.language.split("-")[0] ? navigator.language : LANGUAGE,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    userAgent: "dial-chat",
    platform: "web",
    deviceCapabilities: {
      touch: matchMedia("(any-pointer: coarse)").matches, hover: matchMedia("(any-hover: hover)").matches,
    },
    safeAreaInsets: { top: 0, right: 0, bottom: 0, left: 0 },
  };
}

/** Call `onchange` when the colours or the window change; return the function that stops this. */
export function watchAppearance(onchange) {
  const observer = new MutationObserver(onchange);
  observer.observe(root, { attributeFilter: ["data-theme"] });
  addEventListener("resize", onchange);
  return () => {
    observer.disconnect();
    removeEventListener("resize", onchange);
  };
}
