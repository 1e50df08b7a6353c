// Search over operators, kernels and passes. "/" begins it, the arrows choose, Enter opens.
function search() {
  const box = byId("search"), list = byId("found");
  let shown = [], chosen = 0;
  function things() {
    const found = Object.keys(data.kernels).map((name) => ({ kind: "kernel", text: name, open: () => go("kernels", name) }));
    for (const node of data.graph.before.nodes)
      found.push({ kind: node.kind === "input" || node.kind === "result" ? node.kind : "operator", text: node.title + (node.label && node.label !== node.title ? " " + node.label : ""), note: node.note, open: () => go("graph", node.label ?? node.title) });
    for (const row of data.timing.attributes.flat) found.push({ kind: "pass", text: row.name, open: () => go("passes", row.name) });
    return found;
  }
  function fill() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (thing) => words.every((word) => `${thing.kind} ${thing.text}`.toLowerCase().includes(word));
    const all = words.length ? things().filter(fits) : [];
    const begins = (thing) => thing.text.toLowerCase().startsWith(words[0]) ? 0 : 1;
    shown = all.sort((a, b) => begins(a) - begins(b)).slice(0, 14);
    chosen = 0;
    const lines = shown.map((thing, number) => element("li", { role: "option", "aria-selected": String(number === chosen), onmousedown: (event) => { event.preventDefault(); open(number); } },
      element("span", { class: "kind" }, thing.kind), " ", thing.text, thing.note ? element("span", { class: "soft" }, "  " + thing.note) : null));
    if (words.length && !all.length) lines.push(element("li", { class: "soft" }, "nothing found"));
    if (all.length > shown.length) lines.push(element("li", { class: "soft" }, `${all.length - shown.length} more`));
    list.replaceChildren(...lines);
    list.hidden = !lines.length;
  }
  function open(number) {
    if (!shown[number]) return;
    const thing = shown[number];
    close();
    thing.open();
  }
  function close() { box.value = ""; box.blur(); list.hidden = true; shown = []; }
  box.addEventListener("input", fill);
  box.addEventListener("blur", () => { list.hidden = true; });
  box.addEventListener("focus", fill);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter") open(chosen);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(shown.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      [...list.children].forEach((line, number) => line.setAttribute("aria-selected", String(number === chosen)));
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); box.focus(); }
  });
}
