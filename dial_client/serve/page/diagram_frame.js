// Draws diagrams, in a frame of an opaque origin without network. Receives {id, source, isDark}, responds {id, svg};
// `svg` is null if the source is not a diagram. The page shows the response as an image, in which no script runs.

/* global mermaid */

/** The namespace of links in SVG. */
const XLINK = "http://www.w3.org/1999/xlink";

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
      // A diagram cannot change these settings: HTML labels are not valid XML, and custom styles could hide text.
      secure: [
        "secure", "securityLevel", "startOnLoad", "maxTextSize", "suppressErrorRendering", "maxEdges",
        "htmlLabels", "themeCSS",
      ],
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
function toImage(svg) {
  const [, width, height] = /\sviewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"/.exec(svg) ?? [];
  const head = svg.slice(0, svg.indexOf(">"));
  const sized = width ? head.replace(/\s(?:width|height)="[^"]*"/g, "") + ` width="${width}" height="${height}"` : head;
  // XML needs a declaration of the prefix of links; HTML does not.
  const named = sized.includes("xmlns:xlink=") ? sized : `${sized} xmlns:xlink="${XLINK}"`;
  return (named + svg.slice(head.length)).replaceAll("&nbsp;", "&#160;");
}

parent.postMessage({ isReady: true }, "*");
