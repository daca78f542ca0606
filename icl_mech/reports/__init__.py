"""HTML reports: one self-contained file of figures, the sentences they support, and their provenance."""

from icl_mech.reports.model import (
    ClaimMatrix,
    ClaimRow,
    Fact,
    Finding,
    Origin,
    Page,
    PromptText,
    Section,
    Sign,
    TokenValues,
)
from icl_mech.reports.paper import export_page
from icl_mech.reports.writing import Paged, page_bytes, render_page, write_page

__all__ = [
    "ClaimMatrix",
    "ClaimRow",
    "Fact",
    "Finding",
    "Origin",
    "Page",
    "Paged",
    "PromptText",
    "Section",
    "Sign",
    "TokenValues",
    "export_page",
    "page_bytes",
    "render_page",
    "write_page",
]
