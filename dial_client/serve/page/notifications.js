// Desktop notifications, which the user switches on with a button: browsers ask for the permission only on a click.

import { showToast } from "./dialogs.js";
import { byId, setLabel } from "./dom.js";
import { translate } from "./language.js";

const KEY = "dial-notifications";
const button = byId("notifications");

/** True if the user wants notifications, and the browser allows them. */
const isOn = () => localStorage.getItem(KEY) === "on" && globalThis.Notification?.permission === "granted";

/** Show the button; browsers have notifications only for pages of this machine and of https: addresses. */
export function initNotifications() {
  button.hidden = !globalThis.Notification || !globalThis.isSecureContext;
  button.addEventListener("click", toggle);
  update();
}

/** Show a notification, if they are on. `id`: a notification replaces an earlier one with the same id. */
export function notify(text, id, onclick) {
  if (!isOn()) return;
  try {
    const notification = new Notification("dial-chat", { body: text, tag: id });
    notification.onclick = () => {
      focus();
      onclick();
      notification.close();
    };
  } catch (error) {
    console.warn(error.message); // Android has notifications of service workers only
  }
}

async function toggle() {
  const isWished = !isOn();
  if (isWished && (await Notification.requestPermission()) !== "granted") showToast(translate("notify.refused"));
  else localStorage.setItem(KEY, isWished ? "on" : "off");
  update();
}

function update() {
  button.setAttribute("aria-pressed", String(isOn()));
  setLabel(button, translate("notify.button"));
}
