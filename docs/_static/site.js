// Excerpts of search results are fetched, which browsers refuse for pages on disk.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// Captions of the contents are headings without a level.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) {
    caption.setAttribute("aria-level", "2");
  }
  // Parameters stand in a description list without terms.
  for (const list of document.querySelectorAll(".sig dl")) {
    list.setAttribute("role", "list");
    for (const item of list.children) item.setAttribute("role", "listitem");
  }
  // What scrolls must be reached by keyboard, too.
  for (const box of document.querySelectorAll("pre, .table-wrapper, div.math, math[display=block]")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  }
});
