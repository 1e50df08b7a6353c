// A kernel's texts beside each other. Each line knows the lines of the stage before that it comes from, so that pointing
// at one marks all that it was made of, and all that was made of it; a click scrolls to them.
const PANES = [["operators", "Graph operators"], ["tensor", "Loops before the schedule"], ["scheduled", "Scheduled loops"], ["lowered", "Loops after all passes"],
  ["llvm", "LLVM IR"], ["assembly", "Assembly"], ["numba", "numba source"]];
const CHAIN = ["operators", "tensor", "scheduled", "lowered", "llvm", "assembly"];
const openPanes = new Set(["operators", "scheduled", "llvm", "assembly"]);

// The relation between lines: for each stage of the chain, by line, those of the stage before.
function linesOf(kernel, operators) {
  const origins = data.lines[kernel] || {}, up = {}, down = {};
  for (let level = 1; level < CHAIN.length; level++) {
    const stage = CHAIN[level];
    up[stage] = origins[stage] || [];
    if (stage === "tensor" && operators.length === 1) up[stage] = up[stage].map((found) => found.length ? found : [0]);
    const made = down[CHAIN[level - 1]] = new Map();
    up[stage].forEach((found, line) => found.forEach((from) => { if (!made.has(from)) made.set(from, []); made.get(from).push(line); }));
  }
  return (stage, line) => {
    const found = { [stage]: new Set([line]) }, start = CHAIN.indexOf(stage);
    if (start < 0) return found;
    for (let level = start; level > 0; level--)
      found[CHAIN[level - 1]] = new Set([...found[CHAIN[level]]].flatMap((one) => up[CHAIN[level]][one] || []));
    for (let level = start; level + 1 < CHAIN.length; level++)
      found[CHAIN[level + 1]] = new Set([...found[CHAIN[level]]].flatMap((one) => down[CHAIN[level]].get(one) || []));
    return found;
  };
}

function codeOf(kernel, operators) {
  const texts = { operators: operators.join("\n"), ...data.kernels[kernel] }, related = linesOf(kernel, operators);
  const there = PANES.filter(([key]) => texts[key]), panes = new Map(), row = element("div", { class: "panes" });
  let pinned = null;
  function mark(stage, line, scroll) {
    const found = stage === null ? {} : related(stage, line);
    for (const [key, { lines, box }] of panes) {
      const own = found[key] || new Set();
      lines.forEach((one, number) => one.classList.toggle("linked", own.has(number)));
      if (scroll && key !== stage && own.size) {
        const first = lines[Math.min(...own)];
        if (first) box.scrollTop = Math.max(0, first.offsetTop - box.offsetTop - box.clientHeight / 3);
      }
    }
  }
  function paneOf(key, title) {
    const lines = texts[key].split("\n").map((text, number) => element("div", { class: "line", "data-line": number }, ...highlighted(text, key)));
    const box = element("pre", { tabindex: 0 }, ...lines);
    const lineAt = (event) => { const found = event.target.closest(".line"); return found ? Number(found.dataset.line) : null; };
    box.addEventListener("mouseover", (event) => { const line = lineAt(event); if (line !== null && !pinned) mark(key, line, false); });
    box.addEventListener("mouseleave", () => { if (!pinned) mark(null); });
    box.addEventListener("click", (event) => {
      const line = lineAt(event);
      if (line === null || String(getSelection())) return;
      const again = pinned && pinned[0] === key && pinned[1] === line;
      pinned = again ? null : [key, line];
      mark(again ? null : key, line, !again);
    });
    panes.set(key, { lines, box });
    return element("div", { class: "pane", "data-pane": key }, element("h3", {}, title), box);
  }
  function fill() {
    panes.clear();
    row.replaceChildren(...there.filter(([key]) => openPanes.has(key)).map(([key, title]) => paneOf(key, title)));
    if (pinned && panes.has(pinned[0])) mark(...pinned, true);
    else pinned = null;
  }
  const buttons = there.map(([key, title]) => {
    const made = element("button", { "aria-pressed": String(openPanes.has(key)), "data-pane": key, onclick: () => {
      if (!openPanes.delete(key)) openPanes.add(key);
      made.setAttribute("aria-pressed", String(openPanes.has(key)));
      fill();
    } }, title);
    return made;
  });
  fill();
  return [element("div", { class: "bar" }, ...buttons, element("span", { class: "soft" }, "Point at a line to see what it comes from and what became of it; click to scroll there.")), row];
}
