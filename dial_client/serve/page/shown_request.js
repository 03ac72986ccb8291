// The request above the message field: a call that waits for approval, or the question of a server.

import { renderRequest } from "./approvals.js";
import { showToast } from "./dialogs.js";
import { describeError } from "./descriptions.js";
import { byId } from "./dom.js";
import { translate } from "./language.js";

/**
 * Show the first request of a transcript. A request that is already shown is left alone: the user may be typing into it.
 * `focus()` moves the focus on from a request that is gone.
 */
export function showFirstRequest(api, transcript, focus) {
  const container = byId("requests");
  const request = transcript.requests.first;
  byId("request-count").hidden = transcript.requests.size < 2;
  byId("request-count").textContent = translate("request.count", { count: transcript.requests.size });
  if (container.firstElementChild?.dataset.request === request?.id) return;
  const hadFocus = container.inert || container.contains(document.activeElement);
  const answer = async (body) => {
    container.inert = true;
    await transcript.requests.answer(request, body).catch((error) => showToast(describeError(error)));
    container.inert = false;
  };
  const check = (args) => api.fetchJson("POST", `approvals/${encodeURIComponent(request.id)}/check`, { arguments: args });
  container.replaceChildren(...(request ? [renderRequest(request, { answer, check })] : []));
  if (hadFocus) focus();
}
