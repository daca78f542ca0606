"""Clean prompts and their counterfactuals: which tokens correspond, and which labels are compared."""

from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.causal.answers import above_others
from icl_mech.measurements.causal.grafts import of_word
from icl_mech.measurements.demonstrations import query
from icl_mech.measurements.passes import Pair
from icl_mech.metrics.layers import stratified_halves
from icl_mech.models import to_device
from icl_mech.prompts import Prompt, PromptBatch

Stretch = tuple[str, int | None]
"""Role and demonstration of a span."""


def stretches(prompt: Prompt) -> list[Stretch]:
    """Role and demonstration of every span, in order."""
    return [(span.role, span.demo) for span in prompt.spans]


def check_alike(clean: PromptBatch, counterfactuals: PromptBatch) -> None:
    """Reject counterfactuals whose spans do not correspond to those of the clean prompts.

    Raises:
        PromptError: different numbers of prompts, or the first pair whose roles differ.
    """
    if len(clean) != len(counterfactuals):
        raise PromptError(
            f"There are {len(counterfactuals)} counterfactual prompts for {len(clean)} clean ones; give one for each."
        )
    for number, pair in enumerate(zip(clean, counterfactuals, strict=True)):
        first, second = (stretches(prompt) for prompt in pair)
        if not first or sum(span.stop - span.start for span in pair[0].spans) < pair[0].target + 1:
            raise PromptError(
                f"Prompt {number} has no roles for its tokens, by which prompt and counterfactual are aligned. Build "
                "prompts with build_prompt_pairs."
            )
        if first != second:
            both = zip(first, second, strict=False)
            place = next((i for i, roles in enumerate(both) if roles[0] != roles[1]), None)
            difference = (
                f"{len(first)} and {len(second)} spans"
                if place is None
                else f"span {place} is {_named(first[place])} and {_named(second[place])}"
            )
            raise PromptError(
                f"Prompt {number} and its counterfactual do not align: {difference}. Build both with build_prompt_pairs."
            )


def _named(stretch: Stretch) -> str:
    role, demo = stretch
    return repr(role) if demo is None else f"{role!r} of demonstration {demo}"


def aligned(clean: PromptBatch, counterfactuals: PromptBatch) -> Int[Tensor, "batch row"]:
    """The token of the counterfactual that corresponds to each token of a clean prompt; 0 after its end.

    Tokens of a span correspond one by one; in spans of unequal lengths the first to the first, and the others from the
    last one backwards.
    """
    rows = torch.zeros(len(clean), int(clean.lengths.max()), dtype=torch.long)
    for number, (prompt, matched) in enumerate(zip(clean, counterfactuals, strict=True)):
        for span, matching in zip(prompt.spans, matched.spans, strict=True):
            for position, source in of_word(span, matching):
                rows[number, position] = source
    return rows


def split(pair: Pair, seed: int) -> tuple[Pair, Pair]:
    """Two random halves of the pairs, stratified by class.

    Raises:
        PromptError: a repeated query, or a single pair of each class.
    """
    queries = [query(prompt) for prompt in pair[0]]
    again = [n for n, texts in enumerate(queries) if texts and texts in queries[:n]]
    if again:
        raise PromptError(
            f"Query {again[0]} repeats an earlier one, so a circuit could be tested on the queries it was selected on; "
            "give every query only once."
        )
    halves = [part.tolist() for part in stratified_halves(pair[0].answers, seed)]
    if not all(halves):
        raise PromptError(
            f"{len(pair[0])} pairs cannot be split into one half for scores or means and one for the test. Give more."
        )
    first, second = ((pair[0][rows], pair[1][rows]) for rows in halves)
    return first, second


def positions(prompts: PromptBatch) -> Int[Tensor, "batch row"]:
    """All tokens of every prompt; -1 after its end."""
    rows = torch.arange(int(prompts.lengths.max())).expand(len(prompts), -1)
    return torch.where(rows < prompts.lengths[:, None], rows, -1)


def unlike(clean: PromptBatch, counterfactuals: PromptBatch) -> int:
    """Number of pairs with a span whose length differs."""
    return sum(
        [span.stop - span.start for span in prompt.spans]
        != [span.stop - span.start for span in matched.spans]
        for prompt, matched in zip(clean, counterfactuals, strict=True)
    )


def _place(prompt: Prompt, counterfactual: Prompt, label: int | None) -> int | None:
    """The index in a clean prompt of a label of its counterfactual; None if it has no such label."""
    if label is None or prompt.label_words == counterfactual.label_words:
        return label
    names = (prompt.labels, counterfactual.labels)
    # Where words begin alike, their tokens are those that follow the prefix, which differs by prompt.
    ours, theirs = names if all(names) else (prompt.label_words, counterfactual.label_words)
    return ours.index(theirs[label]) if theirs[label] in ours else None


def margin(
    logits: Float[Tensor, "batch label"], clean: PromptBatch, counterfactuals: PromptBatch
) -> Float[Tensor, " batch"]:
    """Logit of the clean prompt's right label minus that of the label its counterfactual leads to.

    This is the label that false demonstrations teach for the query or, with another query, its right label. Choices are
    looked up among those of the clean prompt. Where this label is the right one of both, or the clean prompt does not score
    it, the mean of all others.
    """
    answers = to_device(clean.answers, logits.device)
    wrong = []
    for prompt, counterfactual in zip(clean, counterfactuals, strict=True):
        taught = counterfactual.false_answer
        label = _place(prompt, counterfactual, counterfactual.answer if taught is None else taught)
        wrong.append(-1 if label is None or label == prompt.answer else label)
    places = to_device(torch.tensor(wrong), logits.device)
    right = logits.gather(1, answers[:, None])[:, 0]
    against = right - logits.gather(1, places.clamp(min=0)[:, None])[:, 0]
    return torch.where(places >= 0, against, above_others(logits, answers))


@dataclass(frozen=True, eq=False)
class Places:
    """Positions that are averaged together: tokens of a span of the same role, demonstration and order.

    In spans that have as many tokens in all prompts, every token is averaged by itself.

    Attributes:
        widths: Number of averaged positions of every span.
        starts: First of them.
    """

    widths: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, *batches: PromptBatch) -> "Places":
        """The positions of several sets of prompts.

        Raises:
            PromptError: prompts with different roles.
        """
        prompts = [prompt for batch in batches for prompt in batch]
        first = stretches(prompts[0])
        if any(stretches(prompt) != first for prompt in prompts):
            raise PromptError(
                "ablation='mean' averages over tokens of the same role, but the prompts have different roles. Give all "
                "prompts the same number of demonstrations, or use ablation='resample'."
            )
        counts = [{p.spans[i].stop - p.spans[i].start for p in prompts} for i in range(len(first))]
        widths = tuple(next(iter(count)) if len(count) == 1 else 1 for count in counts)
        starts = tuple(sum(widths[:i]) for i in range(len(widths)))
        return cls(widths, starts)

    @property
    def total(self) -> int:
        """Number of averaged positions."""
        return sum(self.widths)

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """The averaged position of every token; -1 where there is none."""
        table = torch.full((len(prompts), int(prompts.lengths.max())), -1)
        for number, prompt in enumerate(prompts):
            for span, width, start in zip(prompt.spans, self.widths, self.starts, strict=True):
                for offset, position in enumerate(range(span.start, span.stop)):
                    table[number, position] = start + (offset if width > 1 else 0)
        return table
