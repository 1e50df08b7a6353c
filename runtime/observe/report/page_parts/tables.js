// Tables that a click on a title sorts. A column: {title, tip, of: row -> sort key, show: row -> text or element, text: it holds words}.
function tableOf(columns, rows, options = {}) {
  const body = element("tbody"), shown = rows.slice();
  let order = options.order ?? null, downwards = true;
  function fill() {
    if (order !== null) {
      const { of } = columns[order];
      shown.sort((a, b) => (of(a) > of(b) ? 1 : of(a) < of(b) ? -1 : 0) * (downwards ? -1 : 1));
    }
    body.replaceChildren(...shown.map((row) => {
      const line = element("tr", { "data-name": options.name ? options.name(row) : null, class: options.mark && options.mark(row) ? "differs" : null },
        ...columns.map(({ show, text }) => {
          const content = show(row);
          return element("td", { class: text ? "text" : null, title: text && typeof content === "string" ? content : null }, content);
        }));
      if (options.chosen) line.addEventListener("click", () => options.chosen(row, line));
      return line;
    }));
    head.querySelectorAll("th").forEach((title, number) =>
      title.setAttribute("aria-sort", number !== order ? "none" : downwards ? "descending" : "ascending"));
  }
  const head = element("tr", {}, ...columns.map(({ title, tip, text }, number) =>
    element("th", { class: text ? "text" : null, scope: "col", title: tip, onclick: () => {
      downwards = order === number ? !downwards : true;
      order = number;
      fill();
    } }, title)));
  fill();
  return element("table", { class: options.chosen ? "choosing" : null }, element("thead", {}, head), body);
}

// A list of remarks, those of schedules that were not chosen folded away.
function remarksOf(remarks, id, about) {
  const line = (remark) => element("li", {}, element("span", { class: `kind ${remark.kind}` }, remark.kind),
    ` ${remark.function && remark.function !== "main" && remark.function !== about ? "@" + remark.function + ": " : ""}${remark.message}`);
  const said = remarks.filter((remark) => remark.kind !== "declined"), rest = remarks.filter((remark) => remark.kind === "declined");
  return element("div", { id },
    element("ul", { class: "remarks" }, ...said.slice(0, 200).map(line)),
    rest.length ? element("details", {}, element("summary", {}, `${rest.length} declined`), element("ul", { class: "remarks" }, ...rest.slice(0, 200).map(line))) : null);
}
