// The address says what is shown: #kernels/dense_relu, or #2/kernels/dense_relu in the second of several builds.
// Whoever wants to show something changes the address, so that the browser's Back and Forward work.
const state = { build: 0, tab: null, shown: {} };
let contents = null, data = null, calls = [];

const addressOf = (tab, item, build = state.build) =>
  "#" + [...(build ? [String(build + 1)] : []), tab, ...(item === undefined || item === null ? [] : [encodeURIComponent(item)])].join("/");

function go(tab, item, build) {
  const wanted = addressOf(tab, item, build);
  // An address that is pushed calls nobody, where one that is assigned calls "hashchange" some time later.
  if (location.hash !== wanted) history.pushState(null, "", wanted);
  follow();
}

// Note what is shown without a step for Back, as of each place of a slider.
const settle = (tab, item) => history.replaceState(null, "", addressOf(tab, item));

function wanted() {
  const parts = location.hash.slice(1).split("/");
  const build = /^\d+$/.test(parts[0]) ? Number(parts.shift()) - 1 : 0;
  return { build: build < contents.builds.length ? Math.max(0, build) : 0, tab: parts[0], item: parts.length > 1 ? decodeURIComponent(parts.slice(1).join("/")) : undefined };
}

function openBuild(number) {
  state.build = number;
  data = contents.builds[number];
  calls = data.profile ? data.profile.attributes.calls : [];
  state.shown = {};
  state.tab = null;
  const tabs = tabsOf();
  byId("main").replaceChildren(...tabs.map(({ key }) => element("section", { id: key, role: "tabpanel", "aria-labelledby": "tab-" + key, hidden: true })));
  byId("tabs").replaceChildren(...tabs.map(({ key, title }) =>
    element("button", { id: "tab-" + key, role: "tab", "aria-selected": "false", onclick: () => go(key) }, title)));
  const pick = byId("build");
  if (pick) pick.value = String(number);
}

// Show what the address says. A tab is drawn when it is first shown.
function follow() {
  const { build, tab, item } = wanted();
  if (build !== state.build || data === null) openBuild(build);
  const tabs = tabsOf(), chosen = tabs.find(({ key }) => key === tab) || tabs[0];
  for (const { key } of tabs) {
    byId(key).hidden = key !== chosen.key;
    byId("tab-" + key).setAttribute("aria-selected", String(key === chosen.key));
  }
  state.tab = chosen.key;
  if (!(chosen.key in state.shown)) {
    const made = chosen.make();
    byId(chosen.key).append(...made.parts.filter((part) => part !== null));
    state.shown[chosen.key] = made.show || (() => {});
    if (made.drawn) made.drawn();
  }
  state.shown[chosen.key](item);
}
