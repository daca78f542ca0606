"""Selection of the demonstration tokens that a compression keeps.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from icl_mech.checking import Called, conformed
from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch

Method = Literal["hidden_anchor", "text_anchor", "hidden_random", "hidden_random_top"]
Positions = tuple[int, ...]
"""Positions of one prompt, ascending."""

POSITIONS = Annotated[Sequence[int], Called("whole numbers, its positions")]


NAMES = {
    "hidden_anchor": "anchor states",
    "text_anchor": "anchor tokens as text",
    "hidden_random": "random states",
    "hidden_random_top": "random states, best draw",
}


def name_of(method: str) -> str:
    """Display name of a method in figures."""
    return NAMES.get(method, method.replace("_", " "))


class Parts(NamedTuple):
    """First token of the demonstrations of a prompt, and of its query, where they end."""

    demos: int
    query: int


def parts(prompt: Prompt, kept: Positions | None = None) -> Parts:
    """The range of the demonstrations of a prompt, half-open.

    A prompt made from bare positions does not record it: there they begin at 0, and the query
    begins right after the last kept position.

    Raises:
        PromptError: no demonstrations, or bare positions without `kept`.
    """
    if not prompt.label_classes:
        raise PromptError(
            "A prompt has no demonstrations to compress; build the prompts with shots >= 1."
        )
    spans = [span for span in prompt.spans if span.demo is not None and span.role != "unknown"]
    if prompt.has_text_roles:
        bounds = Parts(spans[0].start, spans[-1].stop)
    elif kept is None:
        raise PromptError(
            "These prompts were built from bare positions, so format and text tokens cannot be "
            "distinguished. Give keep= (the positions to keep), or build the prompts with "
            "build_prompts."
        )
    else:
        bounds = Parts(0, kept[-1] + 1)
        if bounds.query < prompt.label_spans[-1].stop:
            raise PromptError(
                f"keep ends at position {kept[-1]}, inside the demonstrations (the last label word "
                f"ends at {prompt.label_spans[-1].stop - 1}). In prompts built from bare "
                "positions, the query begins right after the last kept position, so keep the last "
                "token of the demonstrations."
            )
    if bounds.query > prompt.target:
        raise PromptError(
            f"The demonstrations extend to position {bounds.query - 1}, but the target is at "
            f"{prompt.target}; a compressed prompt needs its query after the demonstrations."
        )
    return bounds


def anchor_positions(prompt: Prompt) -> Positions:
    """All tokens before the query except the demonstrations' texts and rationales.

    These are BOS, narrative and anything else before the first demonstration, format tokens and
    whole label words.

    Raises:
        PromptError: no demonstrations, or no roles that distinguish format from text.
    """
    end = parts(prompt).query
    formatted = any(span.role == "format" and span.demo is not None for span in prompt.spans)
    if not formatted and prompt.kind != "vocabulary":
        raise PromptError(
            "The demonstrations have no format tokens: in prompts from raw text, these are part "
            "of the texts. Build the prompts with build_prompts, or give keep= (the positions to "
            "keep)."
        )
    return tuple(
        position
        for span in prompt.spans
        if span.role not in ("demo_text", "rationale")
        for position in range(span.start, min(span.stop, end))
    )


def random_positions(prompt: Prompt, *, seed: int, draws: int) -> list[Positions]:
    """The anchor positions with each label's first token replaced by a token of its text.

    In a text the end of the last span before the query stays: later tokens attend strongly to the token right
    before them whatever it is, and draws without it would score lower for that reason alone.

    The draws differ from each other, so there may be fewer of them than asked for where the
    texts are short. They depend only on the seed and the demonstrations: the first is
    the same for any `draws`, and prompts with the same demonstrations have the same draws.

    Raises:
        PromptError: as `anchor_positions`.
    """
    replaced = prompt.label_spans[: -1 if prompt.kind == "vocabulary" else None]
    anchors = set(anchor_positions(prompt)) - {word.start for word in replaced}
    texts = [
        [
            position
            for span in prompt.spans
            if span.role == "demo_text" and span.demo == word.demo
            for position in range(span.start, span.stop)
        ]
        for word in replaced
    ]
    if not all(texts):
        raise PromptError(
            "A demonstration has no text tokens to draw from; use method='hidden_anchor'."
        )
    demonstrations = prompt.tokens[: parts(prompt).query]
    generator = np.random.default_rng([seed, *demonstrations])
    drawn: dict[Positions, None] = {}
    while len(drawn) < min(draws, prod(map(len, texts))):
        chosen = [text[int(generator.integers(len(text)))] for text in texts]
        drawn[tuple(sorted(anchors | set(chosen)))] = None
    return list(drawn)


def given_positions(keep: Any, prompts: PromptBatch) -> list[Positions]:
    """Check `keep` and return it: one row of positions per prompt, or one row for all of them.

    Raises:
        PromptError: a wrong number of rows, or positions that are not ascending, are repeated,
            or lie outside the prompt or in its query.
    """
    try:
        plain = keep.tolist() if hasattr(keep, "tolist") else list(keep)
    except TypeError as error:
        raise PromptError(
            f"keep={keep!r}; expected one row of positions per prompt, or a single row for all."
        ) from error
    nested = [row.tolist() if hasattr(row, "tolist") else row for row in plain]
    rows = nested if nested and isinstance(nested[0], Sequence) else [nested] * len(prompts)
    if len(rows) != len(prompts):
        raise PromptError(
            f"keep has {len(rows)} rows for {len(prompts)} prompts; give one row of positions per "
            "prompt, or a single row for all."
        )
    return [
        _checked(row, prompt, n) for n, (row, prompt) in enumerate(zip(rows, prompts, strict=True))
    ]


def plain_positions(keep: Any, prompts: PromptBatch) -> tuple[Any, ...] | None:
    """Check `keep` and return it as plain numbers: one row where it is the same for all prompts.

    Raises:
        PromptError: as `given_positions`.
    """
    if keep is None:
        return None
    rows = given_positions(keep, prompts)
    return rows[0] if len(set(rows)) == 1 else tuple(rows)


def _checked(row: object, prompt: Prompt, number: int) -> Positions:
    where = f"keep of prompt {number}"
    kept: Positions = conformed(where, row, POSITIONS, PromptError)
    if not kept:
        raise PromptError(f"{where} is empty. For prompts without demonstrations use shots=0.")
    if list(kept) != sorted(set(kept)):
        raise PromptError(
            f"{where} is {list(kept)}; positions must be in ascending order without duplicates."
        )
    if kept[0] < 0 or kept[-1] >= len(prompt):
        wrong = kept[0] if kept[0] < 0 else kept[-1]
        raise PromptError(
            f"{where} contains {wrong}, but the prompt has positions 0 to {len(prompt) - 1}."
        )
    end = parts(prompt, kept).query
    if kept[-1] >= end:
        raise PromptError(
            f"{where} contains {kept[-1]}, which belongs to the query (it begins at {end}). The "
            "query is always read in full, so keep only positions before it."
        )
    return kept
