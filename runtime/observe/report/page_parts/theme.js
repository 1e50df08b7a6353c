// Light or dark: as the system has it, until the button is pressed; the choice is kept where the browser allows it.
function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)"), button = byId("theme");
  const kept = () => { try { return localStorage.getItem("tilewright-theme"); } catch { return null; } };
  const apply = () => {
    const dark = (kept() || (system.matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "light" : "dark";
  };
  button.addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("tilewright-theme", other); } catch { /* a browser that keeps nothing for files */ }
    document.documentElement.dataset.theme = other;
    button.textContent = other === "dark" ? "light" : "dark";
  });
  system.addEventListener("change", apply);
  apply();
}
