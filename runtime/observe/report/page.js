"use strict";
// Draws the report from the data in the page. Text is inserted as text nodes only, so no part of a model is parsed as HTML.
(async function () {
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "onclick" || name === "oninput" || name === "onchange") made[name] = value;
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function drawn(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "onclick") made.onclick = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const hint = (text) => { const made = drawn("title"); made.textContent = text; return made; };
  function label(x, y, text, attributes) {
    const made = drawn("text", { x, y, ...attributes });
    made.textContent = text;
    return made;
  }

  async function unpacked() {
    const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  // Numbers in readable units.
  const seconds = (s) => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(3) + " ms" : (s * 1e6).toFixed(1) + " us";
  const percent = (part) => (100 * part).toFixed(1) + " %";
  function bytes(count) {
    for (const unit of ["B", "KiB", "MiB"]) {
      if (count < 1024) return (unit === "B" ? count : count.toFixed(1)) + " " + unit;
      count /= 1024;
    }
    return count.toFixed(1) + " GiB";
  }
  const giga = (rate) => (rate / 1e9).toFixed(1);

  // A color for each name, the same in all pictures.
  function color(name, light) {
    let hash = 7;
    for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
    return `hsl(${hash % 360}, 55%, ${light || 78}%)`;
  }
  const KINDS = { input: "#e4e9f0", result: "#e4e9f0", contraction: "#cfe0f8", reduction: "#fbe0c8", elementwise: "#dcefdc",
    broadcast: "#e6f1d4", injective: "#efe3f5", kernel: "#cfe0f8", group: "#cfe0f8", control: "#f6d5dc" };

  function tableOf(columns, rows, options) {
    // columns: [title, of(row) -> sort key, text(row), is text]; rows: anything.
    const body = element("tbody");
    let order = options && options.order, downwards = true, shown = rows.slice();
    function fill() {
      if (order !== undefined && order !== null) {
        const [, of] = columns[order];
        shown.sort((a, b) => (of(a) > of(b) ? 1 : of(a) < of(b) ? -1 : 0) * (downwards ? -1 : 1));
      }
      body.replaceChildren(...shown.map((row) => {
        const line = element("tr", { "data-name": options && options.name ? options.name(row) : null },
          ...columns.map(([, , text, isText]) => element("td", { class: isText ? "text" : null, title: isText ? text(row) : null }, text(row))));
        if (options && options.chosen) line.onclick = () => options.chosen(row, line);
        return line;
      }));
    }
    const head = element("tr", {}, ...columns.map(([title, , , isText], number) =>
      element("th", { class: isText ? "text" : null, scope: "col", onclick: () => {
        downwards = order === number ? !downwards : true; order = number; fill();
      } }, title)));
    fill();
    return element("table", {}, element("thead", {}, head), body);
  }

  const data = await unpacked();
  byId("title").textContent = data.title;
  const calls = data.profile ? data.profile.attributes.calls : [];
  const sections = {};

  // ---- overview
  function overview() {
    const facts = [];
    const fact = (value, name) => facts.push(element("div", { class: "fact" }, element("b", {}, value), element("span", {}, name)));
    if (data.profile) {
      const a = data.profile.attributes, inside = calls.reduce((sum, call) => sum + call.median, 0);
      fact(seconds(a.latency.median), "a call (median)");
      fact(percent(inside / a.latency.median), "of it inside of kernels");
      fact(giga(calls.reduce((sum, call) => sum + call.operations, 0) / inside) + " Gop/s", "in kernels");
      fact(percent(calls.reduce((sum, call) => sum + call.roof, 0) / inside), "of what the machine could do");
      fact(bytes(a.arena.bytes), "arena for intermediate values");
    }
    fact(String(Object.keys(data.kernels).length), "kernels");
    fact(String(data.history.reduce((sum, one) => sum + one.passes, 0)), "runs of passes");
    fact(seconds(data.timing.total), "in passes");
    const settings = element("table", { class: "settings" }, element("tbody", {}, ...Object.entries(data.settings).map(([name, value]) =>
      element("tr", {}, element("td", {}, name), element("td", { class: "text" }, String(value))))));
    const longest = calls.slice().sort((a, b) => b.median - a.median).slice(0, 10);
    const most = longest.length ? longest[0].median : 1;
    const bars = drawn("svg", { width: 690, height: 22 * longest.length + 4, role: "img", "aria-label": "The kernels that take longest" });
    longest.forEach((call, number) => {
      const y = 22 * number;
      bars.append(label(236, y + 15, call.kernel.slice(0, 36), { "text-anchor": "end" }),
        drawn("rect", { x: 242, y: y + 3, width: Math.max(1, 300 * call.median / most), height: 16, fill: color(call.kernel, 70) }),
        label(248 + 300 * call.median / most, y + 15, `${seconds(call.median)}, ${percent(call.share)}`, { class: "soft" }));
    });
    return [element("h2", {}, "In short"), element("div", { class: "facts" }, ...facts),
      data.problem ? element("p", { id: "problem" }, data.problem) : null,
      element("div", { class: "row" },
        longest.length ? element("div", {}, element("h2", {}, "Where the time goes"), bars) : null,
        element("div", { class: "grow" }, element("h2", {}, "Built with"), settings))];
  }

  // ---- passes
  function flame(spans, chosen) {
    const width = 1220, height = 22;
    let deepest = 0, at = 0;
    const whole = spans.reduce((sum, span) => sum + span.duration, 0) || 1, group = drawn("g", { class: "flame" });
    function draw(span, x, depth, room) {
      deepest = Math.max(deepest, depth);
      const w = room;
      if (w < 0.4) return;
      const box = drawn("rect", { x, y: depth * height, width: w, height: height - 1, fill: color(span.name), "data-name": span.name, onclick: () => chosen(span.name) });
      box.append(hint(`${span.name}: ${seconds(span.duration)}, of which ${seconds(span.self)} its own; ${percent(span.share)} of all`));
      group.append(box);
      if (w > 44) group.append(label(x + 4, depth * height + 15, span.name.slice(0, Math.floor((w - 6) / 6.2)), { "pointer-events": "none" }));
      let inner = x;
      for (const child of span.children) {
        const part = room * child.duration / (span.duration || 1);
        draw(child, inner, depth + 1, part);
        inner += part;
      }
    }
    for (const span of spans) { const w = width * span.duration / whole; draw(span, at, 0, w); at += w; }
    return drawn("svg", { viewBox: `0 0 ${width} ${(deepest + 1) * height}`, width: "100%", id: "flame", role: "img", "aria-label": "Time in passes" }, group);
  }

  // Myers' "An O(ND) difference algorithm" (1986) on numbers of lines; returns pairs [before, after], null for none.
  function difference(a, b) {
    let start = 0, endA = a.length, endB = b.length;
    while (start < endA && start < endB && a[start] === b[start]) start++;
    while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
    const n = endA - start, m = endB - start, pairs = [];
    for (let i = 0; i < start; i++) pairs.push([i, i]);
    const trace = [], limit = 1500;
    let v = new Map([[1, 0]]), found = -1;
    for (let d = 0; d <= Math.min(n + m, limit) && found < 0; d++) {
      trace.push(new Map(v));
      for (let k = -d; k <= d; k += 2) {
        let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) ?? 0 : (v.get(k - 1) ?? 0) + 1;
        let y = x - k;
        while (x < n && y < m && a[start + x] === b[start + y]) { x++; y++; }
        v.set(k, x);
        if (x >= n && y >= m) { found = d; break; }
      }
    }
    const middle = [];
    if (found < 0) {  // too different to be worth the time: treat all lines as replaced
      for (let i = 0; i < n; i++) middle.push([start + i, null]);
      for (let i = 0; i < m; i++) middle.push([null, start + i]);
    } else {
      let x = n, y = m;
      for (let d = found; d > 0; d--) {
        const before = trace[d], k = x - y;
        const down = k === -d || (k !== d && (before.get(k - 1) ?? -1) < (before.get(k + 1) ?? -1));
        const from = down ? k + 1 : k - 1, px = before.get(from) ?? 0, py = px - from;
        while (x > px && y > py && x > 0 && y > 0) { x--; y--; middle.push([start + x, start + y]); }
        if (down) { y--; middle.push([null, start + y]); } else { x--; middle.push([start + x, null]); }
      }
      while (x > 0 && y > 0) { x--; y--; middle.push([start + x, start + y]); }
      middle.reverse();
    }
    pairs.push(...middle);
    for (let i = 0; endA + i < a.length; i++) pairs.push([endA + i, endB + i]);
    return pairs;
  }

  function unpackVersion(runs) {
    const numbers = [];
    for (let i = 0; i < runs.length; i += 2) for (let j = 0; j < runs[i + 1]; j++) numbers.push(runs[i] + j);
    return numbers;
  }

  function sideBySide(lines, before, after) {
    // Removed and added lines of one position are placed side by side.
    const rows = [];
    let gone = [], added = [];
    const flush = () => {
      for (let i = 0; i < Math.max(gone.length, added.length); i++) rows.push([gone[i], added[i]]);
      gone = []; added = [];
    };
    for (const [a, b] of difference(before, after)) {
      if (a !== null && b !== null) { flush(); rows.push([lines[before[a]], lines[after[b]], true]); }
      else if (a !== null) gone.push(lines[before[a]]);
      else added.push(lines[after[b]]);
    }
    flush();
    const context = 4, body = element("tbody");
    const line = ([left, right, same]) => element("tr", {},
      element("td", { class: same || left === undefined ? null : "gone", title: left }, left ?? ""),
      element("td", { class: same || right === undefined ? null : "add", title: right }, right ?? ""));
    let i = 0;
    while (i < rows.length) {
      let j = i;
      while (j < rows.length && rows[j][2]) j++;
      const first = i === 0 ? i : i + context, last = j === rows.length ? j : j - context;
      if (last - first > 2) {
        for (let k = i; k < first; k++) body.append(line(rows[k]));
        const hidden = rows.slice(first, last);
        const skip = element("tr", { class: "skip" }, element("td", { colspan: 2 }, `${hidden.length} equal lines`));
        skip.onclick = () => skip.replaceWith(...hidden.map(line));
        body.append(skip);
        for (let k = last; k < j; k++) body.append(line(rows[k]));
      } else for (let k = i; k < j; k++) body.append(line(rows[k]));
      while (j < rows.length && !rows[j][2]) { body.append(line(rows[j])); j++; }
      i = j;
    }
    return element("div", { class: "diff" }, element("table", {}, body));
  }

  function passes() {
    const steps = [];
    data.history.forEach((one, segment) => one.steps.forEach((step, place) => steps.push({ ...step, segment, place })));
    const slider = element("input", { type: "range", id: "slider", min: 0, max: steps.length - 1, value: 0, "aria-label": "Pass" });
    const name = element("b", { id: "step" }), pick = element("select", { id: "function", "aria-label": "Function" });
    const view = element("div", { id: "difference" }), said = element("ul", { class: "remarks", id: "remarks" });
    let chosenFunction = null;
    function version(step, func) {
      const one = data.history[step.segment];
      for (let place = step.place; place >= 0; place--) {
        const changed = one.steps[place].changed;
        if (func in changed) return changed[func];
      }
      return null;
    }
    function show() {
      const step = steps[slider.value];
      const names = Object.keys(step.changed);
      name.textContent = `${Number(slider.value)} of ${steps.length - 1}: ${step.name}`;
      pick.replaceChildren(...names.map((one) => element("option", { value: one }, one)));
      if (!names.includes(chosenFunction)) chosenFunction = names.includes("main") ? "main" : names[0];
      if (chosenFunction !== undefined) pick.value = chosenFunction;
      said.replaceChildren(...data.remarks.filter((remark) => remark.pass_name === step.name).slice(0, 200).map((remark) =>
        element("li", {}, element("span", { class: `kind ${remark.kind}` }, remark.kind), ` ${remark.function ? "@" + remark.function + ": " : ""}${remark.message}`)));
      if (!names.length) { view.replaceChildren(); return; }
      const texts = data.history[step.segment].functions[chosenFunction];
      const earlier = step.place > 0 ? version({ segment: step.segment, place: step.place - 1 }, chosenFunction) : null;
      const before = earlier === null ? [] : unpackVersion(texts.versions[earlier]);
      const now = step.changed[chosenFunction];
      view.replaceChildren(sideBySide(texts.lines, before, now === null ? [] : unpackVersion(texts.versions[now])));
    }
    slider.oninput = show;
    pick.onchange = () => { chosenFunction = pick.value; show(); };
    const go = (by) => { slider.value = Number(slider.value) + by; show(); };
    const jump = (to) => { const place = steps.findIndex((step) => step.name === to); if (place >= 0) { slider.value = place; show(); view.scrollIntoView({ block: "nearest" }); } };
    show();
    const flat = tableOf([["pass", (row) => row.name, (row) => row.name, true], ["runs", (row) => row.runs, (row) => String(row.runs)],
      ["total", (row) => row.total, (row) => seconds(row.total)], ["self", (row) => row.self_time, (row) => seconds(row.self_time)],
      ["share", (row) => row.share, (row) => percent(row.share)], ["growth", (row) => row.growth, (row) => String(row.growth)]],
    data.timing.attributes.flat, { order: 3, chosen: (row) => jump(row.name), name: (row) => row.name });
    return [element("h2", {}, `Time in passes: ${seconds(data.timing.total)}`), flame(data.timing.spans, jump),
      element("h2", {}, "What each pass changed"),
      element("div", { class: "bar" }, element("button", { onclick: () => go(-1), "aria-label": "Pass before" }, "‹"), slider,
        element("button", { onclick: () => go(1), id: "next", "aria-label": "Next pass" }, "›"), name, pick),
      view, said, element("h2", {}, "All passes"), element("div", { class: "scroll" }, flat)];
  }

  // ---- graph
  let markOrigins = () => {};
  function picture(graph, chosen) {
    const layer = drawn("g"), nodes = [];
    for (const { path } of graph.edges) {
      let line = `M${path[0]},${path[1]}`;
      for (let i = 2; i + 5 < path.length; i += 6) line += `C${path.slice(i, i + 6).join(",")}`;
      layer.append(drawn("path", { class: "edge", d: line }));
    }
    for (const node of graph.nodes) {
      const most = Math.floor((node.w - 10) / 6.2), short = (text) => text.length > most ? text.slice(0, most - 1) + "…" : text;
      const made = drawn("g", { class: "node", "data-title": node.title, tabindex: 0 },
        drawn("rect", { x: node.x - node.w / 2, y: node.y - node.h / 2, width: node.w, height: node.h, fill: KINDS[node.kind] || "#eceff3" }),
        label(node.x, node.y + (node.note ? -3 : 4), short(node.title), { "text-anchor": "middle" }));
      if (node.note) made.append(label(node.x, node.y + 12, short(node.note), { "text-anchor": "middle", class: "soft" }));
      made.append(hint([node.label || node.title, node.note, ...node.origins, ...node.constants.map((one) => "constant " + one)].filter(Boolean).join("\n")));
      made.onclick = () => chosen(node);
      nodes.push([node, made]);
      layer.append(made);
    }
    const margin = 10, w = graph.width + 2 * margin, h = graph.height + 2 * margin;
    const svg = drawn("svg", { viewBox: `${-margin} ${-margin} ${w} ${h}`, width: w, height: h }, layer);
    const frame = element("div", { class: "picture", tabindex: 0 }, svg);
    const zoom = (factor) => { svg.setAttribute("width", svg.getAttribute("width") * factor); svg.setAttribute("height", svg.getAttribute("height") * factor); };
    const mark = (test) => {
      let first = null;
      for (const [node, made] of nodes) {
        const is = test(node);
        made.classList.toggle("marked", is);
        if (is && !first) first = made;
      }
      if (first) first.scrollIntoView({ block: "center", inline: "center" });
    };
    return { frame, zoom, mark };
  }

  function graphs() {
    const said = element("p", { id: "chosen", class: "soft" }, "Click a kernel to mark the operators that it is made of.");
    const before = picture(data.graph.before, (node) => {
      if (node.label) after.forEach((one) => one.mark((other) => other.labels && other.labels.includes(node.label)));
      said.replaceChildren(`${node.title} ${node.label ? "(" + node.label + ")" : ""}: ${node.note}`);
    });
    const after = data.graph.after.map((graph) => picture(graph, (node) => {
      after.forEach((one) => one.mark((other) => other === node));
      if (!node.kernel) { said.replaceChildren(`${node.title}: ${node.note}`); return; }
      markOrigins(node.labels || []);
      said.replaceChildren(`${node.kernel} computes ${node.origins.join(", ")} `,
        element("button", { onclick: () => showKernel(node.kernel) }, "Show the kernel"));
    }));
    markOrigins = (labels) => before.mark((node) => node.label !== null && labels.includes(node.label));
    const zoomBoth = (factor) => [before, ...after].forEach((one) => one.zoom(factor));
    const left = data.graph.before.left_out ? ` (${data.graph.before.left_out} more are not drawn)` : "";
    return [element("div", { class: "bar" }, said, element("button", { onclick: () => zoomBoth(1.25) }, "larger"), element("button", { onclick: () => zoomBoth(0.8), id: "smaller" }, "smaller")),
      element("div", { class: "row" },
        element("div", { class: "grow", id: "before" }, element("h3", {}, `As given: ${data.graph.before.nodes.length} nodes${left}`), before.frame),
        element("div", { class: "grow", id: "after" }, element("h3", {}, `As kernels: ${data.graph.after.reduce((sum, one) => sum + one.nodes.length, 0)} nodes`), ...after.map((one) => one.frame)))];
  }

  // ---- kernels
  let showKernel = () => {};
  function roofline() {
    const machine = data.profile.attributes.machine, width = 560, height = 330, left = 52, bottom = 290;
    const points = calls.filter((call) => call.operations && call.bytes).map((call) => ({ call, x: call.operations / call.bytes, y: call.operations_per_second }));
    const top = machine.float32_operations_per_second, log = Math.log10;
    const xs = points.map((point) => point.x).concat(0.1, 100), ys = points.map((point) => point.y).concat(top * 1.4, top / 300);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)].map(log);
    const px = (x) => left + (log(x) - x0) / (x1 - x0) * (width - left - 12), py = (y) => bottom - (log(y) - y0) / (y1 - y0) * (bottom - 12);
    const svg = drawn("svg", { width, height, id: "roofline", role: "img", "aria-label": "Roofline" });
    for (let e = Math.ceil(x0); e <= x1; e++) svg.append(drawn("line", { x1: px(10 ** e), x2: px(10 ** e), y1: 12, y2: bottom, stroke: "#e6eaf0" }), label(px(10 ** e), bottom + 15, String(10 ** e), { "text-anchor": "middle", class: "soft" }));
    for (let e = Math.ceil(y0); e <= y1; e++) svg.append(drawn("line", { x1: left, x2: width - 12, y1: py(10 ** e), y2: py(10 ** e), stroke: "#e6eaf0" }), label(left - 6, py(10 ** e) + 4, 10 ** e >= 1e9 ? 10 ** (e - 9) + "" : (10 ** (e - 9)).toPrecision(1), { "text-anchor": "end", class: "soft" }));
    svg.append(label(width / 2, height - 6, "operations for each byte", { "text-anchor": "middle", class: "soft" }), label(4, 10, "Gop/s", { class: "soft" }));
    const roof = (rate, name, dash) => {
      const bend = top / rate, from = 10 ** x0, to = 10 ** x1;
      const line = [[from, Math.min(top, rate * from)], ...(bend > from && bend < to ? [[bend, top]] : []), [to, Math.min(top, rate * to)]];
      svg.append(drawn("polyline", { points: line.map(([x, y]) => `${px(x)},${py(Math.max(y, 10 ** y0))}`).join(" "), fill: "none", stroke: "#52606f", "stroke-dasharray": dash }));
      const y = rate * from * 1.5;
      if (y > 10 ** y0 && y < top) svg.append(label(px(from * 1.5) + 3, py(y) - 4, name, { class: "soft" }));
    };
    const rates = machine.bytes_per_second;
    roof(rates.memory, "memory", "none"); roof(rates.L3, "L3", "5 3"); roof(rates.L2, "L2", "2 3");
    for (const { call, x, y } of points) {
      const dot = drawn("circle", { cx: px(x), cy: py(y), r: 3 + 12 * Math.sqrt(call.share), fill: color(call.kernel, 60), "fill-opacity": 0.75, stroke: "#fff", onclick: () => showKernel(call.kernel), "data-name": call.kernel, style: "cursor:pointer" });
      dot.append(hint(`${call.kernel}: ${giga(y)} Gop/s, ${x.toFixed(2)} operations for each byte, ${percent(call.of_roof)} of its roof, ${percent(call.share)} of the time`));
      svg.append(dot);
    }
    return svg;
  }

  const PANES = [["scheduled", "Scheduled loops"], ["numba", "numba source"], ["llvm", "LLVM IR"], ["assembly", "Assembly"], ["tensor", "Loops before the schedule"], ["lowered", "Loops after all passes"]];
  function kernels() {
    const detail = element("div", { id: "detail" }), facts = element("div"), open = new Set(["scheduled", "numba", "llvm", "assembly"]);
    const rows = calls.length ? calls.map((call, number) => ({ ...call, number })) : Object.keys(data.kernels).map((kernel, number) => ({ kernel, number, origins: [] }));
    const operators = (call) => call.origins.map((origin) => origin.operator + (origin.label ? " " + origin.label : "")).join(", ");
    const number = (title, of, text) => [title, of, text];
    const columns = [["kernel", (c) => c.kernel, (c) => c.kernel, true]];
    if (calls.length) columns.push(number("min", (c) => c.minimum, (c) => seconds(c.minimum)), number("median", (c) => c.median, (c) => seconds(c.median)),
      number("share", (c) => c.share, (c) => percent(c.share)), number("Gop/s", (c) => c.operations_per_second, (c) => c.operations ? giga(c.operations_per_second) : "-"),
      number("GB/s", (c) => c.bytes_per_second, (c) => giga(c.bytes_per_second)), number("of roof", (c) => c.of_roof, (c) => c.roof ? `${(100 * c.of_roof).toFixed(0)} % ${c.bound}` : "-"),
      number("vector", (c) => c.vector_bits, (c) => c.vector_bits ? String(c.vector_bits) : "-"), number("threads", (c) => c.threads, (c) => String(c.threads)),
      number("imbalance", (c) => c.imbalance ?? 0, (c) => c.imbalance === null ? "-" : c.imbalance.toFixed(2)));
    columns.push(["operators", operators, operators, true]);
    const table = tableOf(columns, rows, { order: calls.length ? 2 : null, name: (row) => row.kernel, chosen: (row) => show(row.kernel) });
    function show(name) {
      const texts = data.kernels[name] || {}, mine = calls.filter((call) => call.kernel === name);
      for (const line of table.querySelectorAll("tbody tr")) line.classList.toggle("selected", line.dataset.name === name);
      const there = PANES.filter(([key]) => texts[key]);
      const buttons = there.map(([key, title]) => element("button", { "aria-pressed": String(open.has(key)), "data-pane": key, onclick: () => {
        if (open.has(key)) open.delete(key); else open.add(key);
        show(name);
      } }, title));
      const made = mine.map((call) => operators(call)).filter(Boolean);
      const said = [];
      if (mine.length && calls.length) {
        const sum = (of) => mine.reduce((all, call) => all + of(call), 0), first = mine[0];
        said.push(`${mine.length === 1 ? "One call" : mine.length + " calls"}, ${seconds(sum((c) => c.median))} in all, ${percent(sum((c) => c.share))} of the time.`);
        said.push(`${(sum((c) => c.operations) / 1e6).toFixed(3)} million operations on ${first.dtype}, ${bytes(sum((c) => c.bytes))} read and written; its data fit into ${first.level === "memory" ? "no cache" : first.level}.`);
        if (first.roof) said.push(`The machine could do it in ${seconds(sum((c) => c.roof))} at best, limited by ${first.bound}: ${percent(sum((c) => c.roof) / sum((c) => c.median))} of that is reached.`);
        said.push(`Vectors of ${first.vector_bits || "unknown"} bits, ${first.threads} ${first.threads === 1 ? "thread" : "threads"}${first.imbalance === null ? "" : `, the busiest ${first.imbalance.toFixed(2)} times as long as the mean`}.`);
      }
      const why = data.explained[name];
      if (why) said.push(`Why: ${why.sentence}.${why.changes.length ? " To change it: " + why.changes.join("; ") + "." : ""}`);
      facts.replaceChildren(element("h2", { id: "kernel" }, `@${name}`), ...said.map((line) => element("p", {}, line)),
        element("h3", {}, "Operators of the graph"), element("ul", { id: "operators", class: "remarks" }, ...[...new Set(made)].slice(0, 12).map((line) => element("li", {}, line))),
        element("button", { id: "in-graph", onclick: () => {
          choose("graph");
          markOrigins(mine.flatMap((call) => call.origins.map((origin) => origin.label)).filter((one) => one !== null));
        } }, "Mark them in the graph"));
      detail.replaceChildren(element("div", { class: "bar" }, ...buttons),
        element("div", { class: "panes" }, ...there.filter(([key]) => open.has(key)).map(([key, title]) =>
          element("div", { class: "pane", "data-pane": key }, element("h3", {}, title), element("pre", {}, texts[key])))));
    }
    showKernel = (name) => { choose("kernels"); show(name); facts.scrollIntoView({ block: "nearest" }); };
    if (rows.length) show(rows.slice().sort((a, b) => (b.median ?? 0) - (a.median ?? 0))[0].kernel);
    return [element("h2", {}, `Calls of kernels: ${rows.length}`), element("div", { class: "scroll" }, table),
      element("div", { class: "row" }, calls.length ? element("div", {}, element("h2", {}, "Roofline"), roofline()) : null,
        element("div", { class: "grow" }, facts)), detail];
  }

  // ---- memory
  function memory() {
    const arena = data.profile.attributes.arena, count = Math.max(1, arena.live_bytes.length);
    const width = 1220, height = 430, left = 66, size = Math.max(1, arena.bytes);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height + 24}`, width: "100%", id: "arena", role: "img", "aria-label": "Memory plan" });
    const px = (call) => left + call / count * (width - left - 6), py = (place) => height - place / size * (height - 14);
    for (const part of [0, 0.25, 0.5, 0.75, 1]) svg.append(drawn("line", { x1: left, x2: width - 6, y1: py(part * size), y2: py(part * size), stroke: "#e6eaf0" }), label(left - 6, py(part * size) + 4, bytes(Math.round(part * size)), { "text-anchor": "end", class: "soft" }));
    for (const value of arena.allocations) {
      const box = drawn("rect", { x: px(value.first), y: py(value.offset + value.size), width: Math.max(1, px(value.last + 1) - px(value.first) - 0.6), height: Math.max(1, py(value.offset) - py(value.offset + value.size) - 0.6), fill: color(value.kernel), "fill-opacity": value.workspace ? 0.45 : 1, stroke: "#7d8896", "stroke-width": 0.4, "data-name": value.kernel, style: "cursor:pointer", onclick: () => showKernel(value.kernel) });
      box.append(hint(`${value.kernel}${value.workspace ? " (workspace)" : ""}: ${bytes(value.size)} at ${value.offset}, from call ${value.first} to ${value.last}`));
      svg.append(box);
    }
    const line = arena.live_bytes.map((live, call) => `${px(call)},${py(live)} ${px(call + 1)},${py(live)}`).join(" ");
    svg.append(drawn("polyline", { points: line, fill: "none", stroke: "#a33a00", "stroke-width": 1.4 }), label(left, height + 18, `kernel calls 0 to ${count - 1}, in order; the line: bytes in use`, { class: "soft" }));
    return [element("h2", {}, `Arena: ${bytes(arena.bytes)}, at most ${bytes(Math.max(0, ...arena.live_bytes))} in use at a time`), svg];
  }

  // ---- the tabs; each is drawn when it is first shown
  const TABS = [["overview", "Overview", overview], ["passes", "Passes", passes], ["graph", "Graph", graphs], ["kernels", "Kernels", kernels]];
  if (data.profile) TABS.push(["memory", "Memory", memory]);
  function choose(name) {
    for (const [key, , make] of TABS) {
      const is = key === name;
      if (is && !sections[key].childElementCount) {
        sections[key].hidden = false;
        sections[key].append(...make().filter((one) => one !== null));
      }
      sections[key].hidden = !is;
      byId("tab-" + key).setAttribute("aria-selected", String(is));
    }
    history.replaceState(null, "", "#" + name);
  }
  byId("loading").remove();
  for (const [key, title] of TABS) {
    sections[key] = element("section", { id: key, role: "tabpanel", "aria-labelledby": "tab-" + key, hidden: true });
    byId("main").append(sections[key]);
    byId("tabs").append(element("button", { id: "tab-" + key, role: "tab", "aria-selected": "false", onclick: () => choose(key) }, title));
  }
  const wanted = location.hash.slice(1);
  for (const key of ["graph", "kernels"]) if (wanted !== key) { /* links between the tabs need both */ choose(key); }
  choose(TABS.some(([key]) => key === wanted) ? wanted : "overview");
  document.body.dataset.ready = "yes";
})().catch((error) => {
  const said = document.createElement("p");
  said.id = "error";
  said.textContent = "The report cannot be shown: " + error.message;
  document.getElementById("main").replaceChildren(said);
  throw error;
});
