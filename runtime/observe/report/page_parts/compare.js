// Two builds side by side: their settings, times, passes and kernels.
const letterOf = (number) => String.fromCharCode(65 + number);
const chosenPair = [0, 1];

// A pair of numbers, and how the second compares with the first.
function ratio(a, b) {
  if (!a || !b) return element("span", { class: "soft" }, "-");
  return element("span", { class: b < a * 0.98 ? "better" : b > a * 1.02 ? "worse" : "soft" }, times(b / a));
}

function settingsRows(one, two) {
  const names = [...new Set([...Object.keys(one.settings), ...Object.keys(two.settings)])];
  return names.map((name) => ({ name, set: true, a: String(one.settings[name] ?? "-"), b: String(two.settings[name] ?? "-") }));
}

// Kernels belong together that compute an operator in common: fusion may have divided the operators differently.
function kernelGroups(one, two) {
  const nodes = [], at = new Map(), group = [];
  const root = (n) => { while (group[n] !== n) n = group[n]; return n; };
  [one, two].forEach((build, side) => (build.profile ? build.profile.attributes.calls : []).forEach((call) => {
    const number = nodes.length;
    nodes.push({ side, call });
    group.push(number);
    for (const { operator, label: name } of call.origins) {
      const key = name ?? operator;
      if (at.has(key)) group[root(number)] = root(at.get(key));
      else at.set(key, number);
    }
  }));
  const found = new Map();
  nodes.forEach(({ side, call }, number) => {
    const key = root(number);
    if (!found.has(key)) found.set(key, [[], []]);
    found.get(key)[side].push(call);
  });
  return [...found.values()].map(([a, b]) => ({ a, b, timeA: sum(a, (c) => c.median), timeB: sum(b, (c) => c.median),
    operators: [...new Set((a.length ? a : b).flatMap((call) => call.origins.map((origin) => origin.operator)))].join(", ") || "copy" }));
}

function passRows(one, two) {
  const rows = new Map();
  [one, two].forEach((build, side) => build.timing.attributes.flat.forEach((row) => {
    if (!rows.has(row.name)) rows.set(row.name, { name: row.name, sides: [null, null] });
    rows.get(row.name).sides[side] = row;
  }));
  return [...rows.values()].map(({ name, sides: [a, b] }) => ({ name, a, b, timeA: a ? a.self_time : 0, timeB: b ? b.self_time : 0 }));
}

function compare() {
  const view = element("div");
  const choices = (side) => element("select", { "aria-label": `Build ${side ? "on the right" : "on the left"}`, onchange: (event) => { chosenPair[side] = Number(event.target.value); fill(); } },
    ...contents.builds.map((_, number) => element("option", { value: number, selected: number === chosenPair[side] }, letterOf(number))));
  function fill() {
    const [left, right] = chosenPair, one = contents.builds[left], two = contents.builds[right], a = letterOf(left), b = letterOf(right);
    const pair = (what, of, show, unit) => [
      { title: `${what} ${a}`, tip: `${unit} in build ${a}`, of: (row) => of(row)[0], show: (row) => show(row, 0) },
      { title: `${what} ${b}`, tip: `${unit} in build ${b}`, of: (row) => of(row)[1], show: (row) => show(row, 1) }];
    const time = (row, side) => { const value = side ? row.timeB : row.timeA; return value ? seconds(value) : "-"; };
    const compared = { title: `${b} / ${a}`, tip: `time in build ${b} as a multiple of that in build ${a}`, of: (row) => row.timeA && row.timeB ? row.timeB / row.timeA : 0, show: (row) => ratio(row.timeA, row.timeB) };
    const gap = { title: "difference", tip: `seconds in build ${b} minus those in build ${a}`, of: (row) => Math.abs(row.timeB - row.timeA), show: (row) => (row.timeB < row.timeA ? "-" : "+") + seconds(Math.abs(row.timeB - row.timeA)) };
    const names = (own, number) => element("span", {}, ...[...new Set(own.map((call) => call.kernel))].flatMap((kernel, place) =>
      [place ? ", " : "", element("button", { class: "plain", onclick: (event) => { event.stopPropagation(); go("kernels", kernel, number); } }, kernel)]));
    const settings = tableOf([
      { title: "setting", tip: "a setting of the build, or a number about it", of: (row) => row.name, show: (row) => row.name, text: true },
      { title: a, tip: `its value in build ${a}`, of: (row) => row.a, show: (row) => row.a, text: true },
      { title: b, tip: `its value in build ${b}`, of: (row) => row.b, show: (row) => row.b, text: true }],
    [...settingsRows(one, two), ...factRows(one, two)], { mark: (row) => row.set && row.a !== row.b, name: (row) => row.name });
    const groups = kernelGroups(one, two);
    const kernelTable = tableOf([
      { title: "operators", tip: "the operators of the graph that these kernels compute", of: (row) => row.operators, show: (row) => row.operators, text: true },
      { title: `kernels ${a}`, tip: `the kernels that compute them in build ${a}`, of: (row) => row.a.map((call) => call.kernel).join(), show: (row) => names(row.a, left), text: true },
      { title: `kernels ${b}`, tip: `the kernels that compute them in build ${b}`, of: (row) => row.b.map((call) => call.kernel).join(), show: (row) => names(row.b, right), text: true },
      ...pair("time", (row) => [row.timeA, row.timeB], time, "median time of these kernels in a call of the model"), compared, gap],
    groups, { order: 6, name: (row) => row.operators });
    const passTable = tableOf([
      { title: "pass", tip: "name of the pass", of: (row) => row.name, show: (row) => row.name, text: true },
      ...pair("runs", (row) => [row.a ? row.a.runs : 0, row.b ? row.b.runs : 0], (row, side) => { const own = side ? row.b : row.a; return own ? String(own.runs) : "-"; }, "runs of the pass"),
      ...pair("self", (row) => [row.timeA, row.timeB], time, "its own seconds, without the passes that it runs,"), compared, gap],
    passRows(one, two), { order: 6, name: (row) => row.name, mark: (row) => !row.a || !row.b });
    view.replaceChildren(element("div", { class: "scroll tall", id: "compared-settings" }, settings), timesOf(one, two, a, b),
      groups.length ? element("h2", {}, `Kernels: ${Object.keys(one.kernels).length} and ${Object.keys(two.kernels).length}`) : null,
      groups.length ? element("div", { class: "scroll tall", id: "compared-kernels" }, kernelTable) : null,
      element("h2", {}, "Passes: rows that only one of them ran are marked"), element("div", { class: "scroll tall", id: "compared-passes" }, passTable));
  }
  fill();
  return { parts: [element("div", { class: "bar" }, element("h2", {}, "Builds side by side"), contents.builds.length > 2 ? choices(0) : null, contents.builds.length > 2 ? choices(1) : null), view] };
}

function factRows(one, two) {
  const facts = [factsOf(one), factsOf(two)], names = [...new Set(facts.flat().map(([, name]) => name))];
  const value = (side, name) => (facts[side].find(([, other]) => other === name) || ["-"])[0];
  return names.map((name) => ({ name, a: value(0, name), b: value(1, name) }));
}

// Each build's call as a bar of its kernels, on one scale.
function timesOf(one, two, a, b) {
  const builds = [[one, a], [two, b]].filter(([build]) => build.profile);
  if (!builds.length) return null;
  // Kernels are timed in other calls than the model, which may have been faster.
  const lengthOf = ({ latency, calls: own }) => Math.max(latency.median, sum(own, (call) => call.median));
  const longest = Math.max(...builds.map(([build]) => lengthOf(build.profile.attributes))), width = Math.max(600, byId("main").clientWidth - 40), room = width - 150;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${34 * builds.length}`, width: "100%", id: "compared-times", role: "img", "aria-label": "Time of a call in each build" });
  builds.forEach(([build, name], row) => {
    let x = 24;
    svg.append(label(4, 34 * row + 20, name));
    for (const call of build.profile.attributes.calls.slice().sort((p, q) => q.median - p.median)) {
      const w = room * call.median / longest, box = drawn("g", { class: "value", "data-name": call.kernel }, hint(`${call.kernel}: ${seconds(call.median)}\n${operatorsOf(call)}`),
        drawn("rect", { x, y: 34 * row + 3, width: Math.max(0.5, w), height: 26, style: color(call.origins.length ? call.origins[0].operator : call.kernel) }));
      if (w > 50) box.append(label(x + 4, 34 * row + 20, call.kernel.slice(0, Math.floor((w - 6) / 6.4))));
      svg.append(box);
      x += w;
    }
    svg.append(label(Math.max(x, 24 + room * build.profile.attributes.latency.median / longest) + 6, 34 * row + 20, seconds(build.profile.attributes.latency.median), { class: "soft" }));
  });
  return element("div", {}, element("h2", {}, "Time of a call, by kernel"), svg);
}
