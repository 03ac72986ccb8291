// The frame of an MCP App: a server's HTML in a sandbox with an opaque origin, between the tool calls and the answer.
//
// The frame first loads an empty document (serve/feature_routes.py). The policy of that response allows only the origins
// that the app's server declares. The page then sends the HTML.

import { AppBridge, AppError } from "./app_bridge.js";
import { describeAppearance, describeHost, maxHeight, watchAppearance } from "./app_context.js";
import { callTool, Consent, readContext } from "./app_requests.js";
import { createButton, createIconButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate, translateNodes } from "./language.js";
import { describeError } from "./descriptions.js";

const PROTOCOL_VERSION = "2026-01-26";
/** Apps that are open at a time. One more app closes the app that was opened first. */
const MAX_OPEN = 8;
/** Loads of one frame. An app that reloads itself more often is closed. */
const MAX_LOADS = 5;
const CAPABILITIES = {
  openLinks: {}, serverTools: {}, serverResources: {}, message: { text: {} },
  updateModelContext: { text: {}, structuredContent: {} },
};

/** The apps whose origins the user has allowed, until the page is closed. */
const allowed = new Set();

const whenVisible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) target.dispatchEvent(new Event("visible"));
}, { rootMargin: "200px" });

export class AppFrame {
  #app;
  #services;
  #openFrames;
  /** Identifies the app, also after a reload of the page. */
  #key;
  #name;
  #body = el("div.app-body");
  #origins = el("span.app-origins.quiet");
  #consent;
  #frame = null;
  #bridge = null;
  #resource = null;
  #abort = new AbortController();
  #stopWatching = null;
  #loads = 0;
  /** True once the frame has been sent its HTML. */
  #hasDocument = false;
  #isInitialized = false;
  #end = null;

  /**
   * `app`: {call_id, server, tool, uri, arguments, result}; `result` is null while the call runs. `services`: see
   * `connectApps`. `openFrames`: the open frames of the page, to which this frame adds itself.
   */
  constructor(app, services, openFrames) {
    this.#app = app;
    this.#services = services;
    this.#openFrames = openFrames;
    this.#key = JSON.stringify([app.server, app.uri, app.call_id]);
    this.#name = escapeInvisible(app.server);
    this.#consent = new Consent(this.#name);
    if (app.result) this.#end = ["ui/notifications/tool-result", app.result];
    const head = el("header.app-head", {},
      el("span.app-title", {}, ...translateNodes("app.of", { server: el("strong", {}, this.#name) })), this.#origins,
      createIconButton("cross", translate("app.close"), () => this.close(translate("app.closed_by_user"))));
    const label = translate("app.of", { server: this.#name });
    this.element = el("section.app", { "aria-label": label }, head, this.#body, this.#consent.element);
    this.element.addEventListener("visible", () => this.#load(), { once: true });
    whenVisible.observe(this.element);
  }

  /** Send the result of its call to the app. */
  setResult(result) {
    this.#finish("ui/notifications/tool-result", result);
  }

  /** Tell the app that its call was cancelled. */
  cancel(reason) {
    this.#finish("ui/notifications/tool-cancelled", { reason });
  }

  /** Remove the frame; a button opens it again. */
  async close(text) {
    const frame = this.#frame;
    this.#consent.cancel();
    if (frame?.isConnected && this.#isInitialized) await this.#bridge.tearDown(text);
    if (frame !== this.#frame) return;
    this.#release();
    this.#showButton(text, translate("app.show"), () => this.#open());
  }

  /** Close at once; the app opens again when it is visible. */
  suspend() {
    this.#release();
    this.#body.replaceChildren();
    this.element.addEventListener("visible", () => this.#load(), { once: true });
    whenVisible.observe(this.element);
  }

  #finish(method, params) {
    if (this.#end) return;
    this.#end = [method, params];
    if (this.#isInitialized) this.#bridge.notify(method, params);
  }

  async #load() {
    whenVisible.unobserve(this.element);
    const { server, tool, uri } = this.#app;
    try {
      this.#body.replaceChildren(el("p.quiet", {}, translate("app.loading")));
      this.#resource = await this.#services.api.fetchJson("POST", "apps/read", { server, uri, tool });
    } catch (error) {
      const text = translate("app.failed", { error: describeError(error) });
      this.#showButton(text, translate("app.again"), () => this.#load());
      return;
    }
    const { origins, left_out: leftOut } = this.#resource;
    const hosts = origins.map(escapeInvisible).join(", ");
    this.#origins.textContent = hosts ? translate("app.reaches", { hosts }) : "";
    const refused = leftOut.map(escapeInvisible).join(", ");
    this.#origins.title = refused ? translate("app.left_out", { hosts: refused }) : "";
    const key = JSON.stringify([server, uri, origins]);
    if (!origins.length || allowed.has(key)) return this.#open();
    this.#showButton(translate("app.origins", { hosts }), translate("app.show"), () => {
      allowed.add(key);
      this.#open();
    });
  }

  #showButton(text, label, onclick) {
    this.#body.replaceChildren(el("p.quiet", {}, escapeInvisible(text)), createButton(label, onclick));
  }

  #open() {
    this.#loads = 0;
    this.#createFrame();
    if (this.#openFrames.size > MAX_OPEN) [...this.#openFrames][0].close(translate("app.closed_by_others"));
  }

  #createFrame() {
    this.#release();
    const query = new URLSearchParams();
    for (const [name, sources] of Object.entries(this.#resource.policy)) {
      for (const source of sources) query.append(name, source);
    }
    this.#frame = el("iframe.app-frame", {
      sandbox: "allow-scripts allow-forms",
      allow: "",
      referrerpolicy: "no-referrer",
      title: translate("app.of", { server: this.#name }),
      src: `apps/frame?${query}`,
    });
    this.#bridge = new AppBridge(this.#frame, {
      methods: this.#createMethods(),
      onNotification: (name, params) => this.#handle(name, params),
      onFlood: () => this.#stop(translate("app.flood")),
    });
    this.#stopWatching = watchAppearance(() => {
      if (this.#isInitialized) this.#bridge.notify("ui/notifications/host-context-changed", describeAppearance(this.#width));
    });
    this.element.classList.toggle("borderless", this.#resource.prefers_border === false);
    this.#body.replaceChildren(this.#frame);
    this.#openFrames.add(this);
  }

  get #width() {
    return this.#frame.clientWidth;
  }

  /** Close at once, without telling the app. */
  #stop(text) {
    this.#release();
    this.#showButton(text, translate("app.show"), () => this.#open());
  }

  #release() {
    this.#consent.cancel();
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#bridge?.close();
    this.#stopWatching?.();
    this.#frame?.remove();
    this.#frame = null;
    this.#hasDocument = false;
    this.#isInitialized = false;
    this.#openFrames.delete(this);
  }

  #handle(name, params) {
    switch (name) {
      case "ui/notifications/sandbox-proxy-ready":
        this.#loads += 1;
        if (this.#loads > MAX_LOADS) this.#stop(translate("app.reloads"));
        // An app can navigate its frame to the empty document with another policy: only a new frame has the declared one.
        else if (this.#hasDocument) this.#createFrame();
        else this.#sendDocument();
        break;
      case "ui/notifications/initialized":
        if (this.#isInitialized) return;
        this.#isInitialized = true;
        this.#bridge.notify("ui/notifications/tool-input", { arguments: this.#app.arguments ?? {} });
        if (this.#end) this.#bridge.notify(...this.#end);
        break;
      case "ui/notifications/size-changed":
        // A question to the user must not move while it is open.
        if (Number.isFinite(params.height) && !this.#consent.isOpen) this.#setHeight(params.height);
        break;
      case "ui/notifications/request-teardown":
        this.close(translate("app.closed_by_app"));
        break;
    }
  }

  #sendDocument() {
    this.#hasDocument = true;
    this.#bridge.notify("ui/notifications/sandbox-resource-ready", { html: this.#resource.html });
  }

  #setHeight(height) {
    this.#frame.style.height = `${Math.max(40, Math.min(Math.ceil(height), maxHeight()))}px`;
  }

  #createMethods() {
    const { server } = this.#app;
    const { signal } = this.#abort;
    const services = this.#services;
    return {
      "ui/initialize": async () => ({
        protocolVersion: PROTOCOL_VERSION,
        hostInfo: this.#resource.host,
        hostCapabilities: { ...CAPABILITIES, sandbox: { permissions: {}, csp: describePolicy(this.#resource.policy) } },
        hostContext: describeHost(this.#width, this.#resource.tool),
      }),
      ping: async () => ({}),
      "tools/call": async ({ name, arguments: args }) => {
        if (typeof name !== "string") throw new AppError("The tool has no name", "params");
        const call = { conversation: services.conversationId(), server, tool: name, args };
        return callTool({ api: services.api, hooks: services, signal }, call);
      },
      "resources/read": async ({ uri }) => {
        if (typeof uri !== "string") throw new AppError("The resource has no URI", "params");
        return services.api.fetchJson("POST", "apps/resource", { server, uri }, signal);
      },
      "ui/open-link": async (params) => {
        await this.#consent.askToOpen(params);
        return {};
      },
      "ui/message": async (params) => {
        const isSent = await services.sendMessage(await this.#consent.askToSend(params), server);
        if (!isSent) throw new AppError("The message was not sent: an answer is being written");
        return {};
      },
      "ui/update-model-context": async (params) => {
        const text = readContext(params);
        if (!services.setContext(this.#key, { server, text })) throw new AppError("Denied by the user");
        return {};
      },
      "ui/request-display-mode": async () => ({ mode: "inline" }),
    };
  }
}

const describePolicy = ({ connect, resource, frame, base_uri: base }) => {
  return { connectDomains: connect, resourceDomains: resource, frameDomains: frame, baseUriDomains: base };
};
