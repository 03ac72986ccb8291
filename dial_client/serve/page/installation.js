// The installed page: its service worker shows an offline page while the server cannot be reached. A page in a browser tab
// registers none: the browser would keep a service worker for each port of this machine.

const WORKER = "assets/service_worker.js";
const isInstalled = matchMedia("(display-mode: standalone)").matches
  || new URLSearchParams(location.search).has("installed");

/** Created at once, so that no other script can create a policy of this name. */
const policy = globalThis.trustedTypes?.createPolicy("dial-service-worker", {
  createScriptURL(url) {
    if (url !== WORKER) throw new TypeError("not the service worker of the page");
    return url;
  },
});

/** Register the service worker if the page runs as an installed app. */
export function initInstallation() {
  if (!isInstalled || !navigator.serviceWorker) return;
  const url = policy ? policy.createScriptURL(WORKER) : WORKER;
  navigator.serviceWorker.register(url, { scope: "./" }).catch((error) => console.warn(error.message));
}
