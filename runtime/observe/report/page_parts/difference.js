// Compare two versions of a text line by line.
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
    element("td", { class: same || left === undefined ? null : "gone", title: left }, ...highlighted(left ?? "", "scheduled")),
    element("td", { class: same || right === undefined ? null : "add", title: right }, ...highlighted(right ?? "", "scheduled")));
  let i = 0;
  while (i < rows.length) {
    let j = i;
    while (j < rows.length && rows[j][2]) j++;
    const first = i === 0 ? i : i + context, last = j === rows.length ? j : j - context;
    if (last - first > 2) {
      for (let k = i; k < first; k++) body.append(line(rows[k]));
      const hidden = rows.slice(first, last);
      const skip = element("tr", { class: "skip" }, element("td", { colspan: 2 }, `${hidden.length} equal lines`));
      skip.addEventListener("click", () => skip.replaceWith(...hidden.map(line)));
      body.append(skip);
      for (let k = last; k < j; k++) body.append(line(rows[k]));
    } else for (let k = i; k < j; k++) body.append(line(rows[k]));
    while (j < rows.length && !rows[j][2]) { body.append(line(rows[j])); j++; }
    i = j;
  }
  return element("div", { class: "diff" }, element("table", {}, body));
}
