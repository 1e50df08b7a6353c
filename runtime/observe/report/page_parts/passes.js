// The tab of the passes: their times, and what each of them changed.
function flame(spans, chosen) {
  const width = Math.max(600, byId("main").clientWidth - 40), height = 22;
  let deepest = 0, at = 0;
  const whole = sum(spans, (span) => span.duration) || 1, group = drawn("g", { class: "flame" });
  function draw(span, x, depth, room) {
    if (room < 0.4) return;
    deepest = Math.max(deepest, depth);
    const box = drawn("rect", { x, y: depth * height, width: room, height: height - 1, style: color(span.name), "data-name": span.name, onclick: () => chosen(span.name) },
      hint(`${span.name}: ${seconds(span.duration)}, of which ${seconds(span.self)} its own; ${percent(span.share)} of all`));
    group.append(box);
    if (room > 44) group.append(label(x + 4, depth * height + 15, span.name.slice(0, Math.floor((room - 6) / 6.4)), { "pointer-events": "none" }));
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

const PASS_COLUMNS = [
  { title: "pass", tip: "name of the pass", of: (row) => row.name, show: (row) => row.name, text: true },
  { title: "runs", tip: "how many times it ran", of: (row) => row.runs, show: (row) => String(row.runs) },
  { title: "total", tip: "seconds in all its runs, with the passes that it runs itself", of: (row) => row.total, show: (row) => seconds(row.total) },
  { title: "self", tip: "seconds in all its runs, without the passes that it runs itself", of: (row) => row.self_time, show: (row) => seconds(row.self_time) },
  { title: "share", tip: "its own seconds as a part of those of all passes", of: (row) => row.share, show: (row) => percent(row.share) },
  { title: "growth", tip: "statements and expressions that the module has more after it than before", of: (row) => row.growth, show: (row) => String(row.growth) },
];

function passes() {
  const steps = [];
  data.history.forEach((one, segment) => one.steps.forEach((step, place) => steps.push({ ...step, segment, place })));
  const slider = element("input", { type: "range", id: "slider", min: 0, max: steps.length - 1, value: 0, "aria-label": "Pass", oninput: () => at(slider.value) });
  const name = element("b", { id: "step" });
  const pick = element("select", { id: "function", "aria-label": "Function", onchange: () => { chosenFunction = pick.value; show(); } });
  const view = element("div", { id: "difference" }), said = element("div");
  let chosenFunction = null;
  function version(segment, place, func) {
    for (; place >= 0; place--) {
      const changed = data.history[segment].steps[place].changed;
      if (func in changed) return changed[func];
    }
    return null;
  }
  function show() {
    const step = steps[slider.value], names = Object.keys(step.changed);
    name.textContent = `${Number(slider.value)} of ${steps.length - 1}: ${step.name}`;
    pick.replaceChildren(...names.map((one) => element("option", { value: one }, one)));
    if (!names.includes(chosenFunction)) chosenFunction = names.includes("main") ? "main" : names[0];
    if (chosenFunction !== undefined) pick.value = chosenFunction;
    said.replaceChildren(remarksOf(data.remarks.filter((remark) => remark.pass_name === step.name), "remarks"));
    if (!names.length) { view.replaceChildren(); return; }
    const texts = data.history[step.segment].functions[chosenFunction];
    const earlier = step.place > 0 ? version(step.segment, step.place - 1, chosenFunction) : null;
    const now = step.changed[chosenFunction];
    view.replaceChildren(sideBySide(texts.lines, earlier === null ? [] : unpackVersion(texts.versions[earlier]), now === null ? [] : unpackVersion(texts.versions[now])));
  }
  const at = (place) => { slider.value = place; show(); settle("passes", slider.value); };
  const jump = (to) => { const place = steps.findIndex((step) => step.name === to); if (place >= 0) go("passes", place); };
  const flat = tableOf(PASS_COLUMNS, data.timing.attributes.flat, { order: 3, chosen: (row) => jump(row.name), name: (row) => row.name });
  show();
  return {
    parts: [element("h2", {}, `Time in passes: ${seconds(data.timing.total)}`), flame(data.timing.spans, jump),
      element("h2", {}, "What each pass changed"),
      element("div", { class: "bar" }, element("button", { onclick: () => at(Number(slider.value) - 1), "aria-label": "Pass before" }, "‹"), slider,
        element("button", { onclick: () => at(Number(slider.value) + 1), id: "next", "aria-label": "Next pass" }, "›"), name, pick),
      view, said, element("h2", {}, "All passes"), element("div", { class: "scroll" }, flat)],
    show: (item) => {
      if (item === undefined) return;
      const place = /^\d+$/.test(item) ? Number(item) : steps.findIndex((step) => step.name === item);
      if (place >= 0 && place < steps.length) { slider.value = place; show(); view.scrollIntoView({ block: "nearest" }); }
    },
  };
}
