// The tab of the memory: the values in the arena, with their names, places and lifetimes.
function memory() {
  const arena = data.profile.attributes.arena, count = Math.max(1, arena.live_bytes.length);
  const width = Math.max(800, byId("main").clientWidth - 40), height = Math.max(420, innerHeight - 420), left = 70, size = Math.max(1, arena.bytes);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height + 24}`, width: "100%", id: "arena", role: "img", "aria-label": "Memory plan" });
  const px = (call) => left + call / count * (width - left - 6), py = (place) => height - place / size * (height - 14);
  const of = new Map(calls.map((call) => [call.number, call]));
  for (const part of [0, 0.25, 0.5, 0.75, 1])
    svg.append(drawn("line", { x1: left, x2: width - 6, y1: py(part * size), y2: py(part * size), class: "grid" }), label(left - 6, py(part * size) + 4, bytes(Math.round(part * size)), { "text-anchor": "end", class: "soft" }));
  const line = arena.live_bytes.map((live, call) => `${px(call)},${py(live)} ${px(call + 1)},${py(live)}`).join(" ");
  for (const value of arena.allocations) {
    const x = px(value.first), y = py(value.offset + value.size), w = Math.max(1, px(value.last + 1) - x - 0.6), h = Math.max(1, py(value.offset) - y - 0.6);
    const call = of.get(value.first), computed = call ? operatorsOf(call) : "", name = value.kernel + (value.workspace ? " (workspace)" : "");
    const box = drawn("g", { class: "value", "data-name": value.kernel, onclick: () => go("kernels", value.kernel) },
      hint(`${name}: ${bytes(value.size)} at ${value.offset}, from call ${value.first} to ${value.last}${computed ? "\n" + computed : ""}`),
      drawn("rect", { x, y, width: w, height: h, style: color(value.kernel) + (value.workspace ? "; fill-opacity: 0.45" : "") }));
    // The name as large as the box allows, down to the least that can be read; further lines where there is room.
    const letter = h >= 16 ? 11 : Math.floor(h - 2), letters = Math.floor((w - 8) / (0.62 * letter));
    const cut = (text) => text.length > letters ? text.slice(0, Math.max(1, letters - 1)) + "…" : text;
    const written = [name, bytes(value.size), computed].filter(Boolean).slice(0, Math.max(1, Math.floor((h - 3) / 13)));
    if (letter >= 7 && letters >= 3)
      written.forEach((text, number) => box.append(label(x + 4, y + (h >= 16 ? 12 : h / 2 + 0.35 * letter) + 13 * number, cut(text), { class: number ? "soft" : "name", style: `font-size: ${letter}px` })));
    svg.append(box);
  }
  svg.append(drawn("polyline", { points: line, class: "live" }), label(left, height + 18, `kernel calls 0 to ${count - 1}, in order; the line: bytes in use`, { class: "soft" }));
  const operators = (value) => of.has(value.first) ? operatorsOf(of.get(value.first)) : "";
  const table = tableOf([
    { title: "value of", tip: "the kernel that writes the value, or whose scratch memory it is", of: (v) => v.kernel, show: (v) => v.kernel + (v.workspace ? " (workspace)" : ""), text: true },
    { title: "size", tip: "bytes that it takes", of: (v) => v.size, show: (v) => bytes(v.size) },
    { title: "offset", tip: "place of its first byte in the arena", of: (v) => v.offset, show: (v) => String(v.offset) },
    { title: "from call", tip: "the call of a kernel with which its life begins", of: (v) => v.first, show: (v) => String(v.first) },
    { title: "to call", tip: "the last call of a kernel that needs it", of: (v) => v.last, show: (v) => String(v.last) },
    { title: "operators", tip: "the operators of the graph that the call computes", of: operators, show: operators, text: true },
  ], arena.allocations, { order: 1, name: (v) => v.kernel, chosen: (v) => go("kernels", v.kernel) });
  return { parts: [element("h2", {}, `Arena: ${bytes(arena.bytes)}, at most ${bytes(Math.max(0, ...arena.live_bytes))} in use at a time`), svg,
    element("h2", {}, `Values: ${arena.allocations.length}`), element("div", { class: "scroll" }, table)] };
}
