// The page: connects its parts and keeps track of the open conversation.

import { Api } from "./api.js";
import { connectApprovalKeys } from "./approval_keys.js";
import { connectApps, closeDetachedApps } from "./app_services.js";
import { Composer } from "./composer.js";
import { confirmAction, openMenu, showToast, promptForToken } from "./dialogs.js";
import { announce, byId, el, createIcon } from "./dom.js";
import { ConversationSearch } from "./conversation_search.js";
import { sendWhenFree } from "./queued_sending.js";
import { readHash, revealMessage, showAllTurns, toHash } from "./deep_links.js";
import { listHistoryCommands } from "./history_commands.js";
import { ModelPicker } from "./model_picker.js";
import { initInstallation } from "./installation.js";
import { initNotifications, notify } from "./notifications.js";
import { ServersPanel } from "./servers_panel.js";
import { showFirstRequest } from "./shown_request.js";
import { Sidebar } from "./sidebar.js";
import { isQuestion } from "./stored_turns.js";
import { Suggestions } from "./suggestions.js";
import { initTheme } from "./theme.js";
import { Transcript } from "./transcript.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { describeError } from "./descriptions.js";
import { initLanguage } from "./page_texts.js";
import { UsageGauge } from "./usage_gauge.js";
import { WaitingRequests } from "./waiting_requests.js";

const EXAMPLES = [translate("welcome.tools"), translate("welcome.time"), translate("welcome.explain")];
const UNTITLED = translate("conversation.new");
/** Pixels from the end within which the view follows new content. */
const END_DISTANCE = 80;
/** Windows in which the list of conversations lies above the page, as in style.css. */
const NARROW = matchMedia("(max-width: 48rem)");
const SIDEBAR_KEY = "dial-sidebar";

initLanguage();
initTheme();
initInstallation();
initNotifications();
const api = new Api(promptForToken);
api.readToken();

const view = byId("view");
/** The loaded conversations: id to Transcript. */
const transcripts = new Map();
const running = new Set();
let current = null;
let isAtEnd = true;

const servers = new ServersPanel(api, (mention) => composer.mention(mention));
const finder = new ConversationSearch();
const suggestions = new Suggestions(api, {
  commands: [
    { name: "new", detail: translate("command.new"), run: () => navigate("") },
    { name: "search", detail: translate("conversation.search"), run: openSearch },
    { name: "find", detail: translate("command.find"), run: () => finder.open(current.element) },
    { name: "print", detail: translate("command.print"), run: () => print() },
    { name: "fork", detail: translate("command.fork"), run: () => current.id && sidebar.fork(current.id) },
    ...listHistoryCommands({ transcript: () => current, act }),
    { name: "servers", detail: translate("command.servers"), run: () => servers.open() },
    { name: "attach", detail: translate("command.attach"), run: () => composer.chooseFiles() },
    { name: "stop", detail: translate("command.stop"), run: stop },
    { name: "theme", detail: translate("command.theme"), run: () => byId("theme").click() },
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
  sendQueued: () => sendQueued(current),
  stop,
  editLast: () => current.editLast(),
  suggest: (text, position) => suggestions.find(text, position),
  findCommand: (text) => suggestions.findCommand(text),
});
const picker = new ModelPicker((name) => act((transcript) => transcript.chooseModel(name)));
const gauge = new UsageGauge(api, () => suggestions.findCommand("/compact").then((run) => run()));
const sidebar = new Sidebar(api, {
  currentId: () => current?.id,
  isWaiting: (id) => waiting.isWaiting(id),
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
  onForked: (id) => navigate(id),
});

const waiting = new WaitingRequests(api, {
  loaded: () => new Map([...transcripts].map(([id, { requests }]) => [id, requests])),
  isOpen: (id) => id === current?.id,
  onChange: () => {
    sidebar.updateStates();
    renderTitle();
  },
  open: navigate,
});

connectApps({
  api,
  conversationId: () => current.id ?? "",
  addRequest: (id, request) => transcripts.get(id)?.requests.add(request),
  removeRequest: (id, request) => transcripts.get(id)?.requests.remove(request),
  // A server wrote the text, even if the user sends it: from now on, calls that can act need approval.
  sendMessage: (text, server) => composer.sendForApp({ text, files: [], taint: server }),
  setContext: (app, context) => composer.contexts.set(current.id, app, context),
});

/** Go to a conversation by its id; "" is a new conversation. */
function navigate(id) {
  // A change of `location.hash` would open the conversation later, and close what is begun until then.
  if (location.hash !== toHash(id)) history.pushState(null, "", toHash(id));
  openConversation(id);
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
  gauge.refresh(null);
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
  if (id && !loaded) current.ready = load(current);
  await current.ready;
  if (position === null || !(await reveal(current, position))) scrollToEnd();
}

/** Show the message that a link names. The view then stops following the end. */
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
  let { title } = transcript;
  transcript.addEventListener("change", () => {
    if (title && title !== transcript.title) sidebar.refresh();
    ({ title } = transcript);
    waiting.update();
    if (isCurrent()) render();
    else sidebar.updateStates();
  });
  transcript.addEventListener("sent", () => isCurrent() && scrollToEnd());
  transcript.addEventListener("servers", () => servers.refreshSoon());
  transcript.addEventListener("stored", () => isCurrent() && gauge.refresh(transcript.id));
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

async function onFinished(transcript) {
  running.delete(transcript.id);
  const title = escapeInvisible(transcript.title || UNTITLED);
  if (transcript !== current) announce(translate("answer.elsewhere", { title }));
  if (document.hidden || transcript !== current) {
    notify(translate("answer.elsewhere", { title }), transcript.id, () => navigate(transcript.id));
  }
  sidebar.refresh();
  await sendQueued(transcript);
  if (transcript === current || transcript.isRunning) return;
  transcript.close();
  transcripts.delete(transcript.id);
}

/** Send the next queued message. */
const sendQueued = (transcript) => composer.queue.sendNext(transcript.id ?? "", (message) =>
  sendWhenFree(transcript, () => send(message, transcript, { isQueued: true })));

/** Stop the turn. Queued messages wait until the user sends them. */
async function stop() {
  const transcript = current;
  if (transcript.isRunning) await composer.queue.pause(transcript.id ?? "");
  transcript.stop();
}

function openSearch() {
  if (NARROW.matches) document.body.classList.add("with-sidebar");
  else document.body.classList.remove("without-sidebar");
  showSidebarState();
  byId("search").focus();
}

/** Send a message, {text, files}. Resolves to true if the server accepted it, to null if another turn was running. */
async function send(message, transcript = current, { isQueued = false } = {}) {
  await transcript.ready;
  if (transcript.isRunning) return null;
  const before = transcript.count;
  try {
    await transcript.send(message);
    sidebar.refresh();
    return true;
  } catch (error) {
    const isBusy = error.status === 409; // a turn from another tab or browser is running
    if (!isQueued || !isBusy) showToast(describeError(error));
    // The server may have received the message nevertheless.
    const isLoaded = transcript.id !== null && (await transcript.load().then(() => true, () => false));
    return isBusy ? null : isLoaded && transcript.count > before;
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
    const question = translate(what === "answer" ? "answer.delete_question" : "user.delete_question");
    if (await confirmAction(question, translate("delete"))) await act((transcript) => transcript.remove(position));
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
    const starts = messages.flatMap((message, at) => (isQuestion(message) ? [at] : []));
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
  // Only a lost connection is announced: the status of each step would interrupt screen readers.
  if (current.isDisconnected && byId("status-text").textContent !== status) announce(status);
  byId("status-text").textContent = status;
  byId("status").dataset.state = current.requests.size ? "waiting" : current.isRunning ? "running" : "";
  composer.setRunning(current.isRunning, current.isStopping);
  showFirstRequest(api, current, () => composer.focus());
  sidebar.updateStates();
}

function describeStatus({ isDisconnected, requests, status }) {
  if (isDisconnected) return translate("status.disconnected");
  return requests.size ? translate("status.waiting") : status;
}

function renderTitle() {
  const title = current.title || UNTITLED;
  byId("title").textContent = escapeInvisible(title);
  const badge = waiting.count ? `(${waiting.count}) ` : "";
  document.title = badge + (current.title ? `${escapeInvisible(title)} · dial-chat` : "dial-chat");
  byId("conversation-more").hidden = current.id === null;
  picker.show(current.settings.model ?? null);
  byId("model").classList.toggle("is-changed", Object.keys(current.settings).some((name) => name !== "model"));
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
  showSidebarState();
}

/** Fold the list of conversations away on a wide window, or show it again. Returns true if it is shown. */
function toggleSidebar() {
  const isHidden = document.body.classList.toggle("without-sidebar");
  localStorage.setItem(SIDEBAR_KEY, isHidden ? "hidden" : "");
  return !isHidden;
}

function showSidebarState() {
  const { classList } = document.body;
  const isOpen = NARROW.matches ? classList.contains("with-sidebar") : !classList.contains("without-sidebar");
  byId("menu").setAttribute("aria-expanded", String(isOpen));
}

function connectEvents() {
  document.body.classList.toggle("without-sidebar", localStorage.getItem(SIDEBAR_KEY) === "hidden");
  NARROW.addEventListener("change", showSidebarState);
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
    const isOpen = NARROW.matches ? document.body.classList.toggle("with-sidebar") : toggleSidebar();
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
    const options = { settings: transcript.settings, save };
    act(async () => (await import("./settings_panel.js")).openSettings(api, options));
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
  byId("message").addEventListener("keydown", (event) => {
    if (event.key !== "Tab" || !event.shiftKey) return;
    const controls = ".request-decisions button, .request-form :is(input, select, textarea, a, button)";
    const control = byId("requests").querySelector(controls);
    if (!control) return;
    event.preventDefault();
    control.focus();
  });
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

/** Show who uses the page, in a service for several persons. */
async function showAccount() {
  // Whoever may do nothing here may log out, to log in as somebody else.
  const person = await api.readPerson().catch(() => null);
  const button = byId("account");
  button.hidden = !(person ? person.name : api.hasToken);
  button.textContent = person?.shown_name ?? translate("account.log_out");
  button.disabled = !api.hasToken;  // a login at a proxy ends at the proxy
  button.addEventListener("click", () => openMenu(button, [[translate("account.log_out"), () => api.logOut()]]));
}

byId("not-started").remove();
connectEvents();
await servers.refresh();
await Promise.all([openAddress(), sidebar.refresh(), waiting.start(), picker.load(api), showAccount()]);
