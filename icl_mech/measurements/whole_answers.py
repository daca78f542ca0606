"""Answers of several tokens, teacher-forced: probability of the whole answer, and whether it is the greedy continuation.

Each prompt has its own word. A prompt is truncated after its target and continued with all but the last
token of its word, so that one pass reads all the word's tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import AtLast
from icl_mech.measurements.passes import Pass
from icl_mech.models import Site, at_least_float32, to_device
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.segments import Segment

Word = tuple[int, ...]


class WordScores(NamedTuple):
    """Scores of the word that follows each prompt's target.

    Attributes:
        log_prob: Log-probability, summed over its tokens.
        greedy: True if each of its tokens is the top token.
        rank: Number of tokens in the vocabulary that are more likely than its first one.
    """

    log_prob: Float[Tensor, " batch"]
    greedy: Bool[Tensor, " batch"]
    rank: Int[Tensor, " batch"]


@dataclass
class WordReading(AtLast, Reading[WordScores]):
    """Reading that scores the word following each prompt's target.

    Attributes:
        words: The word of each prompt of the run.
    """

    words: tuple[Word, ...]

    @property
    def target_only(self) -> bool:  # type: ignore[override]
        """True if no row after the targets is read."""
        return all(len(word) == 1 for word in self.words)

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return the scores packed as `[batch, log-probability | greedy | rank]`."""
        words, device = [self.words[index] for index in segment.indices], activation.device
        lengths = to_device(torch.tensor([len(word) for word in words]), device)
        total = torch.zeros(len(words), device=device)
        greedy, rank = torch.ones_like(total), torch.zeros_like(total)
        for offset in range(int(lengths.max())):
            inside = lengths > offset
            rows = segment.target_row + torch.where(inside, offset, 0)
            logits = at_least_float32(segment.model.logits(activation[segment.rows, rows]))
            tokens = torch.tensor([word[min(offset, len(word) - 1)] for word in words])
            token_ids = to_device(tokens, device)[:, None]
            log_probs = logits.log_softmax(-1).gather(1, token_ids)[:, 0]
            total += torch.where(inside, log_probs, torch.zeros_like(log_probs))
            greedy *= (logits.argmax(-1) == token_ids[:, 0]) | ~inside
            if not offset:
                # Ids below 2^24 are exact in float32, and every vocabulary is smaller.
                rank = (logits > logits.gather(1, token_ids)).sum(-1).float()
        return torch.stack([total, greedy, rank], dim=1)

    def collect(self, kept: Kept) -> WordScores:
        """Unpack the scores."""
        log_prob, greedy, rank = kept.stacked()[:, 0].unbind(1)
        return WordScores(log_prob, greedy.bool(), rank.long())


def word_pass(prompts: PromptBatch, words: Sequence[Word], title: str) -> Pass:
    """One pass over the prompts, each followed by its word."""
    return Pass(followed(prompts, words), [WordReading(tuple(words))], title=title)


def followed(prompts: PromptBatch, words: Sequence[Word]) -> PromptBatch:
    """Each prompt up to its target, followed by all but the last token of its word."""
    pairs = zip(prompts, words, strict=True)
    return PromptBatch(tuple(_continued(*pair) for pair in pairs), prompts.source)


def _continued(prompt: Prompt, word: Word) -> Prompt:
    """A prompt up to its target, followed by all but the last token of a word."""
    if len(word) == 1:
        return prompt
    end = prompt.target + 1
    tokens = (*prompt.tokens[:end], *word[:-1])
    spans = tuple(span for span in prompt.spans if span.stop <= end)
    classes = prompt.label_classes[: sum(span.role == "label_word" for span in spans)]
    spans = (*spans, Span("unknown", None, end, len(tokens)))  # no role selects these tokens
    return replace(prompt, tokens=tokens, spans=spans, label_classes=classes, pieces=())


def accepted_answers(prompts: PromptBatch) -> list[tuple[Word, ...]]:
    """Accepted whole answers of each prompt; for a text, the tokens after its target.

    Empty where the answers are classes, or where a prompt has none.
    """
    if prompts.answer_kind == "classes":
        return []
    answers = [tuple(dict.fromkeys(prompt.accepted)) or _behind(prompt) for prompt in prompts]
    return answers if all(answers) else []


def _behind(prompt: Prompt) -> tuple[Word, ...]:
    rest = prompt.tokens[prompt.target + 1 :] if prompt.kind == "vocabulary" else ()
    return (rest,) if rest else ()


def _apart(answers: Sequence[Word]) -> list[bool]:
    """False for answers that extend another accepted one, whose probability includes theirs."""
    return [
        not any(answer != other and answer[: len(other)] == other for other in answers)
        for answer in answers
    ]


def accepted_passes(prompts: PromptBatch) -> list[Pass]:
    """One pass for the first accepted answers, one for the second ones, and so on.

    Every pass is over all prompts, so that indices stay the same; prompts with fewer answers repeat their last
    one.
    """
    answers = accepted_answers(prompts)
    most = max(map(len, answers), default=0)
    return [
        word_pass(
            prompts,
            [accepted[min(place, len(accepted) - 1)] for accepted in answers],
            "whole answers",
        )
        for place in range(most)
    ]


def best_of(read: Sequence[WordScores], prompts: PromptBatch) -> WordScores | None:
    """Combined scores of several accepted answers: log-sum-exp, whether any is greedy, and the smallest rank.

    An extension of another accepted answer adds nothing to the sum, which already includes it.
    """
    if not read:
        return None
    log_probs = torch.stack([scores.log_prob for scores in read])
    apart = [_apart(accepted) for accepted in accepted_answers(prompts)]
    there = torch.tensor([[*flags, *[False] * (len(read) - len(flags))] for flags in apart]).T
    return WordScores(
        log_probs.where(there, torch.tensor(-torch.inf)).logsumexp(0),
        torch.stack([scores.greedy for scores in read]).any(0),
        torch.stack([scores.rank for scores in read]).amin(0),
    )
