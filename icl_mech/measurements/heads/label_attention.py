"""Attention to the demonstrations' label words, and the scores that follow from it alone.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.errors import PromptError
from icl_mech.metrics import prefix_matching
from icl_mech.metrics.heads import attention_to_same, same_share, shuffled_prefix_matching
from icl_mech.models import Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition
from icl_mech.segments import Segment

PAPER = "Halawi et al. 2023, Overthinking the Truth, §5"

MATCHING = Definition(
    "prefix matching",
    r"\mathrm{PM}_h = \sum_{j \in S} A_h[q, j] - \frac{1}{C - 1} \sum_{j \in P \setminus S} A_h[q, j]",
    "Attention of head h from the last token q to the label words P of the demonstrations: to "
    "those showing the label taught for the query (S), minus 1/(C − 1) of that to the others. "
    "With true labels, that label is the true class. 1 is all attention on matching labels.",
    PAPER,
)

SHUFFLED = Definition(
    "shuffled control",
    r"\mathbb{E}_\pi\,\mathrm{PM}_h(\pi(\text{labels}))",
    "Prefix matching with the labels of the demonstrations permuted in the score only: the score "
    "that recency alone gives. The model is not rerun.",
)

ATTENDING = Definition(
    "attention to label words",
    r"\sum_{j \in P} A_h[q, j]",
    "Attention to all label words together.",
    PAPER,
)

FAMILY = Definition(
    "above its control, among all heads",
    r"\frac{\bar d_h}{\operatorname{se}(d_h)} > Q_{0.95}\left(\max_{h'} t^*_{h'}\right)",
    "A head counts as clear if d, its prefix matching minus the shuffled control, divided by its "
    "standard error exceeds the largest such ratio t* over all heads in 95 % of the resamples "
    "drawn under the null hypothesis that no head exceeds its control (max-T): a single statement "
    "about all heads.",
)

Attended = Literal["labels", "before_labels"]
"""The tokens of label words, or the tokens before them."""


@dataclass
class LabelAttentionReading(OfPatterns, Reading[Tensor]):
    """Attention of every head from the target to each demonstration's label word, all its tokens
    summed: `[prompt, layer, row, head, demo]`, one row.

    `before_labels` reads the tokens before those labels instead. Demonstrations at or after a
    row have attention 0.
    """

    over: Attended = "labels"

    target_only: ClassVar[bool] = True

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """Prompt positions that are read."""
        return prompts.targets[:, None]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Attention `[batch, row, head, demo]`."""
        rows = to_device(self.rows(segment.prompts), activation.device)
        columns = segment.columns(rows)
        pattern = activation.transpose(1, 2)[segment.rows[:, None], columns].float()
        demos = self._marked(segment)
        attention = torch.einsum("brhs,bds->brhd", pattern, demos.float())
        # A row's own demonstration, and any later one, is not an earlier label: the token
        # before a row's own label is the row itself.
        labels = to_device(segment.prompts.label_positions, activation.device)
        earlier = labels[:, None] < rows[:, :, None]
        return attention * earlier[:, :, None]

    def _marked(self, segment: Segment) -> Bool[Tensor, "batch demo src"]:
        """True where a column belongs to a demonstration's label word."""
        prompts, before = segment.prompts, int(self.over == "before_labels")
        start = prompts.label_positions - before
        sizes = _word_sizes(prompts)
        stop = start + (sizes.clamp(max=1) if before else sizes)
        first, last = (to_device(ends, segment.src.device)[:, :, None] for ends in (start, stop))
        columns = segment.src[:, None]  # -1 at padding
        return (columns >= first.clamp(min=0)) & (columns < last)


class AttentionScores(NamedTuple):
    """Attention-based scores of every head and prompt, see `HeadScoresResult`."""

    matching: Float[Tensor, "batch layer head"]
    attending: Float[Tensor, "batch layer head"]
    same: Float[Tensor, "batch layer head"]
    shuffled_matching: Float[Tensor, "batch layer head"]
    same_share: Float[Tensor, " batch"]


def attention_scores(
    attention: Float[Tensor, "batch layer head demo"],
    prompts: PromptBatch,
    classes: Int[Tensor, " batch"],
    *,
    over: Attended,
    permutations: int,
    seed: int,
) -> AttentionScores:
    """Scores of heads from their attention to each demonstration's label at the target.

    Args:
        attention: Attention from `LabelAttentionReading`.
        prompts: The prompts it was read from.
        classes: The class each target would match.
        over: Tokens that are attended to.
        permutations: Number of permutations of the labels in the shuffled control.
        seed: Seed of the permutations.
    """
    # Demonstrations after the target (prompts read earlier) do not count.
    positions = prompts.label_positions
    seen = (positions >= 0) & (positions < prompts.targets[:, None])
    shown, n_labels = prompts.label_classes.where(seen, torch.tensor(-1)), prompts.n_labels
    sizes = _word_sizes(prompts) * seen
    if over == "before_labels":
        sizes = sizes.clamp(max=1)
    same = attention_to_same(attention, shown, classes)
    attending = attention.sum(-1)
    return AttentionScores(
        matching=prefix_matching(same, attending, n_labels),
        attending=attending,
        same=same,
        shuffled_matching=shuffled_prefix_matching(
            attention, shown, classes, n_labels, permutations=permutations, seed=seed
        ),
        same_share=same_share(shown, classes, sizes),
    )


def _word_sizes(prompts: PromptBatch) -> Int[Tensor, "batch demo"]:
    """Number of tokens of each demonstration's label word; 0 where a prompt has fewer."""
    sizes = torch.zeros(len(prompts), prompts.n_demos, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        for demo, span in enumerate(prompt.label_spans):
            sizes[row, demo] = span.stop - span.start
    return sizes


def matched_classes(prompts: PromptBatch) -> Int[Tensor, " batch"] | None:
    """The class each target would match: the one the false labels teach, or the true one in a true set.

    None where the setting does not teach a single class.
    """
    setting = prompts.source.get("labels", "correct")
    taught = [prompt.false_answer for prompt in prompts]
    if all(label is not None for label in taught):
        return torch.tensor(taught)
    return prompts.answers if setting == "correct" else None


def classes_to_match(prompts: PromptBatch) -> Int[Tensor, " batch"]:
    """The class each target would match.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no single rule.
    """
    if not all(prompt.label_classes for prompt in prompts):
        raise PromptError(
            "Head scores need prompts with demonstrations; build them with shots >= 1."
        )
    classes = matched_classes(prompts)
    if classes is None:
        raise PromptError(
            "Prefix matching needs a single class that the demonstrations teach for the query, "
            f"but with labels={prompts.source.get('labels')!r} there is none. Use 'permuted', "
            "'half_permuted' or 'correct'."
        )
    return classes
