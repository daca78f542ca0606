// Draws the plotly figures of a page, in the colours of its theme and at the width it has.
(() => {
  const dark = () => {
    const theme = document.body.dataset.theme;
    return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const config = {displayModeBar: false, displaylogo: false, scrollZoom: false, responsive: false};
  const swap = (text) =>
    dark() ? text.replace(/#[0-9a-f]{6}\b/gi, (hex) => window.darkColours[hex.toLowerCase()] ?? hex) : text;
  const NARROWEST = 700; // labels and legends beside the axes need this much; below, a figure scrolls

  function draw(box) {
    const figure = JSON.parse(swap(box.querySelector("script").textContent));
    const div = box.querySelector(".drawn");
    const layout = {...figure.layout, width: Math.max(box.clientWidth, figure.layout.width || NARROWEST), autosize: false};
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.height ??= 420;
    return Plotly.newPlot(div, {data: figure.data ?? [], layout, config, frames: figure.frames})
      .then(() => box.classList.add("ready"));
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
