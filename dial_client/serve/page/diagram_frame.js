// Draws diagrams, in a frame of an opaque origin without network. Receives {id, source, isDark}, responds {id, svg}; `svg` is
// null if the source is not a diagram. The page shows the response as an image, in which no script runs.

/* global mermaid */

addEventListener("message", async ({ data, source: sender }) => {
  if (sender !== parent || typeof data?.source !== "string") return;
  parent.postMessage({ id: data.id, svg: await draw(data) }, "*");
});

async function draw({ id, source, isDark }) {
  try {
    mermaid.initialize({
      startOnLoad: false,
      securityLevel: "strict",
      suppressErrorRendering: true,
      htmlLabels: false,
      flowchart: { htmlLabels: false },
      theme: isDark ? "dark" : "default",
      fontFamily: "system-ui, sans-serif",
    });
    const { svg } = await mermaid.render(`diagram-${Number(id)}`, source);
    return toImage(svg);
  } catch {
    return null;
  }
}

/** Return the SVG as XML with a size in pixels. */
function toImage(markup) {
  const holder = document.createElement("div");
  holder.innerHTML = markup;
  const svg = holder.firstElementChild;
  const [, , width, height] = (svg.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  if (width > 0 && height > 0) {
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
  }
  return new XMLSerializer().serializeToString(svg);
}

parent.postMessage({ isReady: true }, "*");
