// Draw a graph that fits its frame: the wheel zooms at the pointer, dragging moves it, a double click fits it again.
const MOST_ZOOM = 12, LEAST_SHOWN = 0.7;

function picture(graph, { name, chosen, heatOf }) {
  const layer = drawn("g"), nodes = [];
  for (const { path } of graph.edges) {
    let line = `M${path[0]},${path[1]}`;
    for (let i = 2; i + 5 < path.length; i += 6) line += `C${path.slice(i, i + 6).join(",")}`;
    layer.append(drawn("path", { class: "edge", d: line }));
  }
  for (const node of graph.nodes) {
    const most = Math.floor((node.w - 10) / 6.2), short = (text) => text.length > most ? text.slice(0, most - 1) + "…" : text;
    const made = drawn("g", { class: `node ${node.kind}`, "data-title": node.title, tabindex: 0, role: "button" },
      drawn("rect", { x: node.x - node.w / 2, y: node.y - node.h / 2, width: node.w, height: node.h, style: heat(heatOf(node)) }),
      label(node.x, node.y + (node.note ? -3 : 4), short(node.title), { "text-anchor": "middle" }));
    if (node.note) made.append(label(node.x, node.y + 12, short(node.note), { "text-anchor": "middle", class: "soft" }));
    made.append(hint([node.label || node.title, node.note, ...node.origins].filter(Boolean).join("\n")));
    made.addEventListener("click", () => { if (!moved) chosen(node); });
    made.addEventListener("keydown", (event) => { if (event.key === "Enter") chosen(node); });
    nodes.push([node, made]);
    layer.append(made);
  }
  const svg = drawn("svg", { class: "canvas", role: "img", "aria-label": name }, layer);
  const frame = element("div", { class: "picture" }, svg);
  const margin = 12;
  let view = null, whole = null, drag = null, moved = false;
  const place = () => svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].map((number) => number.toFixed(2)).join(" "));
  const centred = (x, y, w) => {
    const h = w * frame.clientHeight / Math.max(1, frame.clientWidth);
    view = { x: x - w / 2, y: y - h / 2, w, h };
    place();
  };
  function fit() {
    const width = Math.max(1, frame.clientWidth), height = Math.max(1, frame.clientHeight);
    whole = Math.max(graph.width + 2 * margin, (graph.height + 2 * margin) * width / height, width * LEAST_SHOWN);
    centred(graph.width / 2, graph.height / 2, whole);
  }
  function zoom(factor, x, y) {
    const w = Math.min(whole * 1.5, Math.max(whole / Math.max(MOST_ZOOM, whole / 400), view.w / factor)), part = w / view.w;
    view = { x: x - (x - view.x) * part, y: y - (y - view.y) * part, w, h: view.h * part };
    place();
  }
  const pointed = (event) => {
    const box = svg.getBoundingClientRect();
    return [view.x + (event.clientX - box.left) / box.width * view.w, view.y + (event.clientY - box.top) / box.height * view.h];
  };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0016), ...pointed(event));
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, view: { ...view } }; moved = false; });
  svg.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) { drag = null; return; }
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y, scale = view.w / Math.max(1, svg.clientWidth);
    if (Math.hypot(dx, dy) < 4 && !moved) return;
    moved = true;
    view = { ...view, x: drag.view.x - dx * scale, y: drag.view.y - dy * scale };
    place();
  });
  svg.addEventListener("dblclick", fit);
  const mark = (test) => {
    let first = null;
    for (const [node, made] of nodes) {
      const is = test(node);
      made.classList.toggle("marked", is);
      if (is && !first) first = node;
    }
    // Come nearer if the nodes are too small to read, and move there if the first one is outside.
    if (!first || !view) return;
    const readable = frame.clientWidth / 0.6;
    const inside = first.x > view.x && first.x < view.x + view.w && first.y > view.y && first.y < view.y + view.h;
    if (view.w > readable) centred(first.x, first.y, readable);
    else if (!inside) centred(first.x, first.y, view.w);
  };
  const centre = (factor) => zoom(factor, view.x + view.w / 2, view.y + view.h / 2);
  return { frame, fit, zoom: centre, mark };
}
