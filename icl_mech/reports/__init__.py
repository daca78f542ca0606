"""Pages: one self-contained HTML file from figures, the sentences they show and their origin."""

from icl_mech.reports.model import (
    Fact,
    Finding,
    Origin,
    Page,
    PromptText,
    Section,
    TokenValues,
)
from icl_mech.reports.writing import page_bytes, render_page, write_page

__all__ = [
    "Fact",
    "Finding",
    "Origin",
    "Page",
    "PromptText",
    "Section",
    "TokenValues",
    "page_bytes",
    "render_page",
    "write_page",
]
