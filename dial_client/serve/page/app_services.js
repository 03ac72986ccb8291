// The services of the page for MCP Apps, and the apps that are open. The module app_frame.js is loaded with the first app.

import { describeError } from "./descriptions.js";
import { el } from "./dom.js";
import { translate } from "./language.js";

let services = null;
/** The open frames, in the order in which they were opened. */
const openFrames = new Set();

/**
 * Set the services of the page for apps: {api, conversationId(), addRequest(conversationId, request),
 * removeRequest(conversationId, requestId), sendMessage(text, server), setContext(app, context)}.
 */
export function connectApps(pageServices) {
  services = pageServices;
}

/** Create the frame of an app in an element. Resolves to the frame, or to null if its module cannot be loaded. */
export async function createAppFrame(app, element) {
  try {
    const { AppFrame } = await import("./app_frame.js");
    const frame = new AppFrame(app, services, openFrames);
    element.append(frame.element);
    return frame;
  } catch (error) {
    element.append(el("p.failure", {}, translate("app.failed", { error: describeError(error) })));
    return null;
  }
}

/** Close the apps of conversations that are not shown; they open again with their conversation. */
export function closeDetachedApps() {
  for (const frame of [...openFrames]) if (!frame.element.isConnected) frame.suspend();
}
