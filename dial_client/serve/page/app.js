// The page: connects its parts and keeps track of the open conversation.

import { Api } from "./api.js";
import { connectApprovalKeys } from "./approval_keys.js";
import { renderRequest } from "./approvals.js";
import { connectApps, closeDetachedApps } from "./app_frame.js";
import { Composer } from "./composer.js";
import { confirmAction, showToast, promptForToken } from "./dialogs.js";
import { announce, byId, el, createIcon } from "./dom.js";
import { ConversationSearch } from "./conversation_search.js";
import { readHash, revealMessage, showAllTurns, toHash } from "./deep_links.js";
import { listHistoryCommands } from "./history_commands.js";
import { initInstallation } from "./installation.js";
import { ServersPanel } from "./servers_panel.js";
import { openSettings } from "./settings_panel.js";
import { Sidebar } from "./sidebar.js";
import { Suggestions } from "./suggestions.js";
import { initTheme } from "./theme.js";
import { Transcript } from "./transcript.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeError, translate } from "./strings.js";

const EXAMPLES = [
  "What can you do with the tools you have?",
  "What time is it in Tokyo?",
  "Explain a hash table in three sentences.",
];
const UNTITLED = "New conversation";
/** Pixels from the end within which the view follows new content. */
const END_DISTANCE = 80;

initTheme();
initInstallation();
const api = new Api(promptForToken);
api.readToken();

const view = byId("view");
/** The loaded conversations: id to Transcript. */
const transcripts = new Map();
const running = new Set();
let current = null;
/** The name of the model of conversations that choose none. */
let standardModel = "";
let isAtEnd = true;

const servers = new ServersPanel(api);
const finder = new ConversationSearch();
const suggestions = new Suggestions(api, {
  commands: [
    { name: "new", detail: "Begin a new conversation", run: () => navigate("") },
    { name: "search", detail: "Search the conversations", run: openSearch },
    { name: "find", detail: translate("command.find"), run: () => finder.open(current.element) },
    { name: "print", detail: translate("command.print"), run: () => print() },
    { name: "fork", detail: "Continue this conversation in a copy", run: () => current.id && sidebar.fork(current.id) },
    ...listHistoryCommands({ transcript: () => current, act }),
    { name: "servers", detail: "Show the servers and their tools", run: () => servers.open() },
    { name: "attach", detail: "Attach files of this device", run: () => composer.chooseFiles() },
    { name: "stop", detail: "Stop the answer", run: stop },
    { name: "theme", detail: "Change between light and dark colours", run: () => byId("theme").click() },
  ],
  insert: (message) => composer.insert(message),
  insertText: (text) => composer.insert({ text }),
  attach: () => composer.chooseFiles(),
});
const composer = new Composer({
  send: async (message) => {
    const transcript = current;
    return (await send(message, transcript)) ? null : transcript.id ?? "";
  },
  stop,
  editLast: () => current.editLast(),
  suggest: (text, position) => suggestions.find(text, position),
  findCommand: (text) => suggestions.findCommand(text),
});
const sidebar = new Sidebar(api, {
  currentId: () => current?.id,
  isWaiting: (id) => (transcripts.get(id)?.requests.size ?? 0) > 0,
  isRunning: (id) => transcripts.get(id)?.isRunning ?? running.has(id),
  onListed: (id, isRunning) => (isRunning ? running.add(id) : running.delete(id)),
  onDeleted: (id) => {
    transcripts.get(id)?.close();
    transcripts.delete(id);
    if (current.id === id) navigate("");
  },
  onRenamed: (id, title) => {
    if (current.id !== id) return;
    current.title = title;
    renderTitle();
  },
  onForked: (id, draft) => {
    if (draft) composer.setDraft(id, draft);
    navigate(id);
  },
});

connectApps({
  api,
  conversationId: () => current.id ?? "",
  addRequest: (id, request) => transcripts.get(id)?.requests.add(request),
  removeRequest: (id, request) => transcripts.get(id)?.requests.remove(request),
  // A server wrote the text, whoever has sent it: what can act is asked about from now on.
  sendMessage: (text, server) => send({ text, files: [], taint: server }),
});

/** Go to a conversation by its id; "" is a new conversation. */
function navigate(id) {
  if (location.hash === toHash(id)) openConversation(id);
  else location.hash = toHash(id);
}

async function openConversation(id, position = null) {
  closeSidebar();
  finder.close();
  const previous = current;
  const loaded = id ? transcripts.get(id) : null;
  current = loaded ?? createTranscript(id || null);
  if (previous && previous !== current && !previous.isRunning && !previous.isEdited) {
    previous.close();
    transcripts.delete(previous.id);
  }
  view.replaceChildren(current.element);
  closeDetachedApps();
  resizes.disconnect();
  resizes.observe(view);
  resizes.observe(current.element);
  composer.open(id);
  render();
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
  if (id && !loaded) current.ready = load(current);
  await current.ready;
  if (position === null || !(await reveal(current, position))) scrollToEnd();
}

/** Show a message of a link. The view does not follow the end then. */
async function reveal(transcript, position) {
  isAtEnd = false;
  return revealMessage(transcript, position);
}

async function load(transcript) {
  view.setAttribute("aria-busy", "true");
  try {
    await transcript.load();
  } catch (error) {
    transcripts.delete(transcript.id);
    if (transcript !== current) return;
    transcript.element.replaceChildren(el("div.failed", { role: "alert" }, el("p", {}, describeError(error))));
  } finally {
    view.removeAttribute("aria-busy");
  }
}

function createTranscript(id) {
  const serverOf = (name) => servers.tools.get(name) ?? "";
  const transcript = new Transcript(api, id, { actions, serverOf });
  if (id) transcripts.set(id, transcript);
  const isCurrent = () => transcript === current;
  transcript.addEventListener("change", () => (isCurrent() ? render() : sidebar.updateStates()));
  transcript.addEventListener("sent", () => isCurrent() && scrollToEnd());
  transcript.addEventListener("servers", () => servers.refreshSoon());
  transcript.addEventListener("created", () => onCreated(transcript));
  transcript.addEventListener("finished", () => onFinished(transcript));
  return transcript;
}

function onCreated(transcript) {
  transcripts.set(transcript.id, transcript);
  if (transcript !== current) return;
  history.replaceState(null, "", toHash(transcript.id));
  composer.assignId(transcript.id);
}

function onFinished(transcript) {
  running.delete(transcript.id);
  const title = escapeInvisible(transcript.title || UNTITLED);
  if (transcript !== current) announce(translate("answer.elsewhere", { title }));
  sidebar.refresh();
  const next = composer.queue.takeNext(transcript.id);
  if (next) {
    sendQueued(next, transcript);
  } else if (transcript !== current) {
    transcript.close();
    transcripts.delete(transcript.id);
  }
}

async function sendQueued(message, transcript) {
  if (!(await send(message, transcript))) composer.queue.putBack(transcript.id, message);
}

/** Stop the turn. Queued messages wait until the user sends them. */
function stop() {
  if (current.isRunning) composer.queue.pause(current.id ?? "");
  current.stop();
}

function openSearch() {
  document.body.classList.add("with-sidebar");
  byId("search").focus();
}

/** Send a message, {text, files}, by default in the open conversation. Resolves to true if the server accepted it. */
async function send(message, transcript = current) {
  await transcript.ready;
  if (transcript.isRunning) return false;
  const before = transcript.count;
  try {
    await transcript.send(message);
    sidebar.refresh();
    return true;
  } catch (error) {
    showToast(describeError(error));
    // The message may have reached the server all the same.
    if (transcript.id === null || !(await transcript.load().then(() => true, () => false))) return false;
    return transcript.count > before;
  }
}

/** Continue after an answer in a new conversation. */
async function fork(number) {
  const at = await countMessagesTo(number);
  if (at !== null) await sidebar.fork(current.id, at);
}

/** What the buttons of a turn do. */
const actions = {
  fork,
  resend: (message) => send(message),
  edit: async (position, message) => {
    const { id } = current;
    // The text of an edit that is not accepted must not be lost.
    if ((await act((transcript) => transcript.edit(position, message))) !== true) composer.putBack(id, message);
  },
  regenerate: (position) => act((transcript) => transcript.regenerate(position)),
  continueAnswer: () => act((transcript) => transcript.continueAnswer()),
  switchTo: (position) => act((transcript) => transcript.switchTo(position)),
  remove: async (position, what) => {
    const question = what === "answer" ? "Delete this answer?" : "Delete this message and its answers?";
    if (await confirmAction(question, "Delete")) await act((transcript) => transcript.remove(position));
  },
};

/** Change the open conversation and return the result; an error is shown. */
async function act(change) {
  try {
    const result = await change(current);
    sidebar.refresh();
    return result;
  } catch (error) {
    showToast(describeError(error));
  }
}

/** Count the stored messages up to the end of a turn; null if the request fails. */
async function countMessagesTo(number) {
  try {
    const { messages } = await api.fetchJson("GET", `conversations/${encodeURIComponent(current.id)}`);
    const starts = messages.flatMap(({ role }, at) => (role === "user" ? [at] : []));
    return starts[number + 1] ?? messages.length;
  } catch (error) {
    showToast(describeError(error));
    return null;
  }
}

function render() {
  renderTitle();
  const isNew = current.isEmpty && !current.isRunning && current.id === null;
  byId("welcome").hidden = !isNew;
  const status = describeStatus(current);
  // Of the status only this is announced: the words of a turn that goes well would interrupt at every step.
  if (current.isDisconnected && byId("status-text").textContent !== status) announce(status);
  byId("status-text").textContent = status;
  byId("status").dataset.state = current.requests.size ? "waiting" : current.isRunning ? "running" : "";
  composer.setRunning(current.isRunning, current.isStopping);
  renderRequests();
  sidebar.updateStates();
}

function describeStatus({ isDisconnected, requests, status }) {
  if (isDisconnected) return translate("status.disconnected");
  return requests.size ? "Waiting for your answer" : status;
}

function renderTitle() {
  const title = current.title || UNTITLED;
  byId("title").textContent = escapeInvisible(title);
  document.title = current.title ? `${escapeInvisible(title)} · dial-chat` : "dial-chat";
  byId("conversation-more").hidden = current.id === null;
  byId("model-name").textContent = escapeInvisible(current.settings.model ?? standardModel);
  byId("model").classList.toggle("is-changed", Object.keys(current.settings).length > 0);
}

/** Show the first request. A request that is already shown is left alone: the user may be typing into it. */
function renderRequests() {
  const container = byId("requests");
  const request = current.requests.first;
  byId("request-count").hidden = current.requests.size < 2;
  byId("request-count").textContent = `${current.requests.size} requests need your answer`;
  if (container.firstElementChild?.dataset.request === request?.id) return;
  const hadFocus = container.inert || container.contains(document.activeElement);
  const transcript = current;
  const answer = async (body) => {
    container.inert = true;
    await transcript.requests.answer(request, body).catch((error) => showToast(describeError(error)));
    container.inert = false;
  };
  const check = (given) => api.fetchJson("POST", `approvals/${encodeURIComponent(request.id)}/check`, { arguments: given });
  container.replaceChildren(...(request ? [renderRequest(request, { answer, check })] : []));
  if (hadFocus) composer.focus();
}

const isNearEnd = () => view.scrollHeight - view.scrollTop - view.clientHeight < END_DISTANCE;

function scrollToEnd() {
  isAtEnd = true;
  view.scrollTop = view.scrollHeight;
  byId("to-end").hidden = true;
}

/** Follow new content at the end. A user who has scrolled up stays there. */
const resizes = new ResizeObserver(() => {
  if (isAtEnd) scrollToEnd();
  else byId("to-end").hidden = isNearEnd();
});

function closeSidebar() {
  document.body.classList.remove("with-sidebar");
  byId("menu").setAttribute("aria-expanded", "false");
}

function connectEvents() {
  let top = 0;
  view.addEventListener("scroll", () => {
    // Only scrolling up leaves the end: the view may have shrunk, or its content may have grown.
    if (isNearEnd() || view.scrollTop < top) isAtEnd = isNearEnd();
    top = view.scrollTop;
    byId("to-end").hidden = isAtEnd;
  }, { passive: true });
  byId("to-end").addEventListener("click", scrollToEnd);
  byId("new").addEventListener("click", () => navigate(""));
  byId("menu").addEventListener("click", () => {
    const isOpen = document.body.classList.toggle("with-sidebar");
    byId("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) byId("new").focus();
  });
  byId("backdrop").addEventListener("click", closeSidebar);
  byId("conversation-more").addEventListener("click", (event) => {
    sidebar.openMenu(event.currentTarget, { id: current.id, title: current.title || UNTITLED });
  });
  byId("model").addEventListener("click", () => {
    const transcript = current;
    const save = (settings) => transcript.saveSettings(settings);
    act(() => openSettings(api, { settings: transcript.settings, save }));
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    composer.focus();
  });
  addEventListener("hashchange", () => {
    api.readToken();
    openAddress();
  });
  addEventListener("keydown", onKeyDown);
  connectApprovalKeys(byId("requests"));
  addEventListener("beforeprint", () => showAllTurns(current.element));
  document.addEventListener("visibilitychange", () => document.hidden || sidebar.refresh());
  for (const element of document.querySelectorAll("[data-icon]")) element.prepend(createIcon(element.dataset.icon));
  const example = (text) => el("button.example", { type: "button", onclick: () => send({ text, files: [] }) }, text);
  byId("examples").append(...EXAMPLES.map(example));
}

function onKeyDown(event) {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("with-sidebar")) {
      closeSidebar();
      byId("menu").focus();
    } else if (current.isRunning) stop();
  } else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openSearch();
  }
}

/** Open the conversation of the page's address, at the message it names. */
function openAddress() {
  const { id, position } = readHash();
  return openConversation(id, position);
}

connectEvents();
await servers.refresh();
await Promise.all([openAddress(), sidebar.refresh()]);
const models = await api.fetchJson("GET", "v1/models").catch(() => null);
standardModel = models?.data?.[0]?.id ?? "";
renderTitle();
