"""Classes scored by whole label words, wherever a measurement reads predictions.

`sum` is log P of all tokens of a candidate behind the target, teacher-forced, `mean` the same per token.
Words of one token are read at the target; every other one is put behind the prompt in a pass of its own,
under the same interventions. Source: `first` is the papers' choice; `mean` is the usual normalisation by
length (Brown et al. 2020, §2.4).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import AnyReading
from icl_mech.errors import PromptError
from icl_mech.measurements.causal.answers import AnswerReading, Answers
from icl_mech.measurements.passes import Pass
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.whole_answers import word_pass
from icl_mech.prompts import PromptBatch, WordScore


def whole_words(
    prompts: PromptBatch,
    readings: Sequence[AnyReading],
    values: list[list[Any]],
    again: Callable[[Pass], list[list[Any]]],
) -> list[list[Any]]:
    """The values of readings, with predictions scored as the prompts say.

    Args:
        prompts: What was run.
        readings: What was read.
        values: Of each set of interventions the value of each reading.
        again: Runs another pass under the same sets of interventions.
    """
    kinds = (AnswerReading, PredictionReading)
    places = [n for n, own in enumerate(readings) if isinstance(own, kinds)]
    if prompts.score == "first" or not places:
        return values
    read = {label: again(job) for label, job in word_passes(prompts).items()}
    whole = [[*own] for own in values]
    for number, own in enumerate(whole):
        sums = {label: found[number][0].log_prob for label, found in read.items()}
        for place in places:
            own[place] = scored(own[place], sums, prompts, prompts.score)
    return whole


def word_passes(prompts: PromptBatch) -> dict[int, Pass]:
    """A pass for each class whose label word has several tokens in some prompt."""
    words = {c: [prompt.label_words[c] for prompt in prompts] for c in range(prompts.n_labels)}
    return {
        label: word_pass(prompts, own, "label words")
        for label, own in words.items()
        if any(len(word) > 1 for word in own)
    }


def scored(read: Any, sums: Mapping[int, Tensor], prompts: PromptBatch, score: WordScore) -> Any:
    """What was read at the target, with log P of whole words in the place of first tokens' logits.

    Args:
        read: What `PredictionReading` or `AnswerReading` gave.
        sums: Log P of the words that have several tokens, by class.
        prompts: What was run.
        score: `sum` or `mean`.
    """
    first = read.label_logits - read.log_sum[:, None] if isinstance(read, Answers) else read[1]
    columns = [sums.get(label, first[:, label]) for label in range(prompts.n_labels)]
    scores = torch.stack(columns, dim=1)
    if score == "mean":
        scores = scores / torch.tensor([[len(word) for word in p.label_words] for p in prompts])
    if isinstance(read, Answers):
        return Answers(scores, torch.zeros_like(read.log_sum))
    return scores, scores, *read[2:]


def check_first_tokens_differ(prompts: PromptBatch, what: str) -> None:
    """Refuse classes that begin with the same token where first tokens are all that is read.

    Raises:
        PromptError: names two of them, and what can be done.
    """
    for prompt in prompts if prompts.score != "first" else ():
        seen: dict[int, int] = {}
        for label, token in enumerate(prompt.label_tokens):
            other = seen.setdefault(token, label)
            if other != label:
                one, two = prompt.labels[other], prompt.labels[label]
                raise PromptError(
                    f"{what} reads the first token of each label word, which {one!r} and {two!r} have in common "
                    f"(id {token}), so that it cannot tell them apart. Give labels that begin differently, or "
                    "measure what scores whole words: predict, isolation, extraction, edge cuts, calibration, steering."
                )
