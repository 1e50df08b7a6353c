// A kernel's texts beside each other. Each line knows the lines of the stage before that it comes from, so that pointing
// at one marks all that it was made of, and all that was made of it; a click scrolls to them.
const PANES = [["operators", "Graph operators"], ["tensor", "Loops before the schedule"], ["scheduled", "Scheduled loops"], ["lowered", "Loops after all passes"],
  ["llvm", "LLVM IR"], ["assembly", "Assembly"], ["numba", "numba source"]];
// The stage before each stage; the source for numba is made of the loops before the schedule, beside the other stages.
const BEFORE = { tensor: "operators", scheduled: "tensor", lowered: "scheduled", llvm: "lowered", assembly: "llvm", numba: "tensor" };
const openPanes = new Set(["operators", "scheduled", "llvm", "assembly"]);

// The relation between lines: for each stage, by line, those of the stage before.
function linesOf(kernel, operators) {
  const origins = data.lines[kernel] || {}, up = {}, down = {}, after = {};
  for (const [stage, before] of Object.entries(BEFORE)) {
    up[stage] = origins[stage] || [];
    if (stage === "tensor" && operators.length === 1) up[stage] = up[stage].map((found) => found.length ? found : [0]);
    (after[before] = after[before] || []).push(stage);
    const made = down[stage] = new Map();
    up[stage].forEach((found, line) => found.forEach((from) => { if (!made.has(from)) made.set(from, []); made.get(from).push(line); }));
  }
  return (stage, line) => {
    const found = { [stage]: new Set([line]) };
    const fall = (from) => { // to what was made of lines, on every way
      for (const next of after[from] || [])
        if (!found[next]) {
          found[next] = new Set([...found[from]].flatMap((one) => down[next].get(one) || []));
          fall(next);
        }
    };
    for (let now = stage; BEFORE[now]; now = BEFORE[now])
      found[BEFORE[now]] = new Set([...found[now]].flatMap((one) => up[now][one] || []));
    for (let now = stage; now; now = BEFORE[now]) fall(now);
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
