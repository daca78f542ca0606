/* Maps between the tokens of one prompt: by segment, or every token. */
const shortened = (text, most) => {
  if (text.length <= most) return text;
  const words = text.slice(0, most).replace(/ [^ ]*$/, "");
  return `${(2 * words.length >= most && words.length < most ? words : text.slice(0, most - 1)).replace(/[ ,;:]+$/, "")}…`;
};
const edges = n => n * (n - 1) / 2;
const place = (map, layer, to, from) => layer * edges(map.names.length) + edges(to) + from;
const valueOf = (map, code) => 10 ** (map.low + code / 255 * (map.high - map.low));

async function unpack(id) {
  const text = document.getElementById(`${id}-blob`)?.textContent;
  if (!text) return;
  const bytes = Uint8Array.from(atob(text), sign => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  DATA.maps[id].codes = new Uint8Array(await new Response(stream).arrayBuffer());
}

function matrixView(id) {
  const map = DATA.maps[id], element = document.getElementById(`${id}-plot`), n = map.names.length;
  const status = document.getElementById(`${id}-status`), section = document.getElementById(id);
  let byToken = !map.means.length, chosen = Math.max(map.roles.indexOf("target"), 0);

  function cells() {
    if (byToken) {
      return Array.from({length: n}, (_, to) => Array.from({length: n}, (_, from) => from < to
        ? map.low + map.codes[place(map, state.layer, to, from)] / 255 * (map.high - map.low) : null));
    }
    const means = map.means[state.layer];
    return map.runs.map((_, to) => map.runs.map((_, from) => {
      const mean = from <= to ? means[to * (to + 1) / 2 + from] : null;
      return mean == null ? null : Math.max(map.low, Math.log10(Math.max(mean, 1e-30)));
    }));
  }

  function texts() {
    const told = value => value <= 10 ** map.low * 1.0001 ? `≤ ${amount(10 ** map.low)}` : amount(value);
    if (byToken) {
      const names = map.names.map((name, i) => `${escaped(name)} (${i})`);
      return names.map((to, i) => names.map((from, j) => j < i
        ? `<b>${from} → ${to}</b><br>${map.quantity} ${told(valueOf(map, map.codes[place(map, state.layer, i, j)]))}` : ""));
    }
    const means = map.means[state.layer];
    return map.runs.map((to, i) => map.runs.map((from, j) => {
      const mean = j <= i ? means[i * (i + 1) / 2 + j] : null;
      return mean == null ? ""
        : `<b>${escaped(from.name)} → ${escaped(to.name)}</b><br>mean ${map.quantity} per edge ${told(mean)}`;
    }));
  }

  function figure(across) {
    const small = across < NARROW, size = byToken ? n : map.runs.length;
    const margin = small ? {l: 84, r: 6, t: 6, b: 88} : {l: 118, r: 16, t: 8, b: 118};
    const side = Math.min(across - margin.l - margin.r, state.printing ? 400 : 640);
    const ends = map.runs.map((run, i) => byToken ? [run.start - 0.5, run.stop - 0.5] : [i - 0.5, i + 0.5]);
    const colour = role => themed(DATA.colours.roles[role] || DATA.colours.ink);
    const thin = 5 / side, gap = 3 / side, shapes = [];
    map.runs.forEach((run, i) => {
      const band = {type: "rect", fillcolor: colour(run.role), line: {width: 0}}, [start, stop] = ends[i];
      shapes.push({...band, yref: "paper", x0: start, x1: stop, y0: -gap - thin, y1: -gap});
      shapes.push({...band, xref: "paper", y0: start, y1: stop, x0: -gap - thin, x1: -gap});
    });
    if (byToken) {
      shapes.push({
        type: "rect", x0: -0.5, x1: chosen + 0.5, y0: chosen - 0.5, y1: chosen + 0.5,
        line: {color: themed(DATA.colours.ink), width: 1},
      });
    }
    const stands = role => role === "label_word" || role === "target";
    const room = (small ? 11 : 14) * size / side;
    let last = -Infinity;
    const named = map.runs.map((_, i) => i).filter(i => {
      const middle = (ends[i][0] + ends[i][1]) / 2, whole = ends[i][1] - ends[i][0];
      if (!(byToken || map.runs.length * room > size * 1.05) || (stands(map.runs[i].role) && middle - last >= room * 0.8)
        || (whole > room && middle - last >= room)) { last = middle; return true; }
      return false;
    });
    const axis = {
      tickvals: named.map(i => (ends[i][0] + ends[i][1]) / 2),
      ticktext: named.map(i => {
        const run = map.runs[i], label = escaped(shortened(run.name, small ? 14 : 18));
        return `<span style="color:${colour(run.role)}">${stands(run.role) ? `<b>${label}</b>` : label}</span>`;
      }),
      tickfont: {size: small ? 9.5 : 12}, ticks: "", ticklabelstandoff: 10, showgrid: false, zeroline: false,
      showline: false, fixedrange: true,
    };
    const marks = Array.from({length: map.high - map.low + 1}, (_, i) => map.low + i)
      .filter((_, i) => !small || i % 2 === 0);
    const scale = DATA.colours.scale.map(themed), quiet = themed(DATA.colours.quiet);
    const noted = small ? [] : [{
      xref: "paper", yref: "paper", x: 1, y: 0.8, xanchor: "right", align: "right", showarrow: false,
      text: "Each row reads from the columns to its left.<br>Bands along the axes: role of the tokens.",
      font: {size: 12, color: quiet},
    }];
    return {
      data: [{
        type: "heatmap", z: cells(), text: texts(), hovertemplate: "%{text}<extra></extra>", hoverongaps: false,
        xgap: byToken ? 0 : 1, ygap: byToken ? 0 : 1, zmin: map.low, zmax: map.high,
        colorscale: scale.map((hex, i) => [i / (scale.length - 1), hex]),
        colorbar: {
          orientation: "h", x: 1, xanchor: "right", y: 0.98, yanchor: "top", len: small ? 0.56 : 0.42, thickness: 11,
          outlinewidth: 0, ticks: "", tickvals: marks, ticktext: marks.map((mark, i) => `${i ? "" : "≤ "}${10 ** mark >= 0.0001
            ? String(Number((10 ** mark).toFixed(6))) : amount(10 ** mark)}`),
          tickfont: {size: small ? 9.5 : 11, color: quiet},
          title: {
            text: `${escaped(map.quantity)}${byToken ? "" : " per edge"} (log scale, same for all layers)`, side: "bottom",
            font: {size: small ? 10 : 12, color: quiet},
          },
        },
      }],
      layout: {
        width: Math.round(side + margin.l + margin.r), height: Math.round(side + margin.t + margin.b), margin, shapes,
        annotations: noted, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
        dragmode: false, hovermode: "closest", font: {family: getComputedStyle(document.body).fontFamily, size: 13, color: themed(DATA.colours.ink)},
        xaxis: {...axis, range: [-0.5, size - 0.5], tickangle: -90}, yaxis: {...axis, range: [size - 0.5, -0.5]},
      },
    };
  }

  function draw() {
    if (!inSight(element)) return undefined;
    const own = figure(width(element));
    element.style.height = `${own.layout.height}px`;
    Plotly.react(element, own.data, own.layout, CONFIG);
    if (!element.dataset.listens) {
      element.dataset.listens = "yes";
      element.on("plotly_click", event => {
        if (byToken) state.listeners.forEach(one => one.token?.(id, Number(event.points[0].y)));
      });
    }
    const shares = map.shares[state.layer];
    if (!shares) return tell(status, `Layer ${state.layer}.`);
    return tell(status, `Layer ${state.layer}: the target's row holds `, [percent(shares[0])],
      ` of this prompt's saliency; of that, `, [percent(shares[1])], " comes from label words, ", [percent(shares[2])],
      ` from the texts and ${percent(shares[3])} from the template and the rest.`);
  }

  section.addEventListener("change", event => {
    if (event.target.type === "radio") { byToken = event.target.value === "tokens"; draw(); }
  });
  const buttons = find(`[data-telling="${CSS.escape(id)}"]`, section);
  for (const [layer, text] of map.telling || []) {
    const button = document.createElement("button");
    Object.assign(button, {type: "button", className: "button", textContent: `${layer}: ${text}`});
    button.addEventListener("click", () => setLayer(layer));
    buttons.append(button);
  }
  state.drawers[id] = figure;
  state.listeners.push({
    draw, layer: draw,
    token: (name, i) => { if (name === id) { chosen = i; if (byToken) draw(); } },
  });
  draw();
}
