"""A prompt as text: every token coloured by its role, or by a number of its own.

Pure functions from plain values to HTML, for notebooks and pages. Classes begin with `icl-`, the
style sheet is `style()`; without it, and in black and white, roles are still told apart by bold,
boxes, italics, underlines and the words of `title`.

Each token is `<bdi class="icl-t icl-ROLE" data-i=POSITION data-id=ID data-role=ROLE title=...>`;
coloured by numbers it also has `data-v` and the class of its level, `icl-v0` to `icl-v20` (around
0: `icl-s0` to `icl-s20`), which a page may exchange.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, runtime_checkable

from icl_mech.errors import ResultError
from icl_mech.plots.levels import LEVELS, Scale
from icl_mech.plots.pieces import breaks, html_of, quoted, visible
from icl_mech.plots.prompt_style import ROLE_NAMES, ROLE_STYLES, style

LONGEST = 1000
"""Tokens of a prompt that are shown unless told otherwise."""

NAMED = 5
"""Tokens named below a coloured text."""


@runtime_checkable
class PromptLike(Protocol):
    """What is needed of an `icl_mech.Prompt`."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def pieces(self) -> tuple[str, ...]: ...
    @property
    def spans(self) -> tuple[Any, ...]: ...
    @property
    def label_classes(self) -> tuple[int, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Text:
    """Tokens with their roles.

    Attributes:
        pieces: Text of each token.
        roles: Role of each token, see `icl_mech.prompts.Role`.
        ids: Token ids; () if they are not known.
        about: What else is said of a token, such as `demonstration 2, shows World`.
    """

    pieces: tuple[str, ...]
    roles: tuple[str, ...]
    ids: tuple[int, ...] = ()
    about: tuple[str, ...] = ()

    @classmethod
    def of(cls, prompt: "PromptLike | Text") -> "Text":
        """The text of a prompt."""
        if isinstance(prompt, Text):
            return prompt
        roles, about = [], []
        classes = bool(prompt.label_classes)
        kind, first = ("demonstration", 1) if classes else ("span", 0)
        for span in prompt.spans:
            said = "" if span.demo is None else f"{kind} {span.demo + first}"
            if span.role == "label_word":
                said += f", shows {prompt.labels[prompt.label_classes[span.demo]]}"
            count = span.stop - span.start
            roles += [span.role] * count
            about += [said] * count
        pieces = prompt.pieces or tuple(f"⟨{token}⟩" for token in prompt.tokens)
        return cls(tuple(pieces), tuple(roles), tuple(map(int, prompt.tokens)), tuple(about))

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.pieces)

    def position(self, token: int | str, what: str = "token") -> int:
        """Position of a token given by it, by `"target"`, or by its text if that stands once.

        Raises:
            ResultError: no such token, or several of that text.
        """
        if isinstance(token, str):
            found = [i for i, piece in enumerate(self.pieces) if piece.strip() == token.strip()]
            if token == "target" and "target" in self.roles:
                found = [self.roles.index("target")]
            if len(found) != 1:
                where = f"stands at the positions {found}" if found else "is no token of this text"
                raise ResultError(
                    f"{what}={token!r} {where}; give a position from 0 to {len(self) - 1}."
                )
            return found[0]
        if not 0 <= token < len(self):
            raise ResultError(f"{what}={token}; the text has {len(self)} tokens, counted from 0.")
        return int(token)

    def name(self, position: int) -> str:
        """A token in a sentence: its text in quotes and its position."""
        return f"{quoted(self.pieces[position])} ({position})"


@dataclass(frozen=True)
class View:
    """HTML that a notebook shows.

    Attributes:
        html: With its style sheet.
        words: The same in a few words, where no HTML is shown.
    """

    html: str
    words: str

    def __repr__(self) -> str:
        """The words."""
        return self.words

    def _repr_html_(self) -> str:
        return self.html


def prompt_html(
    prompt: PromptLike | Text,
    values: Sequence[float] | None = None,
    *,
    name: str = "",
    low: float | None = None,
    high: float | None = None,
    limit: int | None = LONGEST,
    legend: bool = True,
) -> str:
    """A prompt as text in HTML, without the style sheet.

    Args:
        prompt: The prompt.
        values: A number for each token, which then gives its colour; NaN where there is none.
        name: What the numbers are, such as `saliency into “World” (71)`.
        low: Value of the lowest colour (default 0, or as far below 0 as values reach).
        high: Value of the highest colour (default the largest value); values beyond it are
            counted below the text.
        limit: Number of tokens shown, from the beginning and the end; None: all.
        legend: Put the meaning of the colours above the text.

    Raises:
        ResultError: another number of values than of tokens, or an empty scale.
    """
    text = Text.of(prompt)
    numbers = None if values is None else _numbers(values, len(text))
    scale = None if numbers is None else Scale.of(numbers, low, high)
    left_out = _left_out(len(text), limit)
    parts = []
    for position in range(len(text)):
        if left_out and position == left_out.start:
            parts.append(
                f'<span class="icl-cut">… {len(left_out)} of {len(text)} tokens left out here, '
                f"{left_out.start} to {left_out.stop - 1} …</span>"
            )
        if position not in left_out:
            parts.append(_token(text, position, numbers, scale, name))
    head = _legend(text.roles, coloured=scale is None) if legend else ""
    foot = ""
    if numbers is not None and scale is not None:
        foot = _scale(scale, name) + f'<p class="icl-note">{_said(text, numbers, scale)}</p>'
    body = f'<div class="icl-body" dir="ltr">{"".join(parts)}</div>'
    return f'<div class="icl-prompt">{head}{body}{foot}</div>'


def prompt_view(
    prompt: PromptLike | Text, values: Sequence[float] | None = None, **options: Any
) -> View:
    """`prompt_html` with its style sheet, for notebooks; `options` are those of `prompt_html`."""
    text = Text.of(prompt)
    coloured = values is not None
    html = f"<style>{style(levels=coloured)}</style>{prompt_html(text, values, **options)}"
    by = f" coloured by {options.get('name') or 'values'}" if coloured else ""
    return View(html, f"<text of {len(text)} tokens{by}>")


def _token(
    text: Text, position: int, values: Sequence[float] | None, scale: Scale | None, name: str
) -> str:
    role, piece = text.roles[position], text.pieces[position]
    kind = ROLE_STYLES.get(role, "unknown")
    said = [f"{quoted(piece)}", f"position {position}"]
    data = f' data-i="{position}"'
    if text.ids:
        said.append(f"id {text.ids[position]}")
        data += f' data-id="{text.ids[position]}"'
    about = text.about[position] if text.about else ""
    said.append(ROLE_NAMES.get(role, role) + (f" ({about})" if about else ""))
    data += f' data-role="{escape(role)}"'
    level = ""
    if values is not None and scale is not None:
        value = values[position]
        place = scale.level(value)
        level = " icl-nan" if place is None else f" {scale.name(place)}"
        data += "" if place is None else f' data-v="{value:.4g}"'
        said.insert(0, f"{name or 'value'}: {number(value)}")
    title = escape(" · ".join(said))
    return (
        f'<bdi class="icl-t icl-{kind}{level}"{data} title="{title}">{html_of(piece)}</bdi>'
        + "<br>" * breaks(piece)
    )


def _legend(roles: Sequence[str], *, coloured: bool) -> str:
    """The roles that stand in the text, each written as it is shown."""
    kinds: dict[str, list[str]] = {}
    for role in ROLE_STYLES:
        if role in roles:
            kinds.setdefault(ROLE_STYLES[role], []).append(ROLE_NAMES[role])
    plain = "" if coloured else " icl-plain"
    marks = [
        f'<span class="icl-t icl-{kind}{plain}">{escape(", ".join(names))}</span>'
        for kind, names in kinds.items()
    ]
    return f'<div class="icl-legend">{" ".join(marks)}</div>'


def _scale(scale: Scale, name: str) -> str:
    """The colours in a row with the numbers at their ends."""
    steps = "".join(
        f'<span class="icl-step {scale.name(level)}"></span>' for level in range(0, LEVELS + 1, 2)
    )
    return (
        f'<div class="icl-scale"><span>{escape(name or "value")}</span> '
        f"<span>{number(scale.low)}</span><span>{steps}</span><span>{number(scale.high)}</span></div>"
    )


def _said(text: Text, values: Sequence[float], scale: Scale) -> str:
    """What colours cannot say: the largest values, and what the scale does not show."""
    known = [i for i, value in enumerate(values) if not math.isnan(value)]
    first = sorted(known, key=lambda i: -abs(values[i]))[:NAMED]
    named = ", ".join(f"{text.name(i)} {number(values[i])}" for i in first if values[i] != 0)
    parts = [f"Largest: {named}."] if named else ["All values are 0."] if known else []
    if beyond := scale.beyond(values):
        lie = "value lies" if beyond == 1 else "values lie"
        have = "has its colour" if beyond == 1 else "have their colours"
        parts.append(f"{beyond} {lie} beyond the ends of the scale and {have}.")
    if missing := len(values) - len(known):
        have = "token has" if missing == 1 else "tokens have"
        parts.append(f"{missing} {have} no value (hatched).")
    return escape(" ".join(parts))


def number(value: float) -> str:
    """A number of a token, to three digits."""
    if math.isnan(value):
        return "no value"
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _numbers(values: Any, count: int) -> list[float]:
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(listed) != count or any(isinstance(value, list) for value in listed):
        raise ResultError(
            f"values has {len(listed)} entries for {count} tokens; give one number for each token."
        )
    try:
        numbers = [float(value) for value in listed]
    except (TypeError, ValueError) as error:
        raise ResultError(f"values holds what is no number: {error}.") from error
    if any(math.isinf(value) for value in numbers):
        raise ResultError(
            "values holds infinite numbers; give finite ones, NaN where there is none."
        )
    return numbers


def _left_out(count: int, limit: int | None) -> range:
    """Positions between the beginning and the end that are not shown."""
    if limit is None or count <= limit:
        return range(0)
    if limit < 2:
        raise ResultError(f"limit={limit}; give 2 tokens at least, or None for all.")
    start = limit // 2
    return range(start, count - (limit - start))


__all__ = ["LEVELS", "Text", "View", "prompt_html", "prompt_view", "style", "visible"]
