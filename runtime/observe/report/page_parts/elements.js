// Make elements. Text is inserted as text nodes only, so no part of a model is parsed as HTML.
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function furnished(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const element = (tag, attributes, ...children) => furnished(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) => furnished(document.createElementNS(SVG, tag), attributes, children);
const hint = (text) => drawn("title", {}, text);
const label = (x, y, text, attributes) => drawn("text", { x, y, ...attributes }, text);

function failed(error) {
  const said = element("p", { id: "error" }, "The report cannot be shown: " + error.message);
  byId("main").replaceChildren(said);
  throw error;
}

async function unpacked() {
  const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
