"""Helpers for measurements of demonstrations: visible labels, pairs, and prompts without demonstrations.

A pair consists of the same queries with true and with false demonstrations.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.metrics.calibration import reachable_accuracy
from icl_mech.metrics.layers import stratified_halves
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.prompts.drawing import said_demonstrations
from icl_mech.results.record import Record

Pair = tuple[PromptBatch, PromptBatch]
"""True and false demonstrations before the same queries."""

SIDES = ("true", "false")
"""Names of the demonstrations of a pair."""

SAME = (
    *("task", "shots", "total", "n", "seed", "demonstrations", "split"),
    *("given_texts", "query_texts"),
)
"""Entries in which the sources of a pair of prompt sets must agree."""


def seen_labels(prompt: Prompt) -> tuple[tuple[int, int], ...]:
    """Position and class of the label words before the target, in prompt order."""
    pairs = zip(prompt.label_positions, prompt.label_classes, strict=True)
    return tuple((position, label) for position, label in pairs if position < prompt.target)


def displayed(prompt: Prompt) -> set[int]:
    """Classes displayed by the demonstrations before the target."""
    return {label for _, label in seen_labels(prompt)}


def check_demonstrations(prompts: PromptBatch, what: str) -> None:
    """Reject prompts without a label word before their target.

    Raises:
        PromptError: names the first such prompt.
    """
    for number, prompt in enumerate(prompts):
        if not seen_labels(prompt):
            raise PromptError(
                f"Prompt {number} has no demonstration before its target, but {what} needs label "
                "words there. Build the prompts with shots >= 1."
            )


def check_differing(data: Sequence[Any]) -> None:
    """Reject a pair without demonstrations, whose differences are all 0; sweeps measure it as the end of a curve.

    Raises:
        PromptError: says what to build.
    """
    sources = [prompts.source for prompts in data if isinstance(prompts, PromptBatch)]
    bare = (
        len(data) == 2
        and [0 in (source.get("shots"), source.get("total")) for source in sources] == [True] * 2
    )
    if bare and [prompt.tokens for prompt in data[0]] == [prompt.tokens for prompt in data[1]]:
        raise PromptError(
            "Both sets hold the same prompts without demonstrations, so every difference would be "
            "0. Build the pair with shots >= 1; for a curve that starts without demonstrations, "
            "run a sweep over shots=(0, 1, ...)."
        )


def check_pairs(true: PromptBatch, false: PromptBatch) -> None:
    """Reject sets that are not pairs.

    Raises:
        PromptError: different numbers of prompts, answers, label words or draws, or sets in the
            wrong order.
    """
    if len(true) != len(false):
        raise PromptError(
            f"There are {len(true)} prompts with true demonstrations but {len(false)} with false "
            "ones, so they do not form pairs. Build both sets with build_prompt_pairs."
        )
    if (
        not torch.equal(true.answers, false.answers)
        or not torch.equal(true.choice_tokens, false.choice_tokens)
        or any(true.source.get(key) != false.source.get(key) for key in SAME)
    ):
        raise PromptError(
            "The prompts with true and with false demonstrations differ in their queries, texts "
            "or label words, so they do not form pairs. Build both sets with build_prompt_pairs."
        )
    shown = true.source.get("labels", "correct")
    if shown != "correct":
        raise PromptError(
            f"The first set must show true labels, but was built with labels={shown!r}."
        )
    # Without demonstrations both sides are equal: the zero-shot end of a curve over shots.
    alike = all(t.tokens == f.tokens for t, f in zip(true, false, strict=True))
    # A small fraction of false labels may round to none.
    drawn = "false_share" in false.source
    if alike and not drawn and any(prompt.label_positions for prompt in true):
        raise PromptError(
            "Both sets hold the same prompts, so every difference would be 0. Build a true and a "
            "false set with build_prompt_pairs."
        )


def check_balance(prompts: PromptBatch) -> None:
    """Warn if the classes of the queries are not balanced, which limits calibrated accuracy."""
    if not prompts.has_classes:
        return
    counts = torch.bincount(prompts.answers, minlength=prompts.n_labels)
    if int(counts.max() - counts.min()) > 1:
        best = reachable_accuracy(prompts.answers, prompts.n_labels)
        warnings.warn(
            "The true classes of the queries are not balanced: even a perfect classifier has a "
            f"calibrated accuracy of only {best:.3g} here. Build prompts with balanced=True.",
            stacklevel=3,
        )


def without_demonstrations(prompts: PromptBatch) -> PromptBatch | None:
    """The bare queries, with whatever precedes the first demonstration.

    None where demonstrations cannot be removed: the query is the last demonstration, roles are not
    known, or there are no demonstrations.
    """
    queries = [_bare(prompt) for prompt in prompts]
    bare = tuple(prompt for prompt in queries if prompt is not None)
    count = "total" if "total" in prompts.source else "shots"
    source = {**prompts.source, count: 0, "labels": "correct"}
    return PromptBatch(bare, source) if len(bare) == len(prompts) else None


def _bare(prompt: Prompt) -> Prompt | None:
    inside = [span.demo is not None for span in prompt.spans]
    if not prompt.has_text_roles or not any(inside):
        return None
    first, last = inside.index(True), len(inside) - 1 - inside[::-1].index(True)
    if prompt.target < prompt.spans[last].stop or not all(inside[first : last + 1]):
        return None
    cut, start = prompt.spans[last].stop, prompt.spans[first].start
    shift = cut - start
    behind = tuple(
        Span(span.role, None, span.start - shift, span.stop - shift)
        for span in prompt.spans[last + 1 :]
    )
    return replace(
        prompt,
        tokens=prompt.tokens[:start] + prompt.tokens[cut:],
        spans=prompt.spans[:first] + behind,
        label_classes=(),
        pieces=prompt.pieces[:start] + prompt.pieces[cut:] if prompt.pieces else (),
        false_answer=None,
        # Its first token was tokenised in the context of the demonstrations.
        exact=False,
        sections=(),
        given_anchors=None,
        text="",
        parts=(),
    )


def query(prompt: Prompt) -> list[tuple[int, ...]]:
    """Tokens of the query's texts."""
    return [prompt.tokens[s.start : s.stop] for s in prompt.spans if s.role == "query_text"]


def repeated_query(prompts: PromptBatch) -> int | None:
    """The first prompt whose query an earlier prompt has, too; None if there is none."""
    queries = [query(prompt) for prompt in prompts]
    return next((n for n, texts in enumerate(queries) if texts and texts in queries[:n]), None)


def same_queries(one: PromptBatch, other: PromptBatch) -> bool:
    """True for equal answers in equal order and, where text roles are known, equal texts."""
    same = [prompt.answer for prompt in one] == [prompt.answer for prompt in other]
    if same and all(prompt.has_text_roles for batch in (one, other) for prompt in batch):
        return [query(prompt) for prompt in one] == [query(prompt) for prompt in other]
    return same


def check_same_queries(more_shots: PromptBatch, prompts: PromptBatch) -> None:
    """Reject prompts whose queries differ from those of the test prompts.

    Raises:
        PromptError: says how to build them.
    """
    if not same_queries(more_shots, prompts):
        raise PromptError(
            "more_shots must hold the queries of the test prompts in the same order. Build both "
            "with the same task, n and seed, and more_shots with larger shots."
        )


def check_same_count(prompts: PromptBatch, what: str) -> None:
    """Reject prompts that cannot be averaged demonstration by demonstration.

    Raises:
        PromptError: prompts without demonstrations, or with different numbers of them.
    """
    check_demonstrations(prompts, what)
    counts = sorted({len(prompt.label_positions) for prompt in prompts})
    if len(counts) > 1:
        raise PromptError(
            f"The prompts have {counts[0]} to {counts[-1]} demonstrations, but averages by "
            "demonstration need the same number in every prompt."
        )


def check_one_way(results: Iterable[Record]) -> None:
    """Reject averages over results with shots per class and results with a total number of demonstrations.

    Raises:
        ResultError: results of both.
    """
    sources = [result.provenance.get("prompts", {}) for result in results]
    ways = {said_demonstrations(source) for source in sources if "total" in source}
    others = {said_demonstrations(source) for source in sources if "shots" in source}
    if ways and others:
        raise ResultError(
            f"Some results count demonstrations per class ({min(others)}), others in total "
            f"({min(ways)}). These are two protocols and cannot be averaged; use results of only "
            "one of them."
        )


def taught_classes(prompts: PromptBatch) -> Int[Tensor, " batch"] | None:
    """The answer of a model that follows the false labels; None where that is not defined."""
    classes = [prompt.false_answer for prompt in prompts]
    return None if any(label is None for label in classes) else torch.tensor(classes)


def check_once(prompts: PromptBatch, could: str) -> None:
    """Reject a repeated query.

    Args:
        prompts: Prompts of which some select what the others test.
        could: What could happen to a query on both sides.

    Raises:
        PromptError: names the query.
    """
    if (again := repeated_query(prompts)) is not None:
        raise PromptError(
            f"Query {again} repeats an earlier one, so {could}; give every query only once."
        )


def check_several_classes(prompts: PromptBatch) -> None:
    """Reject queries of a single class.

    Raises:
        PromptError: says how to build others.
    """
    if prompts.has_classes and len(set(prompts.answers.tolist())) < 2:
        raise PromptError(
            "All queries have the same class, so a preference for its label would look like a "
            "right answer. Give queries of several classes (balanced=True)."
        )


def check_halves(prompts: PromptBatch, what: str, could: str) -> None:
    """Reject prompts of which one half cannot select what the other tests.

    Raises:
        PromptError: no answers, a repeated query (see `check_once`), or queries of a single class.
    """
    check_answers(prompts, what)
    check_once(prompts, could)
    check_several_classes(prompts)


def two_parts(prompts: PromptBatch, seed: int = 0) -> tuple[list[int], list[int]]:
    """Indices of the prompts on which heads are selected, and of those on which they are tested.

    Raises:
        PromptError: a repeated query, or queries of a single class.
    """
    check_once(prompts, "heads could be tested on the queries they were chosen on")
    check_several_classes(prompts)
    first, second = stratified_halves(prompts.answers, seed)
    return first.tolist(), second.tolist()


def halves(pair: Pair, seed: int = 0) -> tuple[Pair, Pair]:
    """Split a pair into one on which heads are selected and one on which they are tested.

    Raises:
        PromptError: a repeated query, queries of a single class, or a class with fewer than two
            queries in either half.
    """
    first, second = two_parts(pair[0], seed)
    counts = pair[0].answers[first].bincount(minlength=pair[0].n_labels)
    rare = (counts == 1).nonzero().flatten().tolist()
    if not second or rare:
        name = pair[0].labels[rare[0]] if rare else "every class"
        raise PromptError(
            f"The causal study chooses heads on half of {len(pair[0])} pairs, using means over "
            f"other queries of the same class, but {name} has too few. Give at least four pairs of "
            "each class."
        )
    return (pair[0][first], pair[1][first]), (pair[0][second], pair[1][second])
