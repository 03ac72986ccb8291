// The page: puts its parts together, and knows which conversation is open.

import { Api } from "./api.js";
import { askCard } from "./asking.js";
import { Composer } from "./composer.js";
import { toast, tokenTyped } from "./dialogs.js";
import { byId, el, icon } from "./dom.js";
import { ServersPanel } from "./servers.js";
import { Sidebar } from "./sidebar.js";
import { theme } from "./theme.js";
import { Thread } from "./thread.js";
import { visible } from "./unseen.js";
import { sentence } from "./words.js";

const EXAMPLES = [
  "What can you do with the tools you have?",
  "What time is it in Tokyo?",
  "Explain a hash table in three sentences.",
];
const NAMELESS = "New conversation";
/** Pixels from the end within which the view stays at the end. */
const NEAR = 80;

theme();
const api = new Api(tokenTyped);
api.takeToken();

const view = byId("view");
const threads = new Map();
const running = new Set();
let thread = null;
let isAtEnd = true;

const servers = new ServersPanel(api);
const composer = new Composer({ send, stop: () => thread.stop() });
const sidebar = new Sidebar(api, {
  current: () => thread?.id,
  waits: (id) => (threads.get(id)?.asks.size ?? 0) > 0,
  runs: (id) => threads.get(id)?.isRunning ?? running.has(id),
  heard: (id, isRunning) => (isRunning ? running.add(id) : running.delete(id)),
  deleted: (id) => {
    threads.get(id)?.close();
    threads.delete(id);
    if (thread.id === id) go("");
  },
  renamed: (id, title) => {
    if (thread.id !== id) return;
    thread.title = title;
    showTitle();
  },
  forked: (id, draft) => {
    if (draft) composer.prepare(id, draft);
    go(id);
  },
});

/** Open a conversation by its id; "" for a new one. */
function go(id) {
  if (location.hash === `#/${id}`) open(id);
  else location.hash = `#/${id}`;
}

async function open(id) {
  closeSidebar();
  const before = thread;
  const known = id ? threads.get(id) : null;
  thread = known ?? made(id || null);
  if (before && before !== thread && !before.isRunning) threads.delete(before.id);
  view.replaceChildren(thread.element);
  growth.disconnect();
  growth.observe(view);
  growth.observe(thread.element);
  composer.open(id);
  show();
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
  if (id && !known) thread.ready = read(thread);
  await thread.ready;
  toEnd();
}

async function read(one) {
  view.setAttribute("aria-busy", "true");
  try {
    await one.load();
  } catch (error) {
    threads.delete(one.id);
    if (one === thread) one.element.replaceChildren(el("div.failed", { role: "alert" }, el("p", {}, sentence(error))));
  } finally {
    view.removeAttribute("aria-busy");
  }
}

function made(id) {
  const serverOf = (name) => servers.tools.get(name) ?? "";
  const one = new Thread(api, id, { actions: { fork, edit, again: send }, serverOf });
  if (id) threads.set(id, one);
  one.addEventListener("change", () => (one === thread ? show() : sidebar.mark()));
  one.addEventListener("said", () => one === thread && toEnd());
  one.addEventListener("servers", () => servers.soon());
  one.addEventListener("named", () => named(one));
  one.addEventListener("over", () => over(one));
  return one;
}

function named(one) {
  threads.set(one.id, one);
  if (one !== thread) return;
  history.replaceState(null, "", `#/${one.id}`);
  composer.name(one.id);
}

function over(one) {
  running.delete(one.id);
  sidebar.refresh();
  if (one !== thread) threads.delete(one.id);
}

/** Say something, {text, files}, in the open conversation; whether the server took it. */
async function send(said) {
  const one = thread;
  await one.ready;
  if (one.isRunning) return false;
  const before = one.count;
  try {
    await one.send(said);
    sidebar.refresh();
    return true;
  } catch (error) {
    toast(sentence(error));
    // It may have come to the server all the same, or somebody else may have been first.
    if (one.id === null || !(await one.load().then(() => true, () => false))) return false;
    return one.count > before;
  }
}

/** Go on behind an answer in a new conversation. */
async function fork(number) {
  const at = await endOf(number);
  if (at !== null) await sidebar.fork(thread.id, at);
}

/** Ask something otherwise: a new conversation of what was before it, with the words in the field. */
async function edit(number, said) {
  if (number === 0) {
    composer.prepare("", said);
    go("");
    return;
  }
  const at = await endOf(number - 1);
  if (at !== null) await sidebar.fork(thread.id, at, said);
}

/** Count the messages up to the end of a question's answer, as the server has them; null where it does not say. */
async function endOf(number) {
  try {
    const { messages } = await api.json("GET", `conversations/${encodeURIComponent(thread.id)}`);
    const starts = messages.flatMap(({ role }, at) => (role === "user" ? [at] : []));
    return starts[number + 1] ?? messages.length;
  } catch (error) {
    toast(sentence(error));
    return null;
  }
}

function show() {
  showTitle();
  const isNew = thread.isEmpty && !thread.isRunning && thread.id === null;
  byId("welcome").hidden = !isNew;
  byId("status-text").textContent = statusOf(thread);
  byId("status").dataset.state = thread.asks.size ? "waiting" : thread.isRunning ? "running" : "";
  composer.run(thread.isRunning, thread.isStopping);
  showAsk();
  sidebar.mark();
}

function statusOf({ isLost, asks, status }) {
  if (isLost) return "The connection is lost. Trying again…";
  return asks.size ? "Waiting for you" : status;
}

function showTitle() {
  const title = thread.title || NAMELESS;
  byId("title").textContent = visible(title);
  document.title = thread.title ? `${visible(title)} · dial-chat` : "dial-chat";
  byId("conversation-more").hidden = thread.id === null;
}

/** Show the first of what is asked for; the one that is shown stays as it is while the person types into it. */
function showAsk() {
  const asks = byId("asks");
  const [ask] = thread.asks.values();
  byId("ask-count").hidden = thread.asks.size < 2;
  byId("ask-count").textContent = `${thread.asks.size} things wait for you, one after the other`;
  if (asks.firstElementChild?.dataset.ask === ask?.id) return;
  const hadFocus = asks.inert || asks.contains(document.activeElement);
  const of = thread;
  const answer = async (body) => {
    asks.inert = true;
    await of.answer(ask, body).catch((error) => toast(sentence(error)));
    asks.inert = false;
  };
  asks.replaceChildren(...(ask ? [askCard(ask, answer)] : []));
  if (hadFocus) composer.focus();
}

const isNear = () => view.scrollHeight - view.scrollTop - view.clientHeight < NEAR;

function toEnd() {
  isAtEnd = true;
  view.scrollTop = view.scrollHeight;
  byId("to-end").hidden = true;
}

/** Stay at the end while there comes more, but only there: who reads further up is left alone. */
const growth = new ResizeObserver(() => {
  if (isAtEnd) toEnd();
  else byId("to-end").hidden = isNear();
});

function closeSidebar() {
  document.body.classList.remove("with-sidebar");
  byId("menu").setAttribute("aria-expanded", "false");
}

function wire() {
  let top = 0;
  view.addEventListener("scroll", () => {
    // Only who scrolls up leaves the end: the view may just have become smaller, or what is in it larger.
    if (isNear() || view.scrollTop < top) isAtEnd = isNear();
    top = view.scrollTop;
    byId("to-end").hidden = isAtEnd;
  }, { passive: true });
  byId("to-end").addEventListener("click", toEnd);
  byId("new").addEventListener("click", () => go(""));
  byId("menu").addEventListener("click", () => {
    const isOpen = document.body.classList.toggle("with-sidebar");
    byId("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) byId("new").focus();
  });
  byId("shade").addEventListener("click", closeSidebar);
  byId("conversation-more").addEventListener("click", (event) => {
    sidebar.menu(event.currentTarget, { id: thread.id, title: thread.title || NAMELESS });
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    composer.focus();
  });
  addEventListener("hashchange", () => {
    api.takeToken();
    open(hashed());
  });
  addEventListener("keydown", keys);
  document.addEventListener("visibilitychange", () => document.hidden || sidebar.refresh());
  for (const picture of document.querySelectorAll("[data-icon]")) picture.prepend(icon(picture.dataset.icon));
  const example = (text) => el("button.example", { type: "button", onclick: () => send({ text, files: [] }) }, text);
  byId("examples").append(...EXAMPLES.map(example));
}

function keys(event) {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("with-sidebar")) {
      closeSidebar();
      byId("menu").focus();
    } else if (thread.isRunning) thread.stop();
  } else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.body.classList.add("with-sidebar");
    byId("search").focus();
  }
}

const hashed = () => (location.hash.startsWith("#/") ? decodeURIComponent(location.hash.slice(2)) : "");

wire();
await servers.refresh();
await Promise.all([open(hashed()), sidebar.refresh()]);
const models = await api.json("GET", "v1/models").catch(() => null);
byId("model").textContent = visible(models?.data?.[0]?.id ?? "");
