// -- Light and dark: as the button says, else as the notebook does, else as the system does --

function theme(app) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const surroundings = () => {
    const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
    if (jpThemeLight) return jpThemeLight === "false";
    if (document.documentElement.hasAttribute("theme")) return document.documentElement.getAttribute("theme") === "dark";  // Colab
    if (vscodeThemeKind) return /dark|high-contrast$/.test(vscodeThemeKind);
    return system.matches;
  };
  const set = () => app.root.classList.toggle("dark", chosen ?? surroundings());
  app.toggleTheme = () => { chosen = !app.root.classList.contains("dark"); set(); };
  const watched = new MutationObserver(set);
  watched.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  system.addEventListener("change", set);
  set();
  return () => {
    watched.disconnect();
    system.removeEventListener("change", set);
  };
}
