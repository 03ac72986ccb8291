// The service worker of the installed page. It shows an offline page if the page is opened and the server cannot be reached.
// It stores nothing, and requests of the API do not pass through it.

const OFFLINE = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>dial-chat is offline</title></head>
<body><main><h1>dial-chat is offline</h1>
<p>The server of this page cannot be reached. Start it with <code>dial-chat serve</code>, then reload.</p>
<p>Nothing is lost: conversations are kept by the server, drafts by this browser.</p>
<p><a href="./">Reload</a></p></main></body>
</html>
`;
const HEADERS = { "content-type": "text/html; charset=utf-8", "content-security-policy": "default-src 'none'" };

/** Whether a URL is that of the page; the server may be mounted under a prefix. */
const isPage = (url) => new URL(url).pathname === new URL(registration.scope).pathname;

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  if (event.request.mode !== "navigate" || !isPage(event.request.url)) return;
  const offline = () => new Response(OFFLINE, { status: 503, headers: HEADERS });
  event.respondWith(fetch(event.request).catch(offline));
});
