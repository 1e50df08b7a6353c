// The tab of the graph: as given, and as kernels, colored by the time of the kernels.
function graphs() {
  const all = { before: data.graph.before, after: data.graph.after };
  const most = Math.max(1e-12, ...calls.map((call) => call.share));
  const labelsOf = (call) => call.origins.map((origin) => origin.label).filter((one) => one !== null);
  const callsOf = (node) => {
    if (node.kernel) {
      const same = calls.filter((call) => call.kernel === node.kernel);
      const exact = same.filter((call) => labelsOf(call).join("|") === (node.labels || []).join("|"));
      return exact.length ? exact : same;
    }
    return node.label === null ? [] : calls.filter((call) => labelsOf(call).includes(node.label));
  };
  const share = (node) => sum(callsOf(node), (call) => call.share);
  const details = element("aside", { id: "chosen" });
  const nothing = () => details.replaceChildren(element("p", { class: "soft" },
    "Click a node for its attributes; a click on a kernel marks the operators that it computes. The wheel zooms, dragging moves, a double click fits."));

  function describe(node) {
    const found = callsOf(node), rows = [];
    const row = (name, value) => rows.push(element("tr", {}, element("td", {}, name), element("td", { class: "text" }, value)));
    if (node.label) row("label", node.label);
    row("result", node.note);
    if (node.type && node.type !== node.note) row("symbolic", node.type);
    if (found.length) {
      row(node.kernel ? "time" : "time of its kernel", seconds(sum(found, (call) => call.median)));
      row("share", percent(sum(found, (call) => call.share)));
    }
    for (const [name, value] of Object.entries(node.attributes)) row(name, value);
    for (const constant of node.constants) row("constant", constant);
    for (const origin of node.origins) row("computes", origin);
    const kernels = node.kernel ? [node.kernel] : [...new Set(found.map((call) => call.kernel))];
    details.replaceChildren(element("h3", {}, node.title), element("table", { class: "settings" }, element("tbody", {}, ...rows)),
      ...kernels.map((kernel) => element("button", { "data-kernel": kernel, onclick: () => go("kernels", kernel) }, node.kernel ? "Show the kernel" : `Show @${kernel}`)));
  }

  const itemOf = (node) => node.kernel ? "@" + [node.kernel, ...(node.labels || [])].join("|") : node.label ?? node.title;
  const draw = (graph, name) => picture(graph, { name, heatOf: (node) => share(node) / most, chosen: (node) => go("graph", itemOf(node)) });
  const before = draw(all.before, "The graph as given"), after = all.after.map((graph) => draw(graph, "The graph as kernels"));
  const drawings = [before, ...after];
  function show(item) {
    const isKernel = item !== undefined && item.startsWith("@");
    const nodes = isKernel ? all.after.flatMap((graph) => graph.nodes) : all.before.nodes;
    const node = item === undefined ? undefined : nodes.find((one) => itemOf(one) === item) || nodes.find((one) => "@" + one.kernel === item) || all.after.flatMap((graph) => graph.nodes).find((one) => itemOf(one) === item);
    if (!node) { drawings.forEach((one) => one.mark(() => false)); nothing(); return; }
    const labels = new Set(node.kernel ? node.labels || [] : [node.label]);
    before.mark((other) => other === node || (other.label !== null && labels.has(other.label)));
    after.forEach((one) => one.mark((other) => other === node || (!node.kernel && node.label !== null && (other.labels || []).includes(node.label))));
    describe(node);
  }
  const zoomed = (factor) => () => drawings.forEach((one) => one.zoom(factor));
  const left = all.before.left_out ? ` (${all.before.left_out} more are not drawn)` : "";
  const legend = calls.length ? element("span", { class: "legend soft" }, "0", element("span", { class: "ramp" }), `${percent(most)} of the time`) : null;
  const fitAll = () => drawings.forEach((one) => one.fit());
  new ResizeObserver((entries) => { if (entries[0].contentRect.width && state.tab === "graph") fitAll(); }).observe(before.frame);
  nothing();
  return {
    parts: [
      element("div", { class: "bar" }, element("button", { onclick: zoomed(1.25), id: "larger" }, "larger"), element("button", { onclick: zoomed(0.8), id: "smaller" }, "smaller"),
        element("button", { onclick: fitAll, id: "fit" }, "fit"), legend),
      element("div", { class: "graphs" },
        element("div", { id: "before" }, element("h3", {}, `As given: ${all.before.nodes.length} nodes${left}`), before.frame),
        element("div", { id: "after" }, element("h3", {}, `As kernels: ${sum(all.after, (one) => one.nodes.length)} nodes`), ...after.map((one) => one.frame)),
        details)],
    drawn: fitAll,
    show,
  };
}
