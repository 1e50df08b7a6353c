// Draw the page.
const TABS = [["overview", "Overview", overview], ["passes", "Passes", passes], ["graph", "Graph", graphs], ["kernels", "Kernels", kernels], ["memory", "Memory", memory]];

function tabsOf() {
  const tabs = TABS.filter(([key]) => key !== "memory" || data.profile).map(([key, title, make]) => ({ key, title, make }));
  return contents.builds.length > 1 ? [{ key: "compare", title: "Compare", make: compare }, ...tabs] : tabs;
}

async function main() {
  theme();
  contents = await unpacked();
  byId("title").textContent = contents.title;
  if (contents.builds.length > 1) {
    byId("tabs").before(element("label", { class: "soft" }, "build ", element("select", { id: "build", onchange: (event) => go(state.tab === "compare" ? "overview" : state.tab, undefined, Number(event.target.value)) },
      ...contents.builds.map((build, number) => element("option", { value: number }, `${letterOf(number)}: level ${build.settings.opt_level}, ${build.settings.target.split(" ")[0]}`)))));
  }
  search();
  addEventListener("hashchange", follow);
  follow();
  document.body.dataset.ready = "yes";
}

main().catch(failed);
