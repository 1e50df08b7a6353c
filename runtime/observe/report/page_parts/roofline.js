// Draw the roofline: the rate of each call beside what the machine could do.
function roofline() {
  const machine = data.profile.attributes.machine, width = 560, height = 330, left = 52, bottom = 290;
  const points = calls.filter((call) => call.operations && call.bytes).map((call) => ({ call, x: call.operations / call.bytes, y: call.operations_per_second }));
  const top = machine.float32_operations_per_second, log = Math.log10;
  const xs = points.map((point) => point.x).concat(0.1, 100), ys = points.map((point) => point.y).concat(top * 1.4, top / 300);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)].map(log);
  const px = (x) => left + (log(x) - x0) / (x1 - x0) * (width - left - 12), py = (y) => bottom - (log(y) - y0) / (y1 - y0) * (bottom - 12);
  const svg = drawn("svg", { width, height, id: "roofline", role: "img", "aria-label": "Roofline" });
  for (let e = Math.ceil(x0); e <= x1; e++) svg.append(drawn("line", { x1: px(10 ** e), x2: px(10 ** e), y1: 12, y2: bottom, class: "grid" }), label(px(10 ** e), bottom + 15, String(10 ** e), { "text-anchor": "middle", class: "soft" }));
  for (let e = Math.ceil(y0); e <= y1; e++) svg.append(drawn("line", { x1: left, x2: width - 12, y1: py(10 ** e), y2: py(10 ** e), class: "grid" }), label(left - 6, py(10 ** e) + 4, 10 ** e >= 1e9 ? 10 ** (e - 9) + "" : (10 ** (e - 9)).toPrecision(1), { "text-anchor": "end", class: "soft" }));
  svg.append(label(width / 2, height - 6, "operations for each byte", { "text-anchor": "middle", class: "soft" }), label(4, 10, "Gop/s", { class: "soft" }));
  const roof = (rate, name, dash) => {
    const bend = top / rate, from = 10 ** x0, to = 10 ** x1;
    const line = [[from, Math.min(top, rate * from)], ...(bend > from && bend < to ? [[bend, top]] : []), [to, Math.min(top, rate * to)]];
    svg.append(drawn("polyline", { points: line.map(([x, y]) => `${px(x)},${py(Math.max(y, 10 ** y0))}`).join(" "), class: "roof", "stroke-dasharray": dash }));
    const y = rate * from * 1.5;
    if (y > 10 ** y0 && y < top) svg.append(label(px(from * 1.5) + 3, py(y) - 4, name, { class: "soft" }));
  };
  const rates = machine.bytes_per_second;
  roof(rates.memory, "memory", "none"); roof(rates.L3, "L3", "5 3"); roof(rates.L2, "L2", "2 3");
  for (const { call, x, y } of points) {
    const dot = drawn("circle", { cx: px(x), cy: py(y), r: 3 + 12 * Math.sqrt(call.share), class: "dot", style: color(call.kernel), onclick: () => go("kernels", call.kernel), "data-name": call.kernel });
    dot.append(hint(`${call.kernel}: ${giga(y)} Gop/s, ${x.toFixed(2)} operations for each byte, ${percent(call.of_roof)} of its roof, ${percent(call.share)} of the time`));
    svg.append(dot);
  }
  return svg;
}
