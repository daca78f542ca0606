"""Scores of classes from whole label words, for every measurement that reads predictions.

`sum` is the log-probability of all tokens of a candidate after the target, teacher-forced, `mean` the same per
token. Words of one token are read at the target; every other word is appended to the prompt, in one more pass
under the same interventions. Source: `first` is the papers' choice; `mean` is the usual normalisation by
length (Brown et al. 2020, §2.4).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import AnyReading
from icl_mech.errors import PromptError
from icl_mech.measurements.causal.answers import AnswerReading, Answers
from icl_mech.measurements.passes import Pass
from icl_mech.measurements.reading import PredictionReading, Read
from icl_mech.measurements.whole_answers import Word, followed, word_pass
from icl_mech.prompts import PromptBatch, WordScore

Change = Callable[[PromptBatch], PromptBatch]
"""A function that changes prompts after their targets."""

Sums = dict[tuple[int, int], Tensor]
"""Log-probability of a whole word, by prompt and class."""


def whole_words(
    prompts: PromptBatch,
    readings: Sequence[AnyReading],
    values: list[list[Any]],
    again: Callable[[Pass, Change], list[list[Any]]],
    *,
    apart: bool,
) -> list[list[Any]]:
    """The values of readings, with predictions scored as the prompts specify.

    Args:
        prompts: The prompts of the run.
        readings: The readings of the run.
        values: Value of each reading, for each set of interventions.
        again: Runs another pass under the same sets of interventions, with prompts changed by the function.
        apart: Run one pass per class over all prompts, which keep their numbers; else one pass, which computes
            shared prefixes once, over the prompts whose word has several tokens.
    """
    kinds = (AnswerReading, PredictionReading)
    places = [n for n, reading in enumerate(readings) if isinstance(reading, kinds)]
    if prompts.score == "first" or not places:
        return values
    longer = longer_words(prompts)
    jobs = [[label] for label in longer] if apart else [[*longer]] * bool(longer)
    sums: list[Sums] = [{} for _ in values]
    for labels in jobs:
        run = [
            (label, row)
            for label in labels
            for row, word in enumerate(longer[label])
            if apart or len(word) > 1
        ]
        words = [longer[label][row] for label, row in run]
        rows = PromptBatch(tuple(prompts.prompts[row] for _, row in run), prompts.source)
        read = again(word_pass(rows, words, "label words"), partial(followed, words=words))
        for by_class, (scores,) in zip(sums, read, strict=True):
            for (label, row), log_prob in zip(run, scores.log_prob, strict=True):
                by_class[row, label] = log_prob
    whole = [[*row] for row in values]
    for by_class, scores in zip(sums, whole, strict=True):
        for place in places:
            score = _answers if isinstance(scores[place], Answers) else scored
            scores[place] = score(scores[place], by_class, prompts, prompts.score)
    return whole


def longer_words(prompts: PromptBatch) -> dict[int, list[Word]]:
    """The label word of each prompt, for the classes whose word has several tokens in some prompt."""
    words = {c: [prompt.label_words[c] for prompt in prompts] for c in range(prompts.n_labels)}
    return {
        label: of_class
        for label, of_class in words.items()
        if any(len(word) > 1 for word in of_class)
    }


def scored(read: Read, sums: Sums, prompts: PromptBatch, score: WordScore) -> Read:
    """Values of `PredictionReading` with log-probabilities of whole words in place of first tokens' logits.

    Args:
        read: Values of the reading.
        sums: Log-probabilities of the words that have several tokens, by prompt and class.
        prompts: The prompts of the run.
        score: `sum` or `mean`.
    """
    _, first, top_tokens, top_log_probs = read
    scores = first.clone()
    if sums:
        scores[tuple(map(list, zip(*sums, strict=True)))] = torch.stack([*sums.values()]).to(scores)
    if score == "mean":
        scores = scores / torch.tensor([[len(word) for word in p.label_words] for p in prompts])
    return scores, scores, top_tokens, top_log_probs


def _answers(read: Answers, sums: Sums, prompts: PromptBatch, score: WordScore) -> Answers:
    """Values of `AnswerReading` rescored in the same way as by `scored`."""
    first, nothing = read.label_logits - read.log_sum[:, None], torch.empty(0)
    as_read = nothing, first, nothing, nothing
    scores, sums_of_all = (scored(as_read, sums, prompts, kind)[0] for kind in (score, "sum"))
    return Answers(scores, torch.zeros_like(read.log_sum), sums_of_all)


def alike(prompts: PromptBatch) -> tuple[str, str, int] | None:
    """Two classes of one prompt whose label words begin with the same token, and that token; None if there are none."""
    for prompt in prompts if prompts.score != "first" else ():
        seen: dict[int, int] = {}
        for label, token in enumerate(prompt.label_tokens):
            other = seen.setdefault(token, label)
            if other != label:
                return prompt.labels[other], prompt.labels[label], token
    return None


def check_first_tokens_differ(prompts: PromptBatch, what: str) -> None:
    """Reject classes that begin with the same token if only first tokens are read.

    Raises:
        PromptError: names two such classes, and what can be done.
    """
    if (pair := alike(prompts)) is not None:
        first, second, token = pair
        raise PromptError(
            f"{what} reads only the first token of each label word, but {first!r} and {second!r} "
            f"share theirs (id {token}), so they cannot be distinguished. Use labels with "
            "different first tokens, or a measurement that scores whole words: predict, "
            "isolation, extraction, compression, edge cuts, calibration, steering."
        )
