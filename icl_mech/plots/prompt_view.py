"""Prompts as text: every token coloured by its role or by a number; and the first prompts of a set.

Pure functions from plain values to HTML, for notebooks and pages. Classes begin with `icl-`, the
style sheet is `style()`; without colour, roles are still distinguished by bold, boxes, italics,
underlines and the words of `title`.

Each token is `<span class="icl-t icl-ROLE" data-i=POSITION data-id=ID data-role=ROLE title=...>`;
coloured by numbers it also has `data-v` and the class of its level, `icl-v0` to `icl-v20` (around
0: `icl-s0` to `icl-s20`), which a page may replace. Prompts of a set open and close without a script.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any, Protocol, runtime_checkable

from icl_mech.errors import ResultError
from icl_mech.plots.pieces import InText, breaks, in_text, quoted, visible
from icl_mech.plots.prompt_style import LEVELS, ROLE_NAMES, ROLE_STYLES, Scale, style

LONGEST = 1000
"""Number of tokens of a prompt shown by default."""

NAMED = 5
"""Number of tokens named below a coloured text."""


@runtime_checkable
class PromptLike(Protocol):
    """The attributes of an `icl_mech.Prompt` that this module uses."""

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
        about: Further information on each token, such as `demonstration 2, shows World`.
        shared: Positions of tokens with characters of two roles.
        candidates: Possible continuations: the name of each class or choice, and its text.
        score: How candidates are compared.
    """

    pieces: tuple[str, ...]
    roles: tuple[str, ...]
    ids: tuple[int, ...] = ()
    about: tuple[str, ...] = ()
    shared: tuple[int, ...] = ()
    candidates: tuple[tuple[str, str], ...] = ()
    score: str = ""

    @classmethod
    def of(cls, prompt: "PromptLike | Text") -> "Text":
        """The text of a prompt."""
        if isinstance(prompt, Text):
            return prompt
        roles, about = [], []
        classes = bool(prompt.label_classes)
        noun, first = ("demonstration", 1) if classes else ("span", 0)
        for span in prompt.spans:
            said = "" if span.demo is None else f"{noun} {span.demo + first}"
            if span.role == "label_word":
                said += f", shows {prompt.labels[prompt.label_classes[span.demo]]}"
            count = span.stop - span.start
            roles += [span.role] * count
            about += [said] * count
        pieces = prompt.pieces or tuple(f"⟨{token}⟩" for token in prompt.tokens)
        follow = [
            (candidate.label, candidate.text)
            for candidate in getattr(prompt, "candidates", ())
            if candidate.text
        ]
        return cls(
            tuple(pieces),
            tuple(roles),
            tuple(map(int, prompt.tokens)),
            tuple(about),
            tuple(getattr(prompt, "shared_tokens", ())),
            tuple(follow),
            str(getattr(prompt, "score", "")),
        )

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.pieces)

    def position(self, token: int | str, what: str = "token") -> int:
        """Position of a token given by position, by `"target"`, or by its text if it occurs once.

        Raises:
            ResultError: no such token, or several with that text.
        """
        if isinstance(token, str):
            positions = [i for i, piece in enumerate(self.pieces) if piece.strip() == token.strip()]
            if token == "target" and "target" in self.roles:
                positions = [self.roles.index("target")]
            if len(positions) != 1:
                where = (
                    f"occurs at the positions {positions}"
                    if positions
                    else "is not a token of this text"
                )
                raise ResultError(
                    f"{what}={token!r} {where}; give a position from 0 to {len(self) - 1}."
                )
            return positions[0]
        if not 0 <= token < len(self):
            raise ResultError(
                f"{what}={token} is out of range; the text has {len(self)} tokens, counted from 0."
            )
        return int(token)

    def name(self, position: int) -> str:
        """A token as sentences name it: its text in quotes and its position."""
        return f"{quoted(self.pieces[position])} ({position})"


@dataclass(frozen=True)
class View:
    """HTML that a notebook displays.

    Attributes:
        html: The HTML with its style sheet.
        words: A short description, where HTML is not displayed.
    """

    html: str
    words: str

    def __repr__(self) -> str:
        """The short description."""
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
        values: A number for each token, which sets its colour; NaN where there is none.
        name: What the numbers are, such as `saliency into “World” (71)`.
        low: Value of the lowest colour (default 0, or as far below 0 as values reach).
        high: Value of the highest colour (default the largest value); values beyond it are
            counted below the text.
        limit: Number of tokens shown, from the beginning and the end; None: all.
        legend: Put the meaning of the colours above the text.

    Raises:
        ResultError: the numbers of values and of tokens differ, or the scale is empty.
    """
    text = Text.of(prompt)
    numbers = None if values is None else _numbers(values, len(text))
    scale = None if numbers is None else Scale.of(numbers, low, high)
    left_out = _left_out(len(text), limit)
    parts, shown = [], in_text(text.pieces)
    for position in range(len(text)):
        if left_out and position == left_out.start:
            parts.append(
                f'<span class="icl-cut">… {len(left_out)} of {len(text)} tokens omitted here, '
                f"{left_out.start} to {left_out.stop - 1} …</span>"
            )
        if position not in left_out:
            parts.append(_token(text, position, shown[position], numbers, scale, name))
    head = _legend(text.roles, coloured=scale is None) if legend else ""
    foot = ""
    if numbers is not None and scale is not None:
        foot = _scale(scale, name) + f'<p class="icl-note">{_said(text, numbers, scale)}</p>'
    elif legend:
        foot = "".join(f'<p class="icl-note">{escape(said)}</p>' for said in _notes(text))
    body = f'<div class="icl-body" dir="auto">{"".join(parts)}</div>'
    return f'<div class="icl-prompt">{head}{body}{foot}</div>'


SCORES = {
    "first": "compared by the logits of their first tokens",
    "sum": "compared by the log-probability of all their tokens",
    "mean": "compared by the log-probability per token",
}

MOST_CANDIDATES = 12


def _notes(text: Text) -> list[str]:
    """Notes on the candidates after the target, and on tokens with a dotted underline."""
    notes = []
    if text.candidates:
        named = ", ".join(quoted(candidate) for _, candidate in text.candidates[:MOST_CANDIDATES])
        more = len(text.candidates) - MOST_CANDIDATES
        rest = f" and {more} more" if more > 0 else ""
        notes.append(f"Candidates after the target, {SCORES[text.score]}: {named}{rest}.")
    if text.shared:
        count = len(text.shared)
        hold = "token contains" if count == 1 else "tokens contain"
        notes.append(
            f"{count} {hold} characters of two roles (dotted) and {'has' if count == 1 else 'have'} the role of the "
            "first character, or that of the label word."
        )
    return notes


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
    text: Text,
    position: int,
    shown: InText,
    values: Sequence[float] | None,
    scale: Scale | None,
    name: str,
) -> str:
    role, piece = text.roles[position], text.pieces[position]
    role_style = ROLE_STYLES.get(role, "unknown")
    said = [shown.name, f"position {position}"]
    data = f' data-i="{position}"'
    if text.ids:
        said.append(f"id {text.ids[position]}")
        data += f' data-id="{text.ids[position]}"'
    about = text.about[position] if text.about else ""
    said.append(ROLE_NAMES.get(role, role) + (f" ({about})" if about else ""))
    data += f' data-role="{escape(role)}"'
    said += [shown.about] if shown.about else []
    level = " icl-shared" * (position in text.shared) + " icl-more" * (not shown.text)
    if values is not None and scale is not None:
        value = values[position]
        place = scale.level(value)
        level += " icl-nan" if place is None else f" {scale.name(place)}"
        data += "" if place is None else f' data-v="{value:.4g}"'
        said.insert(0, f"{name or 'value'}: {number(value)}")
    title = escape(" · ".join(said))
    return (
        f'<span class="icl-t icl-{role_style}{level}"{data} title="{title}">{escape(shown.text)}</span>'
        + "<br>" * breaks(piece)
    )


def _legend(roles: Sequence[str], *, coloured: bool) -> str:
    """A legend of the roles in the text, each in its style."""
    names_by_style: dict[str, list[str]] = {}
    for role in ROLE_STYLES:
        if role in roles:
            names_by_style.setdefault(ROLE_STYLES[role], []).append(ROLE_NAMES[role])
    plain = "" if coloured else " icl-plain"
    marks = [
        f'<span class="icl-t icl-{role_style}{plain}">{escape(", ".join(names))}</span>'
        for role_style, names in names_by_style.items()
    ]
    return f'<div class="icl-legend">{" ".join(marks)}</div>'


def _scale(scale: Scale, name: str) -> str:
    """The colour scale in a row with its end values."""
    steps = "".join(
        f'<span class="icl-step {scale.name(level)}"></span>' for level in range(0, LEVELS + 1, 2)
    )
    return (
        f'<div class="icl-scale"><span>{escape(name or "value")}</span> '
        f"<span>{number(scale.low)}</span><span>{steps}</span><span>{number(scale.high)}</span></div>"
    )


def _said(text: Text, values: Sequence[float], scale: Scale) -> str:
    """What colours cannot show: the largest values, clipped values and missing values."""
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
    """A value of a token, to three digits."""
    if math.isnan(value):
        return "no value"
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _numbers(values: Iterable[object], count: int) -> list[float]:
    listed: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(listed) != count or any(isinstance(value, list) for value in listed):
        raise ResultError(
            f"values has {len(listed)} entries for {count} tokens; give one number for each token."
        )
    try:
        numbers = [float(value) for value in listed]
    except (TypeError, ValueError) as error:
        raise ResultError(
            f"values contains an entry that is not a number ({error}); give numbers only."
        ) from error
    if any(math.isinf(value) for value in numbers):
        raise ResultError(
            "values contains infinite numbers; give finite ones, and NaN for tokens without a value."
        )
    return numbers


def _left_out(count: int, limit: int | None) -> range:
    """Positions between the beginning and the end that are not shown."""
    if limit is None or count <= limit:
        return range(0)
    if limit < 2:
        raise ResultError(f"limit={limit}; give at least 2 tokens, or None for all.")
    start = limit // 2
    return range(start, count - (limit - start))


__all__ = ["LEVELS", "Text", "View", "prompt_html", "prompt_view", "style", "visible"]


SHOWN = 4
"""Number of prompts of a set that are shown."""

TOKENS = 400
"""Number of tokens of each prompt that are shown."""


@runtime_checkable
class AnsweredPrompt(PromptLike, Protocol):
    """A prompt with the answers named in the line above it."""

    @property
    def answer(self) -> int | None:
        """Class of the correct answer."""

    @property
    def false_answer(self) -> int | None:
        """Class that a model following the demonstrations would answer."""


def batch_html(prompts: Sequence[AnsweredPrompt], about: str) -> str:
    """The first prompts below one another, the first one open; opening one closes the others.

    Args:
        prompts: All prompts of the set.
        about: A description of the set, in one line.
    """
    group = sha256(about.encode("utf-8", "replace")).hexdigest()[:8]
    parts = [
        f'<details name="icl-{group}"{" open" * (number == 0)}>'
        f"<summary>{escape(_line(prompts[number], number, len(prompts)))}</summary>"
        f"{prompt_html(prompts[number], limit=TOKENS, legend=number == 0)}</details>"
        for number in range(min(SHOWN, len(prompts)))
    ]
    rest = len(prompts) - SHOWN
    are = "prompt is" if rest == 1 else "prompts are"
    more = f"{rest} more {are} not shown here; prompts[{SHOWN}] is the next one."
    foot = f'<p class="icl-note">{more}</p>' if rest > 0 else ""
    return (
        f'<style>{style(levels=False)}</style><div class="icl-prompt">'
        f'<p class="icl-note">{escape(about)}</p>{"".join(parts)}{foot}</div>'
    )


def _line(prompt: AnsweredPrompt, number: int, count: int) -> str:
    said = [f"Prompt {number + 1} of {count}", f"{len(prompt.tokens)} tokens"]
    if prompt.answer is not None:
        said.append(f"true answer: {prompt.labels[prompt.answer]}")
    if prompt.false_answer is not None:
        said.append(f"answer after the demonstrations: {prompt.labels[prompt.false_answer]}")
    return ", ".join(said)


LONGEST_TEXT = 240
"""Maximum characters of an example."""

MOST = 6
"""Maximum number of classes with an example."""


def task_html(about: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """One line about the task, and a table of classes.

    Args:
        about: A description of the task, in one line.
        rows: For each class, its label word, its number of examples, and one formatted example.
    """
    shown = "".join(
        f"<tr><th scope='row'>{escape(label)}</th><td>{escape(count)}</td>"
        f"<td><pre style='white-space:pre-wrap;margin:0'>{escape(_cut(example))}</pre></td></tr>"
        for label, count, example in rows[:MOST]
    )
    left = len(rows) - MOST
    more = f'<p class="icl-note">{left} more classes are not shown here.</p>' if left > 0 else ""
    return (
        f'<style>{style(levels=False)}</style><div class="icl-prompt">'
        f'<p class="icl-note">{escape(about)}</p>'
        "<table style='text-align:left'><thead><tr><th scope='col'>label word</th>"
        "<th scope='col'>train, test</th><th scope='col'>a demonstration</th></tr></thead>"
        f"<tbody>{shown}</tbody></table>{more}</div>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
