"""`ComponentLens`: what each head or MLP adds to the label logits."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.lens.texts import components
from icl_mech.metrics import Interval, above_together
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.shapes import Grid, LayerCurves, Shape

PARTS = Definition(
    "lens of a part",
    r"W_U\left(\frac{\gamma}{\sigma} \odot (c - \bar c)\right)[y] - \frac{1}{C-1}\sum_{y' \ne y} "
    r"W_U\left(\frac{\gamma}{\sigma} \odot (c - \bar c)\right)[y']",
    "What the output c of a head or MLP at the last token adds to the logit of the true label y above "
    "the mean of the others, through the final norm with the run's own scale σ (“frozen”; “own” norms "
    "the part alone).",
    "Halawi et al. 2023, Overthinking the Truth, §5",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentLens(Result):
    """Label logits of every head or MLP at the target.

    Attributes:
        label_logits: By layer, head (if read per head) and label.
        embedding: Of what enters block 0; None with `norm="own"`, as the two below.
        others: Sum over blocks of what is not asked for (MLPs or heads, attention biases).
        constant: Of the biases of final norm and unembedding.
        answers: True class of each query, or None.
        labels: Names of the classes.
    """

    title: ClassVar[str] = "Lens of heads and MLPs"
    definitions: ClassVar[tuple[Definition, ...]] = (PARTS,)

    label_logits: Float[Tensor, "batch layer *head label"]
    embedding: Float[Tensor, "batch label"] | None = None
    others: Float[Tensor, "batch label"] | None = None
    constant: Float[Tensor, "batch label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """`contrast`, the logit of the true label above the mean of the others; all logits."""
        dims = ("layer", "head")[: self.label_logits.ndim - 2]
        found = {}
        if self.answers is not None:
            by_label = self.label_logits.double().movedim(-1, 1)
            own = by_label[torch.arange(len(self.answers)), self.answers]
            rest = (by_label.sum(1) - own) / (by_label.shape[1] - 1)
            found["contrast"] = Quantity(dims, own - rest, unit="logit difference")
        found["label_logit"] = Quantity((*dims, "label"), self.label_logits, unit="logit")
        for name in ("embedding", "others", "constant"):
            if (part := getattr(self, name)) is not None:
                found[name] = Quantity(("label",), part, unit="logit")
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes."""
        return {"label": self.labels}

    @checked(ResultError)
    def contrast(
        self, towards: Int[Tensor, " batch"], against: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch layer *head"]:
        """`logit(towards) - logit(against)` of every component, per prompt."""
        rows = torch.arange(len(self.label_logits))
        by_label = self.label_logits.movedim(-1, 1)
        return by_label[rows, towards] - by_label[rows, against]

    def drawing(self) -> Shape:
        """Logit of the true label above the mean of the others, by layer and head.

        Where the true classes are not known: the logits of all labels.
        """
        found = self.sel()
        if self.answers is None:
            return found.drawing()
        title, note = "Logit of the true label above that of the others", basis(self)
        if found.values.ndim == 2:
            return Grid(
                title, found.values.T, "head", "layer", "logits", note,
                signed=True, low=found.low.T, high=found.high.T,
            )  # fmt: skip
        return LayerCurves(
            title, ("MLP",), found.values[None], found.low[None], found.high[None], found.unit, note,
            levels=((0.0, "adds nothing"),), meanings=("label",),
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """Which parts push to the right answer."""
        heads, n = self.label_logits.ndim == 4, len(self.label_logits)
        count = self.label_logits[0, ..., 0].numel()
        if self.answers is None:
            return [components("", None, 0, count, n, heads=heads, given=given(self))]
        found = self.quantities()["contrast"]
        value, (low, high) = found.value(), found.ends()
        best = int(value.argmax())
        score = Interval(*(float(end.flatten()[best]) for end in (value, low, high)))
        place = divmod(best, value.shape[1]) if heads else (best,)
        name = ("head " if heads else "layer ") + ".".join(map(str, place))
        clear = int(above_together(found.per_prompt).sum())
        return [components(name, score, clear, count, n, heads=heads, given=given(self))]

    def summary(self) -> str:
        """Number of components."""
        kind = "heads" if self.label_logits.ndim == 4 else "MLPs"
        return f"label logits of {self.label_logits[0, ..., 0].numel()} {kind}"
