// JSON-RPC with the document of an MCP App, over postMessage (extension io.modelcontextprotocol/ui, 2026-01-26).
//
// Nothing that an app sends is trusted: it comes from one frame only, is bounded in number and size, and reaches the
// server only through the methods below.

import { toPlain } from "./exact_json.js";

/** Messages that an app may send at once, and per second. */
const BURST = 240;
const PER_SECOND = 60;
/** Characters of the parameters of a request. */
const MAX_PARAMS = 1_000_000;
/** Requests of an app in progress. */
const MAX_IN_PROGRESS = 8;
/** Milliseconds that an app has to save its state before it is closed. */
const TEARDOWN_TIMEOUT = 500;

const ERRORS = { invalid: -32600, unknown: -32601, params: -32602, refused: -32000 };

/** An error that is returned to the app as the response to its request. */
export class AppError extends Error {
  constructor(message, kind = "refused") {
    super(message);
    this.code = ERRORS[kind];
  }
}

export class AppBridge {
  #frame;
  #methods;
  #onNotification;
  #onFlood;
  #tokens = BURST;
  #refilledAt = performance.now();
  #inProgress = 0;
  #closing = null;

  /**
   * `frame`: the iframe. `methods`: name to async (params) => result. `onNotification(name, params)`. `onFlood()`: the app
   * sends too many messages.
   */
  constructor(frame, { methods, onNotification, onFlood }) {
    this.#frame = frame;
    this.#methods = methods;
    this.#onNotification = onNotification;
    this.#onFlood = onFlood;
    addEventListener("message", this.#receive);
  }

  notify(method, params) {
    this.#post({ jsonrpc: "2.0", method, params });
  }

  /** Stop listening. */
  close() {
    removeEventListener("message", this.#receive);
  }

  /** Tell the app that it will be closed, and wait until it has saved its state, for at most half a second. */
  async tearDown(reason) {
    const answered = new Promise((resolve) => (this.#closing = resolve));
    this.#post({ jsonrpc: "2.0", id: "teardown", method: "ui/resource-teardown", params: { reason } });
    await Promise.race([answered, new Promise((resolve) => setTimeout(resolve, TEARDOWN_TIMEOUT))]);
  }

  #post(message) {
    // The frame's origin is opaque: it cannot be named here. The page's policy allows no other document in the frame.
    this.#frame.contentWindow?.postMessage(toPlain(message), "*");
  }

  #receive = ({ source, data }) => {
    if (source === null || source !== this.#frame.contentWindow) return;
    if (!this.#takeToken()) return;
    if (data === null || typeof data !== "object" || data.jsonrpc !== "2.0") return;
    const { id, method, params } = data;
    if (typeof method !== "string") {
      if (id === "teardown") this.#closing?.();
      return;
    }
    const parameters = params !== null && typeof params === "object" ? params : {};
    if (id === undefined) this.#onNotification(method, parameters);
    else if (typeof id === "string" || typeof id === "number") this.#answer(id, method, parameters);
  };

  #takeToken() {
    const now = performance.now();
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#refilledAt) / 1000) * PER_SECOND);
    this.#refilledAt = now;
    if (this.#tokens < 1) {
      this.#onFlood();
      return false;
    }
    this.#tokens -= 1;
    return true;
  }

  async #answer(id, method, params) {
    try {
      if (!Object.hasOwn(this.#methods, method)) {
        throw new AppError(`This host has no method ${method.slice(0, 100)}`, "unknown");
      }
      if (this.#inProgress >= MAX_IN_PROGRESS) throw new AppError("Too many requests are in progress");
      if (JSON.stringify(params).length > MAX_PARAMS) throw new AppError("The request is too large", "invalid");
      this.#inProgress += 1;
      const result = await this.#methods[method](params).finally(() => (this.#inProgress -= 1));
      this.#post({ jsonrpc: "2.0", id, result });
    } catch (error) {
      const code = error instanceof AppError ? error.code : ERRORS.refused;
      this.#post({ jsonrpc: "2.0", id, error: { code, message: String(error?.message ?? "The request failed") } });
    }
  }
}
