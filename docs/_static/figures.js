"use strict";
// Draws the plotly figures of a page, in the colours of its theme and at the width of their cells.
(() => {
  const dark = () => {
    const theme = document.body.dataset.theme;
    return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const config = {displayModeBar: false, displaylogo: false, scrollZoom: false, responsive: false};
  const swap = (text) =>
    dark() ? text.replace(/#[0-9a-f]{6}\b/gi, (hex) => window.darkColours[hex.toLowerCase()] ?? hex) : text;
  const PANEL = 240; // pixels; where panels side by side have less, they stand one below the other
  const LEGEND = 800; // below this width a legend stands above the figure
  const WORDS = 700; // figures of tokens need this width and are scaled down to less
  const LETTERS = 6.6; // pixels of a letter, on average

  const panelsOf = (layout) => Object.keys(layout).filter((key) => /^xaxis/.test(key)).map((key) => key.slice(5));
  const numbersOf = (layout) => ({l: 80, r: 80, t: 100, b: 80, ...layout.margin});

  // Every panel gets the whole width and keeps its height.
  function stacked(figure, across) {
    const {layout} = figure, margin = numbersOf(layout), panels = panelsOf(layout);
    const was = Object.fromEntries(panels.map((own) =>
      [own, {x: layout[`xaxis${own}`].domain ?? [0, 1], y: layout[`yaxis${own}`]?.domain ?? [0, 1]}]));
    const room = across - margin.l - margin.r;
    const beside = new Set(panels.map((own) => was[own].x[0])).size;
    if (panels.length < 2 || panels.some((own) => !layout[`yaxis${own}`])) return;
    const narrowest = Math.min(...panels.map((own) => was[own].x[1] - was[own].x[0])) * room;
    if (beside < 2 ? across >= NARROW : narrowest >= PANEL) return;
    panels.sort((one, other) => was[other].y[0] - was[one].y[0] || was[one].x[0] - was[other].x[0]);
    const inside = layout.height - margin.t - margin.b, between = margin.b + margin.t;
    const heights = panels.map((own) => inside * (was[own].y[1] - was[own].y[0]));
    const total = heights.reduce((sum, own) => sum + own, 0) + between * (panels.length - 1);
    let top = 1;
    const now = {};
    panels.forEach((own, i) => {
      now[own] = {x: [0, 1], y: [Math.max(0, top - heights[i] / total), top]};
      top -= (heights[i] + between) / total;
      const first = panels.find((other) => was[other].y[0] === was[own].y[0]);
      const left = layout[`yaxis${first}`], axis = layout[`yaxis${own}`];
      axis.domain = now[own].y;
      layout[`xaxis${own}`].domain = now[own].x;
      if (!axis.title?.text) axis.title = left.title;
      axis.showticklabels = true;
    });
    // Places in parts of the paper belong to the panel that they stand in or above.
    const near = (x, y) => panels.find((own) => was[own].x[0] - 0.01 <= x && x <= was[own].x[1] + 0.01
      && y >= was[own].y[0] - 0.01 && (y <= was[own].y[1] + 0.01 || was[own].y[1] > 0.99));
    for (const part of [...(layout.annotations ?? []), ...(layout.shapes ?? [])]) {
      for (const [x, y] of [["x", "y"], ["x0", "y0"], ["x1", "y1"]]) {
        if (part.xref !== "paper" || part.yref !== "paper" || part[x] === undefined) continue;
        const own = near(part[x], part[y]);
        if (own === undefined) continue;
        const [start, stop] = was[own].x;
        part[y] = now[own].y[1] + ((part[y] - was[own].y[1]) * inside) / total;
        part[x] = (part[x] - start) / (stop - start);
      }
    }
    for (const {colorbar, yaxis} of figure.data) {
      const own = (yaxis ?? "y").slice(1);
      if (colorbar?.y === undefined || !now[own]) continue;
      colorbar.y = now[own].y[1] + ((colorbar.y - was[own].y[1]) * inside) / total;
      if (colorbar.lenmode !== "pixels") colorbar.len = ((colorbar.len ?? 1) * inside) / total;
    }
    if (layout.legend?.y > 1) layout.legend.y = 1 + ((layout.legend.y - 1) * inside) / total;
    layout.height = total + margin.t + margin.b;
  }

  // A legend as lines of text, which wrap.
  function keyed(figure, keys) {
    const named = figure.data.filter((own) => own.showlegend !== false);
    fill(keys, named.map((own) => ({...own, hoverinfo: undefined})));
    const above = Math.max(0, (figure.layout.legend?.y ?? 1) - 1) > 0 ? 26 : 0;
    const {t} = numbersOf(figure.layout);
    figure.layout.showlegend = false;
    figure.layout.margin = {...figure.layout.margin, t: t - above};
    figure.layout.height -= above;
  }

  const wrapped = (text, most) => text.split(" ").reduce((lines, word) => {
    const last = lines.length - 1;
    if (last >= 0 && `${lines[last]} ${word}`.length <= most) lines[last] += ` ${word}`;
    else lines.push(word);
    return lines;
  }, []).join("<br>");

  // Titles of panels in lines that a phone has room for, and room above them; frames say which cells are meant.
  function headed({layout}, across) {
    const {l, r, t} = numbersOf(layout);
    const names = axesOf(layout).flatMap((own) => (own.anchor?.startsWith("x") && own.ticktext) || []);
    const room = across - Math.max(l, 7 * Math.max(0, ...names.map((own) => own.length)) + 8) - r;
    layout.annotations = (layout.annotations ?? []).filter((own) => !own.textangle);
    const titles = layout.annotations.filter((own) => / domain|paper/.test(own.xref) && own.xanchor === "left" && own.y === 1);
    for (const own of titles) own.text = wrapped(own.text, room / LETTERS);
    const high = titles.map((own) => (own.yshift ?? 0) + 17 * own.text.split("<br>").length + 6);
    const more = Math.max(0, ...high.map((own) => own - t));
    layout.margin = {...layout.margin, t: t + more};
    layout.height += more;
  }

  // Titles of axes in such lines, names that take what they need, and cells that need not be squares.
  function lined({layout}) {
    for (const axis of axesOf(layout)) {
      if (axis.title?.text) axis.title.text = wrapped(axis.title.text, 30);
      axis.automargin = true;
      delete axis.scaleanchor;
    }
  }

  const inWords = (figure) => figure.layout.sliders || figure.data[0]?.type === "table"
    || (figure.layout.width && figure.data[0]?.type === "heatmap");

  // The first name of a slider begins at the edge.
  function unclipped({sliders, margin}) {
    for (const own of sliders ?? []) {
      const half = (LETTERS * (own.steps[0].label ?? "").length) / 2;
      own.pad = {...own.pad, l: Math.max(own.pad?.l ?? 0, half - margin.l)};
    }
  }

  // What is scaled down can be seen at its own size, too, and then scrolls.
  function enlarging(box, scale) {
    box.querySelector("button")?.remove();
    box.classList.remove("enlarged");
    box.removeAttribute("tabindex");
    if (scale > 0.9) return;
    const button = document.createElement("button");
    button.textContent = "Full size";
    button.onclick = () => {
      const large = box.classList.toggle("enlarged");
      button.textContent = large ? "Fit to the page" : "Full size";
      box.tabIndex = large ? 0 : -1;
    };
    box.querySelector(".keys").before(button);
  }

  function draw(box) {
    const figure = {data: [], ...JSON.parse(swap(box.querySelector("script").textContent))};
    const div = box.querySelector(".drawn"), keys = box.querySelector(".keys");
    const cell = box.clientWidth, words = inWords(figure);
    const least = figure.data[0]?.type === "table" ? USUAL : figure.layout.width ?? WORDS;
    const across = words ? Math.max(cell, least) : cell, scale = cell / across;
    figure.layout.height ??= 420;
    fill(keys, []);
    if (!words) {
      if (across < NARROW) headed(figure, across);
      stacked(figure, across);
      const legend = figure.layout.showlegend && across < LEGEND;
      if (across < NARROW) {
        narrowed(figure, keys, across);
        lined(figure);
      }
      if (legend) keyed(figure, keys);
    }
    const layout = {...fitted(figure.layout, across, !words && figure.data[0]?.type !== "heatmap"), autosize: false};
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    inside(layout);
    unclipped(layout);
    enlarging(box, scale);
    div.style.transform = div.style.marginBottom = ""; // letters are measured at their own size
    div.style.minHeight = `${layout.height}px`;
    return Plotly.newPlot(div, {data: figure.data, layout, config, frames: figure.frames})
      .then(() => {
        if (scale < 1) {
          div.style.transform = `scale(${scale})`;
          div.style.marginBottom = `${(scale - 1) * layout.height}px`;
        }
        box.classList.add("ready");
      });
  }

  const boxes = [...document.querySelectorAll(".plotly-figure")];
  let round = 0; // the last call draws; an earlier one stops
  async function drawAll() {
    const own = ++round;
    for (const box of boxes) {
      if (own !== round) return;
      await draw(box);
      await new Promise((go) => setTimeout(go)); // pages with many figures answer meanwhile
    }
  }
  let width = window.innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  new MutationObserver(drawAll).observe(document.body, {attributeFilter: ["data-theme"]});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
