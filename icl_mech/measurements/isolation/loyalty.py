"""Loyalty under isolation in the first or last layers: its figures and what they say.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from dataclasses import dataclass
from typing import ClassVar

from icl_mech.measurements.isolation import drawings, texts
from icl_mech.measurements.isolation.agreement import LOYALTIES, Loyalty
from icl_mech.measurements.isolation.values import LoyaltyByWindow
from icl_mech.results import Definition, Figure
from icl_mech.shapes import LabelMatrix, LayerCurves, Table


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationResult(LoyaltyByWindow):
    """Loyalty under isolation, by tokens, side and depth.

    Attributes:
        windows: (side, depth, tokens) of every window, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        draw_overlap: Word loyalty of each draw, likewise; None in files of before.
        predicted: Predicted class without isolation.
        isolated: Predicted class under isolation, of each draw likewise; None in files of before.
        words: Likeliest next words of the first prompts, without isolation and then with that of
            each window (its first draw).
        labels: Names of the classes.
        n_layers: Layers of the model.
        top_k: Number of next tokens compared.
    """

    title: ClassVar[str] = "Isolating label words"
    shows: ClassVar[tuple[str, ...]] = ("loyalty", *LOYALTIES, "answers", "words")
    definitions: ClassVar[tuple[Definition, ...]] = texts.DEFINITIONS

    def drawing(self, show: str = "loyalty") -> LayerCurves | LabelMatrix | Table:
        """Loyalty by number of isolated layers, in panels by side; or what is answered instead.

        Args:
            show: `loyalty` (both), `label_loyalty` or `word_loyalty`; `answers`, how often each
                class is predicted with and without isolation; `words`, the likeliest next words of
                the first prompts.

        Raises:
            ResultError: unknown `show`, or predictions and words that earlier files do not hold.
        """
        self.check_show(show)
        if show == "answers":
            return drawings.answers(self)
        if show == "words":
            return drawings.next_words(self)
        measures: tuple[Loyalty, ...] = (
            LOYALTIES if show == "loyalty" else tuple(own for own in LOYALTIES if own == show)
        )
        return drawings.loyalties(self, measures)

    def figures(self) -> list[Figure]:
        """Both loyalties, what is answered under isolation, and which words become likely."""
        return texts.figures(self)

    def summary(self) -> str:
        """Both loyalties with the first layers isolated, against last layers and random tokens."""
        return texts.summary(self)
