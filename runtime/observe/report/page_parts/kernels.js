// The tab of the kernels: a table of calls, the roofline, and all about the chosen kernel.
const CALL_COLUMNS = [
  { title: "kernel", tip: "the function that is called", of: (c) => c.kernel, show: (c) => c.kernel, text: true },
  { title: "min", tip: "least time of the call in a run of the model", of: (c) => c.minimum, show: (c) => seconds(c.minimum) },
  { title: "median", tip: "median time of the call in a run of the model", of: (c) => c.median, show: (c) => seconds(c.median) },
  { title: "share", tip: "median as a part of the sum over all calls", of: (c) => c.share, show: (c) => percent(c.share) },
  { title: "Gop/s", tip: "billions of arithmetic operations a second, by the median", of: (c) => c.operations_per_second, show: (c) => c.operations ? giga(c.operations_per_second) : "-" },
  { title: "GB/s", tip: "billions of bytes a second that it must read and write, by the median", of: (c) => c.bytes_per_second, show: (c) => giga(c.bytes_per_second) },
  { title: "of roof", tip: "what it reaches of the machine's peak rate, and the rate that limits it", of: (c) => c.of_roof, show: (c) => c.roof ? `${(100 * c.of_roof).toFixed(0)} % ${c.bound}` : "-" },
  { title: "vector", tip: "bits of the vectors that do most of its work", of: (c) => c.vector_bits, show: (c) => c.vector_bits ? String(c.vector_bits) : "-" },
  { title: "threads", tip: "median number of threads that worked on it", of: (c) => c.threads ?? 0, show: (c) => c.threads === null ? "-" : String(c.threads) },
  { title: "imbalance", tip: "time of the busiest thread as a multiple of the mean over all threads", of: (c) => c.imbalance ?? 0, show: (c) => c.imbalance === null ? "-" : c.imbalance.toFixed(2) },
  { title: "operators", tip: "the operators of the graph that the call computes", of: operatorsOf, show: operatorsOf, text: true },
];

function kernels() {
  const detail = element("div", { id: "detail" }), facts = element("div");
  const rows = calls.length ? calls : Object.keys(data.kernels).map((kernel) => ({ kernel, origins: [] }));
  const columns = calls.length ? CALL_COLUMNS : [CALL_COLUMNS[0], CALL_COLUMNS[CALL_COLUMNS.length - 1]];
  const table = tableOf(columns, rows, { order: calls.length ? 2 : null, name: (row) => row.kernel, chosen: (row) => go("kernels", row.kernel) });
  const first = rows.length ? rows.slice().sort((a, b) => (b.median ?? 0) - (a.median ?? 0))[0].kernel : undefined;

  function sentences(mine, why) {
    const said = [];
    if (mine.length) {
      const one = mine[0], all = (of) => sum(mine, of);
      said.push(`${mine.length === 1 ? "One call" : mine.length + " calls"}, ${seconds(all((c) => c.median))} in all, ${percent(all((c) => c.share))} of the time.`,
        `${(all((c) => c.operations) / 1e6).toFixed(3)} million operations on ${one.dtype}, ${bytes(all((c) => c.bytes))} read and written; its data fit into ${one.level === "memory" ? "no cache" : one.level}.`);
      if (one.roof) said.push(`The machine could do it in ${seconds(all((c) => c.roof))} at best, limited by ${one.bound}: ${percent(all((c) => c.roof) / all((c) => c.median))} of that is reached.`);
      said.push(`Vectors of ${one.vector_bits || "unknown"} bits, ${one.threads ?? "an unknown number of"} ${one.threads === 1 ? "thread" : "threads"}${one.imbalance === null ? "" : `, the busiest ${one.imbalance.toFixed(2)} times as long as the mean`}.`);
    }
    if (why) said.push(`Why: ${why.sentence}.${why.changes.length ? " To change it: " + why.changes.join("; ") + "." : ""}`);
    return said.map((line) => element("p", {}, line));
  }

  function show(item) {
    const name = item === undefined || !(item in data.kernels) ? first : item;
    if (name === undefined) return;
    for (const line of table.querySelectorAll("tbody tr")) line.classList.toggle("selected", line.dataset.name === name);
    const mine = calls.filter((call) => call.kernel === name), made = [...new Set(mine.map(operatorsOf))].filter(Boolean);
    const remarks = data.remarks.filter((remark) => remark.function === name);
    const operators = mine.length ? mine[0].origins.map((origin) => origin.operator + (origin.label ? "  # " + origin.label : "")) : [];
    facts.replaceChildren(element("h2", { id: "kernel" }, `@${name}`), ...sentences(mine, data.explained[name]),
      element("h3", {}, "Operators of the graph"), element("ul", { id: "operators", class: "remarks" }, ...made.slice(0, 12).map((line) => element("li", {}, line))),
      element("button", { id: "in-graph", onclick: () => go("graph", "@" + name) }, "Mark them in the graph"),
      remarks.length ? element("h3", {}, "Remarks of the passes") : null, remarks.length ? remarksOf(remarks, "kernel-remarks", name) : null);
    detail.replaceChildren(...codeOf(name, operators));
    if (item !== undefined) facts.scrollIntoView({ block: "nearest" });
  }
  return {
    parts: [element("h2", {}, `Calls of kernels: ${rows.length}`), element("div", { class: "scroll" }, table),
      element("div", { class: "row" }, calls.length ? element("div", {}, element("h2", {}, "Roofline"), roofline()) : null,
        element("div", { class: "grow" }, facts)), detail],
    show,
  };
}
