/* One prompt as text: roles, saliency into or out of a token, or attention of a head. */
function promptView(element) {
  const id = element.dataset.prompt, own = DATA.prompts[id], map = DATA.maps[own.map];
  const box = find(".prompt", element), status = find(".status", element), tokens = findAll(".t", box);
  const ramp = ["low", "high", "name"].map(part => find(`.ramp-${part}`, element));
  const hint = status.textContent;
  let mode = find("input[type=radio][checked]", element).value, chosen = tokens.length - 1, current = null;
  const picks = findAll("input.pick", element), layers = [...new Set(own.heads.map(one => one[0]))];
  const inLayer = layer => own.heads.flatMap((one, i) => one[0] === layer ? [i] : []);
  if (map) chosen = Math.max(map.roles.indexOf("target"), 0);
  const told = value => own.heads.length ? percent(value) : amount(value);
  const byHead = () => /^\d+$/.test(mode);
  const most = own.values.length ? Math.max(...own.values.flat()) || 1 : 1;

  function levels() {
    if (byHead()) return own.values[Number(mode)].map(value => [value, Math.sqrt(value / most)]);
    const code = (to, from) => from < to && map.codes?.length ? map.codes[place(map, state.layer, to, from)] : null;
    return tokens.map((_, i) => {
      const found = mode === "into" ? code(chosen, i) : code(i, chosen);
      return found == null ? null : [valueOf(map, found), found / 255];
    });
  }

  function paint() {
    const roles = mode === "roles";
    box.className = `prompt ${roles ? "roles" : "valued"}`;
    findAll("[data-for]", element).forEach(part => {
      part.hidden = part.dataset.for === "roles" ? !roles
        : roles || (part.dataset.for === "map" && byHead());
    });
    const found = roles ? [] : levels();
    tokens.forEach((token, i) => {
      const level = found[i]?.[1] ?? 0;
      token.style.background = found[i] ? shade(level) : "";
      token.classList.toggle("strong", level > 0.56);
      token.classList.toggle("chosen", !roles && !byHead() && i === chosen);
      token.classList.toggle("current", i === current && document.activeElement === box);
    });
    if (roles) return current == null ? tell(status, hint) : describe(current);
    const best = found.map((pair, i) => pair && [pair[0], i]).filter(Boolean)
      .sort((a, b) => b[0] - a[0]).slice(0, 3);
    const listed = best.flatMap(([value, i], rank) => [
      rank ? ", " : "", [own.names[i]], ` (${i}) ${byHead() ? told(value) : amount(value)}`,
    ]);
    if (byHead()) {
      tell(ramp[0], "0"); tell(ramp[1], told(most));
      tell(ramp[2], `${own.quantity}, square-root scale${own.heads.length ? ", same for all heads" : ""}`);
      if (!own.heads.length) return tell(status, [own.rows[Number(mode)]], ": largest at ", ...listed, ".");
      return tell(status, "Head ", [own.rows[Number(mode)]], " attends from ", [own.names[tokens.length - 1]], " most to ", ...listed, ".");
    }
    tell(ramp[0], `≤ ${amount(10 ** map.low)}`); tell(ramp[1], amount(10 ** map.high));
    tell(ramp[2], `${map.quantity}, log scale, same for all layers`);
    return tell(status, `Layer ${state.layer}, ${mode === "into" ? "into" : "out of"} `, [own.names[chosen]],
      ` (position ${chosen}${map.roles[chosen] ? `, ${DATA.colours.roleNames[map.roles[chosen]]}` : ""}). Strongest: `,
      ...(listed.length ? listed : ["none"]), ".");
  }

  function describe(i) {
    const found = byHead() ? own.values[Number(mode)][i] : null;
    tell(status, [own.names[i]], `: ${own.about[i]}`,
      found == null ? "" : `, ${own.quantity} ${told(found)}`, ".");
  }

  function choose(i) {
    current = i;
    if (!map?.codes || byHead()) return describe(i);
    chosen = i;
    if (mode === "roles") setMode("into");
    paint();
    return state.listeners.forEach(other => other.token?.(own.map, i));
  }

  function setMode(value) {
    mode = value;
    const byRow = byHead() && find("input.by-row", element);
    if (byRow) { byRow.value = value; showRow(Number(value)); }
    const button = findAll("input[type=radio]", element).find(one => one.value === value);
    if (button) button.checked = true;
    paint();
  }

  /* Slider positions for a row: the layer and the head in it, or the row. */
  function showRow(row) {
    const layer = own.heads[row]?.[0], rows = picks.length > 1 ? inLayer(layer) : own.rows.map((_, i) => i);
    const at = picks.length > 1 ? [[layers, layers.indexOf(layer)], [rows.map(i => own.heads[i][1]), rows.indexOf(row)]]
      : [[own.rows, row]];
    picks.forEach((pick, i) => {
      pick.max = at[i][0].length - 1;
      pick.value = at[i][1];
      pick.nextElementSibling.textContent = at[i][0][at[i][1]];
    });
  }

  element.addEventListener("input", event => {
    if (!event.target.matches(".pick")) return;
    const at = picks.map(pick => Number(pick.value));
    const rows = at.length > 1 ? inLayer(layers[at[0]]) : own.rows.map((_, i) => i);
    setMode(String(rows[Math.min(at[at.length - 1], rows.length - 1)]));
  });
  element.addEventListener("change", event => {
    if (event.target.type === "radio") setMode(event.target.value);
  });
  box.addEventListener("click", event => {
    const token = event.target.closest(".t");
    if (token) choose(Number(token.dataset.i));
  });
  box.addEventListener("mouseover", event => {
    const token = event.target.closest(".t");
    if (token) { current = Number(token.dataset.i); describe(current); }
  });
  box.addEventListener("mouseleave", () => { if (mode !== "roles") { current = null; paint(); } });
  box.addEventListener("blur", paint);
  box.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -1e9, End: 1e9}[event.key];
    if (step) {
      const from = current ?? (event.key === "ArrowLeft" || event.key === "ArrowUp" ? tokens.length - step - 1 : -step);
      current = Math.max(0, Math.min(tokens.length - 1, Math.abs(step) < 1e9 ? from + step : step));
      paint();
      describe(current);
    } else if ((event.key === "Enter" || event.key === " ") && current != null) choose(current);
    else return;
    event.preventDefault();
  });

  state.listeners.push({
    draw: paint,
    layer: () => { if (mode !== "roles" && !byHead()) paint(); },
    token: (name, i) => { if (name === own.map && i !== chosen) { chosen = i; paint(); } },
    head: (layer, head) => {
      const found = own.heads.findIndex(one => one[0] === layer && one[1] === head);
      if (found < 0) return null;
      setMode(String(found));
      const values = own.values[found], i = values.indexOf(Math.max(...values));
      return {anchor: element.closest("section").id, from: own.names[tokens.length - 1], most: `${own.names[i]} (${percent(values[i])})`};
    },
  });
  if (mode !== "roles") setMode(mode);
}

/* A step of the sequential scale, 0 to 1, as a colour. */
function shade(level) {
  const scale = DATA.colours.scale.map(themed), at = Math.min(Math.max(level, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  const parts = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  const [from, to] = [parts(scale[low]), parts(scale[low + 1])];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * (at - low)))})`;
}
