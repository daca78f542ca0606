"""Prompts with other rationales: cut off after a sentence, exchanged, shuffled, or given as new texts.

A rationale stands between a text and its answer (`{rationale}` in a template). Everything else stays: texts, label
words, query, candidates and correct answer. Without any sentence, the text that introduces the rationale is left out, too,
so that the answer follows the text directly. Rewriting is exact or refused, see `icl_mech.prompts.rewriting`.

Source: Lanham et al. 2023, *Measuring Faithfulness in Chain-of-Thought Reasoning* (arXiv 2307.13702): early answering
(a prefix of the rationale, then the answer) and mistakes; here a mistake is the rationale of a text of another class.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from icl_mech.checking import Natural, checked
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import tokenizer_and_limit
from icl_mech.prompts.given import check_batch
from icl_mech.prompts.laying import RolePiece, aimed, sentences
from icl_mech.prompts.rewriting import New, Rewritten, known_parts, pieces_of, written_anew
from icl_mech.prompts.roles import Span
from icl_mech.prompts.spans import Prompt
from icl_mech.results.wording import counted

Corruption = Literal["other", "shuffled"]
"""The rationale of a text of another class, or its own sentences in another order."""

Where = Literal["query", "demonstrations", "both"]
"""Which rationales are corrupted."""


class Corrupted(NamedTuple):
    """Prompts with corrupted rationales, or the reason why they cannot be written.

    Attributes:
        prompts: The prompts; None if one of them cannot be written.
        classes: For the rationale of another query: the class of that query; None for each prompt otherwise.
        why_not: The reason; empty otherwise.
    """

    prompts: PromptBatch | None
    classes: tuple[int | None, ...]
    why_not: str = ""


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def rationale_prefix(
    prompts: PromptBatch, model_or_tokenizer: object, sentences: Natural
) -> PromptBatch:
    """The same prompts with the first sentences of the query's rationale only.

    Args:
        prompts: Prompts with rationales.
        model_or_tokenizer: Model or tokenizer they were made for.
        sentences: Number of sentences that stay; 0: the answer follows the query's text directly.

    Raises:
        PromptError: prompts without a rationale or that cannot be rewritten, or with fewer sentences.
    """
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    return _made(cut_off(check_batch(prompts), tokenizer, sentences))


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def with_rationales(
    prompts: PromptBatch, model_or_tokenizer: object, rationales: Sequence[str]
) -> PromptBatch:
    """The same prompts with these rationales at their queries, one for each prompt; an empty one leaves it out.

    Args:
        prompts: Prompts with rationales.
        model_or_tokenizer: Model or tokenizer they were made for.
        rationales: One text for each prompt.

    Raises:
        PromptError: another number of texts, only empty ones, prompts without a rationale or that cannot be rewritten.
    """
    prompts = check_batch(prompts)
    if len(rationales) != len(prompts):
        raise PromptError(
            f"{counted(len(rationales), 'rationale')} for {counted(len(prompts), 'prompt')}; give one for each."
        )
    if not any(map(str.strip, rationales)):
        raise PromptError(
            f"All {len(rationales)} rationales are empty; give texts, or leave rationales out with "
            "rationale_prefix(prompts, model, 0)."
        )
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    texts = iter(rationales)
    source = {**prompts.source, "rationales": digest_of(rationales)}
    made = written_anew(
        prompts,
        tokenizer,
        lambda prompt: _with_query(prompt, _said(next(texts)), chat="chat" in prompts.source),
        source,
    )
    return _made(made)


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def corrupted_rationales(
    prompts: PromptBatch,
    model_or_tokenizer: object,
    how: Corruption = "other",
    *,
    where: Where = "query",
    seed: Natural = 0,
) -> PromptBatch:
    """The same prompts with corrupted rationales.

    `other`: the query gets the rationale of another query of another class, drawn among the prompts of the batch; a
    demonstration that of the next demonstration with another label, cyclically. `shuffled`: sentences in another order.

    Args:
        prompts: Prompts with rationales.
        model_or_tokenizer: Model or tokenizer they were made for.
        how: The corruption.
        where: Whose rationales are corrupted.
        seed: Seed of the draws and orders.

    Raises:
        PromptError: no rationales, no text of another class, rationales of a single sentence (`shuffled`), or
            prompts that cannot be rewritten.
    """
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    made = corrupted(check_batch(prompts), tokenizer, how, where, seed)
    return _made(Rewritten(made.prompts, made.why_not))


def rationale_of(prompt: Prompt, demo: int | None = None) -> tuple[str, ...]:
    """Sentences of the rationale of a demonstration, or of the query (`demo` None); none without a rationale."""
    return tuple(piece.text for piece in pieces_of(prompt) if _is_rationale(piece, demo))


def rationale_spans(prompt: Prompt) -> tuple[Span, ...]:
    """Token spans of the sentences of the query's rationale."""
    return tuple(s for s in prompt.spans if s.role == "rationale" and s.demo is None)


def check_rationales(prompts: PromptBatch, what: str) -> None:
    """Reject prompts whose queries have no rationale.

    Raises:
        PromptError: says how to build them.
    """
    for number, prompt in enumerate(prompts):
        if not rationale_spans(prompt) or not rationale_of(prompt):
            raise PromptError(
                f"Prompt {number} has no rationale between its query and the answer, but {what} needs "
                "one. Write {rationale} into the template and load the task with rationale=, or use "
                "the offline task 'comparisons'."
            )


def cut_off(prompts: PromptBatch, tokenizer: object | None, count: int) -> Rewritten:
    """Prompts of `rationale_prefix`, or the reason why they cannot be written."""

    def change(prompt: Prompt) -> New:
        said = rationale_of(prompt)
        if count > len(said) > 0:
            raise PromptError(
                f"its query's rationale has {counted(len(said), 'sentence')}, fewer than {count}"
            )
        first = [RolePiece("rationale", None, text) for text in said[:count]]
        return _with_query(prompt, first, chat="chat" in prompts.source)

    return written_anew(
        prompts, tokenizer, change, {**prompts.source, "rationale_sentences": count}
    )


def corrupted(
    prompts: PromptBatch, tokenizer: object | None, how: Corruption, where: Where, seed: int
) -> Corrupted:
    """Prompts of `corrupted_rationales`, or the reason why they cannot be written."""
    numbers = {id(prompt): number for number, prompt in enumerate(prompts)}
    names = [None if p.answer is None else p.labels[p.answer] for p in prompts]
    classes: list[int | None] = []

    def query(prompt: Prompt, generator: np.random.Generator) -> list[RolePiece]:
        if how == "shuffled":
            return _shuffled(rationale_of(prompt), None, generator)
        others = [
            n
            for n, other in enumerate(prompts)
            if names[n] not in (None, names[numbers[id(prompt)]]) and rationale_of(other)
        ]
        if not others:
            raise PromptError("no other query of another class has a rationale")
        donor = prompts[int(generator.choice(others))]
        classes[-1] = donor.answer if prompt.kind == "classes" else None
        return [RolePiece("rationale", None, text) for text in rationale_of(donor)]

    def change(prompt: Prompt) -> New:
        known_parts(prompt)
        if not rationale_of(prompt):
            raise PromptError("its query has no rationale")
        digest = hashlib.sha256(prompt.text.encode()).digest()
        generator = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
        classes.append(None)
        new = New(pieces_of(prompt), prompt.label_classes)
        if where != "demonstrations":
            new = _with_query(prompt, query(prompt, generator))
        if where != "query":
            new = new._replace(pieces=_others(prompt, new.pieces, how, generator))
        return new

    source = {**prompts.source, "rationales": how, "corrupted": where, "rationale_seed": seed}
    made = written_anew(prompts, tokenizer, change, source)
    return Corrupted(made.prompts, tuple(classes), made.why_not)


def digest_of(texts: Sequence[str]) -> str:
    """Fingerprint of texts, for provenance."""
    return hashlib.sha256(repr(list(texts)).encode()).hexdigest()[:16]


def _made(rewritten: Rewritten) -> PromptBatch:
    if rewritten.prompts is None:
        raise PromptError(
            f"Rationales cannot be changed: {rewritten.why_not}. Build the prompts with build_prompts "
            "from a task with rationales."
        )
    return rewritten.prompts


def _said(rationale: str) -> list[RolePiece]:
    return sentences(rationale, None) if rationale.strip() else []


def _is_rationale(piece: RolePiece, demo: int | None) -> bool:
    return piece.role == "rationale" and piece.demo == demo


def _with_query(prompt: Prompt, new: Sequence[RolePiece], *, chat: bool = False) -> New:
    """The prompt with other sentences at its query; without any, also without the text that introduces them.

    In a chat this text ends the user's turn, and stays.
    """
    known_parts(prompt)
    pieces = pieces_of(prompt)
    places = [n for n, piece in enumerate(pieces) if _is_rationale(piece, None)]
    if not places:
        raise PromptError("its query has no rationale")
    before = pieces[: places[0]]
    if not new and not chat and before and before[-1].role == "format":
        before.pop()
    return New([*before, *new, *pieces[places[-1] + 1 :]], prompt.label_classes)


def _others(
    prompt: Prompt, pieces: Sequence[RolePiece], how: Corruption, generator: np.random.Generator
) -> list[RolePiece]:
    """The pieces with corrupted rationales in all demonstrations."""
    shown = dict(zip((s.demo for s in prompt.label_spans), prompt.label_classes, strict=True))
    order = list(shown)
    new: list[RolePiece] = []
    for (demo, is_rationale), run in groupby(pieces, lambda p: (p.demo, p.role == "rationale")):
        if demo is None or not is_rationale:
            new += run
            continue
        if how == "shuffled":
            new += _shuffled(rationale_of(prompt, demo), demo, generator)
            continue
        place = order.index(demo)
        donors = [d for d in (*order[place + 1 :], *order[:place]) if shown[d] != shown[demo]]
        if not donors:
            raise PromptError("all its demonstrations display the same label")
        new += (RolePiece("rationale", demo, text) for text in rationale_of(prompt, donors[0]))
    return new


def _shuffled(
    said: Sequence[str], demo: int | None, generator: np.random.Generator
) -> list[RolePiece]:
    """Sentences in another order, with a space between them.

    Raises:
        PromptError: there is no other order.
    """
    if len({text.strip() for text in said}) < 2:
        raise PromptError("a rationale of a single sentence has no other order")
    order = list(range(len(said)))
    while [said[n].strip() for n in order] == [text.strip() for text in said]:
        order = [int(n) for n in generator.permutation(len(said))]
    gap = said[1][: len(said[1]) - len(said[1].lstrip())]
    return [
        RolePiece("rationale", demo, gap * (place > 0) + said[n].strip())
        for place, n in enumerate(order)
    ]


def open_rationale(prompt: Prompt) -> Prompt:
    """The prompt up to its query's rationale, for writing one: its last token is the target.

    Raises:
        PromptError: no rationale at the query, or nothing before it.
    """
    spans = rationale_spans(prompt)
    stop = spans[0].start if spans else 0
    while stop and not prompt.pieces[stop - 1].strip(" "):
        stop -= 1
    if not stop:
        raise PromptError(
            "A query without a rationale, or with nothing before it, cannot be left open."
        )
    kept = [replace(s, stop=min(s.stop, stop)) for s in prompt.spans if s.start < stop]
    return replace(
        prompt,
        tokens=prompt.tokens[:stop],
        spans=aimed(kept),
        pieces=prompt.pieces[:stop],
        exact=False,
        sections=(),
        given_anchors=None,
        text="",
        parts=(),
        candidate_texts=(),
    )
