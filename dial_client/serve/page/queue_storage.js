// The queued messages of conversations in the browser's database, which all tabs share.
//
// A queue is {isPaused, messages}, a message {id, text, files, taint, tab (which added it), sentBy (the tab that sends it)}.
// A change is a transaction: no tab overwrites a change of another tab. (In localStorage a tab may read old values.)
// Locks tell which tabs are open, and let one tab send at a time. Browsers offer them over HTTPS and on loopback; without
// them, messages of an earlier visit always wait for the user.

const STORE = "queues";
const TAB_PREFIX = "dial-tab:";
const EMPTY = { isPaused: false, messages: [] };

/** The name of this tab until it is closed or reloaded. */
export const TAB = createId();

/** Queues that cannot be stored, because the database is full or disabled. They are kept while the page is open. */
const unsaved = new Map();
const channel = new BroadcastChannel("dial-queues");
let database = null;

// This lock tells other tabs that the tab is open. It is never released.
navigator.locks?.request(TAB_PREFIX + TAB, () => new Promise(() => {}));

export function createId() {
  return [...crypto.getRandomValues(new Uint32Array(3))].map((number) => number.toString(36)).join("-");
}

/** Return the names of the open tabs, this one included. */
export async function listTabs() {
  const { held = [] } = (await navigator.locks?.query()) ?? {};
  const names = held.map(({ name }) => name).filter((name) => name.startsWith(TAB_PREFIX));
  return new Set([TAB, ...names.map((name) => name.slice(TAB_PREFIX.length))]);
}

/** Change the queue of a conversation: `change(queue)` returns the new queue. Resolves to the new queue. */
export async function changeQueue(key, change) {
  try {
    if (!unsaved.has(key)) return await changeStored(key, change);
  } catch {
    // The database failed: change the queue that is kept while the page is open.
  }
  const queue = change(unsaved.get(key) ?? EMPTY);
  unsaved.set(key, queue);
  return queue;
}

/** Return the queue of a conversation. */
export const readQueue = (key) => changeQueue(key, (queue) => queue);

async function changeStored(key, change) {
  database ??= openDatabase();
  const transaction = (await database).transaction(STORE, "readwrite");
  const store = transaction.objectStore(STORE);
  let before = null;
  let queue = null;
  await new Promise((resolve, reject) => {
    store.get(key).onsuccess = ({ target }) => {
      before = target.result ?? EMPTY;
      queue = change(before);
      if (queue === before) return;
      if (queue.messages.length) store.put(queue, key);
      else store.delete(key);
    };
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  if (queue !== before) channel.postMessage(key);
  return queue.messages.length ? queue : EMPTY;
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("dial-chat", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Call `onChange(key)` when another tab has changed the queue of a conversation. */
export function watchQueues(onChange) {
  channel.addEventListener("message", ({ data }) => onChange(data));
}

/** Run an action while no other tab sends queued messages of the conversation. */
export function whileSending(key, action) {
  return navigator.locks ? navigator.locks.request(`dial-queue:${key}`, action) : action();
}
