function contents() {
  if (innerWidth < 1120) find(".contents details").open = false;
  const links = findAll(".contents a");
  const seen = new IntersectionObserver(entries => entries.forEach(entry => {
    if (!entry.isIntersecting) return;
    links.forEach(link => link.hash === `#${entry.target.id}`
      ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
  }), {rootMargin: "-15% 0px -75% 0px"});
  findAll("main section").forEach(section => seen.observe(section));
}

/* A sentence that leads to a folded section stays out of print. */
function citeWhatIsPrinted() {
  for (const own of findAll(".cites")) {
    const {hash} = find("a", own) || own, target = document.getElementById(hash.slice(1));
    const printed = target.id === "appendix" ? find(".fold[open]") : !find(":scope > details:not([open])", target);
    own.classList.toggle("unprinted", !printed);
  }
}

/* A browser that cannot decompress shows segments only. */
function withoutTokens() {
  findAll('input[value="tokens"], input[value="into"], input[value="out"]').forEach(own => {
    own.disabled = own.nextElementSibling.hidden = true;
  });
}

async function start() {
  const maps = Object.keys(DATA.maps);
  folds();
  openAt(location.hash);
  await Promise.all(maps.map(unpack)).catch(withoutTokens);
  if (maps.length) state.layer = DATA.maps[maps[0]].open;
  findAll("[data-prompt]").forEach(promptView);
  const drawRest = drawFirst();
  maps.forEach(matrixView);
  if (find("input.layer")) tellLayer();
  findAll("input.layer").forEach(own => own.addEventListener("input", () => setLayer(Number(own.value))));
  findAll("[data-picture]").forEach(own => own.addEventListener("click", () => picture(own.dataset.picture)));
  SCREEN_DARK.addEventListener("change", drawAll);
  const print = on => { if (state.printing !== on) { state.printing = on; drawAll(); citeWhatIsPrinted(); } };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", event => print(event.matches));
  let before = innerWidth, timer;
  addEventListener("resize", () => {
    if (innerWidth === before || state.printing) return;
    if ((before < 1120) !== (innerWidth < 1120)) find(".contents details").open = innerWidth >= 1120;
    before = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 120);
  });
  contents();
  document.documentElement.dataset.first = "yes";
  await drawRest();
  document.documentElement.dataset.ready = "yes";
}
start();
