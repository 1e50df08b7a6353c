// The first tab: the build in a few numbers.
function factsOf(build) {
  const facts = [];
  if (build.profile) {
    const a = build.profile.attributes, own = a.calls, inside = sum(own, (call) => call.median) || 1;
    facts.push([seconds(a.latency.median), "a call (median)", a.latency.median],
      [percent(inside / a.latency.median), "of it inside of kernels"],
      [giga(sum(own, (call) => call.operations) / inside) + " Gop/s", "in kernels"],
      [percent(sum(own, (call) => call.roof) / inside), "of what the machine could do"],
      [bytes(a.arena.bytes), "arena for intermediate values"]);
    const sizes = Object.entries(a.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
    if (sizes) facts.push([sizes, "in the profiled calls"]);
  }
  facts.push([String(Object.keys(build.kernels).length), "kernels"],
    [String(sum(build.history, (one) => one.passes)), "runs of passes"],
    [seconds(build.timing.total), "in passes"]);
  return facts;
}

function overview() {
  const facts = factsOf(data).map(([value, name]) => element("div", { class: "fact" }, element("b", {}, value), element("span", {}, name)));
  const settings = element("table", { class: "settings" }, element("tbody", {}, ...Object.entries(data.settings).map(([name, value]) =>
    element("tr", {}, element("td", {}, name), element("td", { class: "text" }, String(value))))));
  const longest = calls.slice().sort((a, b) => b.median - a.median).slice(0, 10);
  const most = longest.length ? longest[0].median : 1;
  const bars = drawn("svg", { width: 690, height: 22 * longest.length + 4, role: "img", "aria-label": "The kernels that take longest" });
  longest.forEach((call, number) => {
    const y = 22 * number, length = Math.max(1, 300 * call.median / most);
    bars.append(drawn("g", { class: "link", onclick: () => go("kernels", call.kernel) }, hint(operatorsOf(call)),
      label(236, y + 15, call.kernel.slice(0, 36), { "text-anchor": "end" }),
      drawn("rect", { x: 242, y: y + 3, width: length, height: 16, rx: 2, style: color(call.kernel) }),
      label(248 + length, y + 15, `${seconds(call.median)}, ${percent(call.share)}`, { class: "soft" })));
  });
  return { parts: [element("h2", {}, "In short"), element("div", { class: "facts" }, ...facts),
    data.problem ? element("p", { id: "problem" }, data.problem) : null,
    element("div", { class: "row" },
      longest.length ? element("div", {}, element("h2", {}, "Where the time goes"), bars) : null,
      element("div", { class: "grow" }, element("h2", {}, "Built with"), settings))] };
}
