// Write numbers in readable units, and choose colors that hold in both themes.
const seconds = (s) => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(3) + " ms" : (s * 1e6).toFixed(1) + " us";
const percent = (part) => (100 * part).toFixed(1) + " %";
const giga = (rate) => (rate / 1e9).toFixed(1);
const times = (ratio) => Number.isFinite(ratio) ? (ratio < 0.095 ? ratio.toPrecision(2) : ratio.toFixed(2)) + "x" : "-";

function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return (unit === "B" ? count : count.toFixed(1)) + " " + unit;
    count /= 1024;
  }
  return count.toFixed(1) + " GiB";
}

const sum = (rows, of) => rows.reduce((all, row) => all + of(row), 0);

// A color for each name, the same in all pictures; the theme sets its tone.
function color(name) {
  let hash = 7;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return `fill: hsl(${hash % 360} 52% var(--tone))`;
}

// From the color of an idle node to that of the one that takes longest.
const heat = (part) => `fill: color-mix(in srgb, var(--heat) ${(100 * Math.min(1, part)).toFixed(1)}%, var(--node))`;

function operatorsOf(call) {
  return call.origins.map((origin) => origin.operator + (origin.label ? " " + origin.label : "")).join(", ");
}
