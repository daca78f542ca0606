"""`Averages`: what `Sweep.average` gives, as table, LaTeX and figure."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.export_text import csv_text
from icl_mech.sweeps.cells import Averaged
from icl_mech.sweeps.drawings import drawing
from icl_mech.sweeps.tables import latex, rows

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False, repr=False)
class Averages(Averaged):
    """A quantity averaged over dimensions of a sweep, with nested 95 % intervals."""

    def to_pandas(self) -> "pd.DataFrame":
        """One row a number: its place, value, low, high, and over how much it is."""
        import pandas as pd

        return pd.DataFrame(rows(self))

    def to_csv(self, path: Any = None) -> str | None:
        """`to_pandas` as CSV: written to a file, or returned.

        Texts that a spreadsheet would take for formulas begin with `'`.
        """
        text = csv_text(self.to_pandas())
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return None

    def to_latex(self, columns: str | None = None, *, digits: int = 3) -> str:
        """A table as in papers: rows are the cells, columns the values of one dimension or axis.

        Args:
            columns: The dimension or axis that runs across; None: the last that varies.
            digits: After the point.

        Raises:
            SweepError: no such dimension or axis.
        """
        return latex([self], columns, digits)

    def drawing(self, **options: Any) -> Any:
        """What it is drawn as: curves over layers or doses, else dots; see `plot`."""
        return drawing(self, **options)

    def plot(
        self, *, panels: str | None = None, curves: str | None = None, x: str | None = None
    ) -> "go.Figure":
        """Small multiples.

        Args:
            panels: Dimension or axis with one pair of axes for each value.
            curves: Dimension or axis with one curve for each value.
            x: Dimension or axis along the horizontal axis; by default layers, or doses.

        Raises:
            SweepError: no such dimension or axis.
        """
        from icl_mech.plots import figure

        return figure(self.drawing(panels=panels, curves=curves, x=x))

    def _ipython_display_(self) -> None:
        from icl_mech.frontend import in_notebook
        from icl_mech.plots import show

        if not in_notebook():
            raise NotImplementedError  # IPython then prints the repr
        show(self.summary(), self.plot())
