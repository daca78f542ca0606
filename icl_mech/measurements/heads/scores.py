"""Scores of attention heads: prefix matching, label attending, label promoting, with controls.

In row `t` (the target, or the token before a demonstration's label), over the label tokens of
earlier demonstrations:

* `all`: attention to all of them (*label attending*);
* `same`: attention to those whose displayed label is the row's: the class the false labels
  teach in a false set, the true class in a true one;
* *prefix matching* `PM = same - (all - same) / (C - 1)`, in `[-1/(C-1), 1]`;
* *class sensitivity* `same / all`; a head blind to the class has the share `f` of earlier
  label tokens that carry the row's label, and `PM = all (f - (1 - f) / (C - 1))`;
* *shuffled* prefix matching: the demonstrations' labels permuted in the score only, what
  recency alone gives;
* *label promoting*: the logit the head's output adds to the false label, minus that of the
  true one (`norm="frozen"` or `"own"`, see `icl_mech.measurements.lens.logit_lens`).

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Reading, run
from icl_mech.errors import PromptError, ResultError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements._old import provenance
from icl_mech.measurements.heads.label_attention import (
    LabelAttentionReading,
    Source,
    row_labels,
    word_sizes,
)
from icl_mech.measurements.lens.components import (
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_own_weights,
    check_sum,
)
from icl_mech.metrics import (
    attention_to_same,
    bootstrap_interval,
    prefix_matching,
    same_share,
    shuffled_prefix_matching,
)
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Grid, Scatter

if TYPE_CHECKING:
    import pandas as pd

SCORES = {
    "prefix_matching": "prefix-matching score",
    "shuffled": "prefix matching, labels shuffled in the score",
    "label_attending": "attention to label words",
    "same": "attention to label words of the row's class",
    "label_promoting": "logit of false label above true label",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadScores(Result):
    """Scores of every head on every prompt.

    Attributes:
        matching: Prefix-matching score.
        attending: Attention to all earlier label words (`all`).
        same: Attention to those of the row's class.
        shuffled_matching: Prefix matching with the labels permuted in the score only.
        promoting: Label-promoting score, or None where the prompts teach no one false class.
        same_share: Share of earlier label tokens that carry the row's label (`f`).
        n_labels: Number of classes.
    """

    title: ClassVar[str] = "Heads that match prefixes"

    matching: Float[Tensor, "batch layer head"]
    attending: Float[Tensor, "batch layer head"]
    same: Float[Tensor, "batch layer head"]
    shuffled_matching: Float[Tensor, "batch layer head"]
    same_share: Float[Tensor, " batch"]
    n_labels: int
    promoting: Float[Tensor, "batch layer head"] | None = None

    @property
    def per_prompt(self) -> dict[str, Float[Tensor, "batch layer head"]]:
        """Scores by name, prompt axis first."""
        scores = {
            "prefix_matching": self.matching,
            "shuffled": self.shuffled_matching,
            "label_attending": self.attending,
            "same": self.same,
        }
        return scores if self.promoting is None else {**scores, "label_promoting": self.promoting}

    @property
    def prefix_matching(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self.mean("prefix_matching")

    @property
    def label_attending(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self.mean("label_attending")

    @property
    def label_promoting(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts.

        Raises:
            ResultError: the prompts teach no one false class.
        """
        return self.mean("label_promoting")

    @property
    def shuffled(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self.mean("shuffled")

    @property
    def class_sensitivity(self) -> Float[Tensor, "layer head"]:
        """`same / all`, of the means over prompts; compare with the mean of `same_share`."""
        return self.mean("same") / self.mean("label_attending").clamp(min=1e-12)

    @property
    def blind_matching(self) -> Float[Tensor, "layer head"]:
        """Prefix matching of a head with the same `all` that does not see the class."""
        f = self.same_share[:, None, None].to(self.attending.dtype)
        return (self.attending * (f - (1 - f) / (self.n_labels - 1))).mean(0)

    def mean(self, score: str) -> Float[Tensor, "layer head"]:
        """Mean of a score over prompts.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        return self._scores(score).mean(0)

    def ends(self, score: str) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]:
        """Ends of the 95 % bootstrap interval of `mean`."""
        return bootstrap_interval(self._scores(score))

    def _scores(self, score: str) -> Float[Tensor, "batch layer head"]:
        if score not in SCORES:
            raise ResultError(f"Unknown score {score!r}. {near_matches(score, SCORES)}")
        if score not in self.per_prompt:
            raise ResultError(
                "Label promoting compares the class the false labels teach with the true one; these "
                "prompts teach none. Build them with labels='permuted' or 'half_permuted'."
            )
        return self.per_prompt[score].double()

    def top(self, k: int = 5, score: str = "prefix_matching") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, as (layer, head), best first."""
        mean = self.mean(score)
        order = mean.flatten().argsort(descending=True, stable=True)[:k].tolist()
        return tuple(divmod(int(i), mean.shape[1]) for i in order)

    def drawing(self, score: str = "prefix_matching", top: int = 5) -> Grid | Scatter:
        """Heatmap of one score by layer and head, or `both`: matching against promoting.

        The `top` heads are marked.
        """
        if score == "both":
            return self._scatter(top)
        low, high = self.ends(score)
        signed = score != "label_attending" and score != "same"
        return Grid(
            title=SCORES[score].capitalize(),
            values=self.mean(score),
            row_title="layer",
            column_title="head",
            quantity="score",
            note=f"mean over {len(self.matching)} prompts; the {top} highest are marked",
            signed=signed,
            marked=self.top(top, score),
            low=low,
            high=high,
        )

    def _scatter(self, top: int) -> Scatter:
        chosen = set(self.top(top))
        n_layers, n_heads = self.prefix_matching.shape
        heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
        return Scatter(
            title="Do heads that match prefixes promote the false label?",
            x=self.prefix_matching.flatten(),
            y=self.label_promoting.flatten(),
            names=tuple(f"layer {layer}, head {head}" for layer, head in heads),
            groups=tuple(
                f"top {top} by prefix matching" if head in chosen else "other heads"
                for head in heads
            ),
            x_title=SCORES["prefix_matching"],
            y_title=SCORES["label_promoting"],
            note=f"means over {len(self.matching)} prompts",
        )

    def summary(self) -> str:
        """The top heads, with what recency alone would give them."""
        low, high = self.ends("prefix_matching")
        parts = [
            f"{layer}.{head}: {float(self.prefix_matching[layer, head]):.3g} "
            f"[{float(low[layer, head]):.3g}, {float(high[layer, head]):.3g}] "
            f"(shuffled {float(self.shuffled[layer, head]):.2g})"
            for layer, head in self.top(3)
        ]
        return "highest prefix matching (layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, highest prefix matching first."""
        import pandas as pd

        ends = {score: self.ends(score) for score in self.per_prompt}
        rows = []
        for layer, head in self.top(self.prefix_matching.numel()):
            row: dict[str, Any] = {"layer": layer, "head": head}
            for score, (low, high) in ends.items():
                row[score] = float(self.mean(score)[layer, head])
                row[f"{score}_low"] = float(low[layer, head])
                row[f"{score}_high"] = float(high[layer, head])
            row["class_sensitivity"] = float(self.class_sensitivity[layer, head])
            row["blind_matching"] = float(self.blind_matching[layer, head])
            rows.append(row)
        return pd.DataFrame(rows)


def head_scores(
    model: Any,
    prompts: PromptBatch,
    *,
    norm: Norm = "frozen",
    over: Source = "labels",
    permutations: int = 20,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    progress: bool | None = None,
) -> HeadScores:
    """Prefix matching, label attending and label promoting of every head, at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: False prompts (`labels="permuted"` or `"half_permuted"`), or true ones.
        norm: Of label promoting: `frozen` or `own`.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        permutations: Of the labels in the shuffled control.
        seed: Of the permutations.
        interventions: Made during the pass.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no one rule.
        RunError: unknown options, processed weights, or components that do not add up.

    Source: Halawi et al. 2023, §5.
    """
    for name, value, kind in (("norm", norm, Norm), ("over", over, Source)):
        if value not in get_args(kind):
            raise RunError(f"{name}={value!r}. {near_matches(value, get_args(kind))}")
    rows = check_head_prompts(prompts)
    adapted = adapt(model)
    check_own_weights(adapted)
    read = run(
        adapted, prompts, head_readings(prompts, norm, over), interventions,
        batch_size=batch_size, progress=progress, title="head scores",
    )  # fmt: skip
    origin = provenance(
        adapted, prompts, interventions,
        norm=norm, over=over, permutations=permutations, permutation_seed=seed,
    )  # fmt: skip
    return head_result(
        read, prompts, rows, adapted,
        over=over, permutations=permutations, seed=seed, origin=origin,
    )  # fmt: skip


def check_head_prompts(prompts: PromptBatch) -> Int[Tensor, " batch"]:
    """The label each target would match.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no one rule.
    """
    if not all(prompt.label_classes for prompt in prompts):
        raise PromptError("Head scores need prompts with demonstrations; use shots >= 1.")
    rows = row_labels(prompts, "target")
    if rows is None:
        raise PromptError(
            f"Prefix matching needs one class that the demonstrations teach for the query; with "
            f"labels={prompts.source.get('labels')!r} there is none. Use 'permuted', "
            "'half_permuted' or 'correct'."
        )
    return rows[:, 0]


def head_readings(prompts: PromptBatch, norm: Norm, over: Source) -> list[Reading[Any]]:
    """Attention to label words and, where a false class is taught, the heads' lens."""
    taught = all(prompt.false_answer is not None for prompt in prompts)
    lens = FrozenComponentReading() if norm == "frozen" else OwnComponentReading()
    return [LabelAttentionReading(over=over), *([lens] if taught and prompts.has_answers else [])]


def head_result(
    read: Sequence[Any],
    prompts: PromptBatch,
    rows: Int[Tensor, " batch"],
    model: LanguageModel,
    *,
    over: Source,
    permutations: int,
    seed: int,
    origin: dict[str, Any],
) -> HeadScores:
    """Scores from what `head_readings` read.

    Raises:
        RunError: components that do not add up.
    """
    attention, *components = read
    promoting = None
    for found in components:
        if isinstance(found, Components):
            check_sum(found, model)
        by_label = (found.heads if isinstance(found, Components) else found[0]).movedim(-1, 1)
        each = torch.arange(len(prompts))
        promoting = by_label[each, rows] - by_label[each, prompts.answers]
    scores = attention_scores(
        attention[:, :, 0], prompts, rows, over=over, permutations=permutations, seed=seed
    )
    return HeadScores(**scores, promoting=promoting, n_labels=prompts.n_labels, provenance=origin)


def attention_scores(
    attention: Float[Tensor, "batch layer head demo"],
    prompts: PromptBatch,
    labels: Tensor,
    *,
    over: Source,
    permutations: int,
    seed: int,
) -> dict[str, Any]:
    """The scores that follow from attention to each demonstration's label alone."""
    # Demonstrations that stand after the target (prompts read earlier) do not count.
    positions = prompts.label_positions
    seen = (positions >= 0) & (positions < prompts.targets[:, None])
    classes, n_labels = prompts.label_classes.where(seen, torch.tensor(-1)), prompts.n_labels
    sizes = word_sizes(prompts) * seen
    if over == "before_labels":
        sizes = sizes.clamp(max=1)
    same = attention_to_same(attention, classes, labels)
    attending = attention.sum(-1)
    return {
        "matching": prefix_matching(same, attending, n_labels),
        "attending": attending,
        "same": same,
        "shuffled_matching": shuffled_prefix_matching(
            attention, classes, labels, n_labels, permutations=permutations, seed=seed
        ),
        "same_share": same_share(classes, labels, sizes),
    }
