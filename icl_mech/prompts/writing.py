"""Rendering demonstrations and a query as one text: a filled-in template, or the turns of a chat."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from icl_mech.errors import PromptError
from icl_mech.prompts.laying import RolePiece, template_pieces, with_role
from icl_mech.tasks import Example, Template
from icl_mech.tasks.types import Piece, text_fault

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Shown = Sequence[tuple[Example, str]]
"""Demonstrations, each with the label word it displays."""

Turn = dict[str, str]

_DATES = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1""")
_UNDATED = "no such date"
_FROZEN = (
    "{%- macro strftime_now(pattern) -%}{{ dates_of_today[pattern] if pattern in dates_of_today else "
    f"raise_exception('{_UNDATED}')}}}}{{%- endmacro -%}}"
)
"""Prefix for chat templates that write a date: replaces the system clock."""

_RESERVED = ("conversation", "tokenize", "add_generation_prompt", "dates_of_today", "return_dict")


@dataclass(frozen=True)
class Plain:
    """Rendering by filling in the template."""

    template: Template

    @property
    def before(self) -> str:
        """Text before an answer, from the last input text on."""
        return self.template.label_context[0]

    @property
    def after(self) -> str:
        """The template's text after a label word, or its separator."""
        return self.template.closing

    def pieces(self, demonstrations: Shown, query: Example) -> list[RolePiece]:
        """The template filled in for each demonstration, and up to the label word for the query."""
        return template_pieces(self.template, demonstrations, query)

    def bos(self, wanted: bool | None) -> bool | None:
        """The requested BOS setting, unchanged."""
        return wanted

    def source(self) -> dict[str, Any]:
        """Empty: the task already records its template."""
        return {}


class _Chunks(NamedTuple):
    """Text that a chat template writes around the contents of turns.

    Attributes:
        around: Text before each content, and after the last.
        answer: Text before the answer of the last turn.
        after: Text after that answer.
    """

    around: tuple[str, ...]
    answer: str
    after: str


@dataclass(frozen=True)
class Chat:
    """Each demonstration rendered as a user turn and an assistant turn by the tokenizer's chat template.

    The user turn is the task's template up to `{rationale}` or `{label}`, without trailing white space; the assistant
    turn is the rest of the template, also without trailing white space.

    Attributes:
        template: Template of the task.
        tokenizer: Hugging Face tokenizer with a chat template.
        system: The system message.
        prefill: Text between the start of the assistant's turn and its answer.
        template_kwargs: Options of the chat template, such as `enable_thinking`.
        today: Date written by chat templates that contain one; None: the template must not write a date.
    """

    template: Template
    tokenizer: Any
    system: str | None = None
    prefill: str = ""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    today: str | None = None

    def __post_init__(self) -> None:
        """Reject settings that cannot be rendered.

        Raises:
            PromptError: no chat template, an invalid text, a reserved option, or an invalid date.
        """
        check_chat(self.tokenizer, **({} if self.system is None else {"system": self.system}))
        if fault := text_fault(self.prefill, blank=True):
            raise PromptError(f"prefill= {fault}.")
        for name in self.template_kwargs:
            if name in _RESERVED:
                raise PromptError(
                    f"template_kwargs= contains {name!r}, which build_prompts sets itself; leave "
                    "it out."
                )
        if self.today is not None:
            try:
                date.fromisoformat(self.today)
            except (TypeError, ValueError):
                raise PromptError(
                    f"today={self.today!r}; expected a date such as '2026-01-01'."
                ) from None

    @property
    def before(self) -> str:
        """Text before an answer in the assistant's turn."""
        if self.template.has_rationale:
            return self.template.label_context[0]
        return self._probe.answer + self.prefill

    @property
    def after(self) -> str:
        """Text that ends the assistant's turn."""
        return self._closed + self._probe.after

    def bos(self, wanted: bool | None) -> bool | None:
        """The requested BOS setting; by default False where the chat template does not write BOS, else the tokenizer's."""
        start = str(getattr(self.tokenizer, "bos_token", None) or "")
        written = bool(start) and self._probe.around[0].startswith(start)
        return wanted if wanted is not None or written else False

    def source(self) -> dict[str, Any]:
        """The chat template and its options."""
        written = str(self.tokenizer.get_chat_template())
        return {
            "chat": {
                "template": hashlib.sha256(written.encode()).hexdigest()[:16],
                "system": self.system,
                "prefill": self.prefill,
                "template_kwargs": dict(self.template_kwargs),
                "today": self.today,
            }
        }

    def pieces(self, demonstrations: Shown, query: Example) -> list[RolePiece]:
        """Pieces of all demonstration turns, the query and the start of its answer.

        Raises:
            PromptError: a chat template that changes the contents of turns.
        """
        contents: list[list[RolePiece]] = []
        if self.system is not None:
            contents.append([RolePiece("narrative", None, self.system)])
        for demo, (example, word) in enumerate(demonstrations):
            contents += map(_stripped, _turns_of(self.template.pieces(example, word), demo))
        asked, answering = _turns_of(self.template.pieces(query, None), None)
        contents.append(_stripped(asked))
        texts = ["".join(piece.text for piece in content) for content in contents]
        chunks = self._chunks(len(demonstrations))
        rendered = self._render(self._turns(texts), generate=True)
        said_by = self._said(rendered, chunks, texts)
        made: list[RolePiece] = []
        for number, (chunk, content, text) in enumerate(
            zip(chunks, contents, said_by, strict=False)
        ):
            behind = next((p.demo for p in reversed(made) if p.demo is not None), None)
            closes = behind is not None and chunk.startswith(self._ends)
            if closes:
                made.append(RolePiece("format", behind, self._ends))
            rest = chunk[len(self._ends) * closes :]
            opening = rest.removesuffix(self._begins)
            if opening != rest:  # the system message and the text around it
                made.append(RolePiece("narrative", None, opening))
                rest = self._begins
            made.append(RolePiece("format", content[0].demo if content else None, rest))
            made += content if text == texts[number] else _stripped(content, left=True)
        opened = RolePiece("format", None, self._answer(chunks[-1]) + self.prefill)
        return [*made, opened, *answering]

    def _turns(self, texts: Sequence[str]) -> list[Turn]:
        left = list(texts)
        turns = [{"role": "system", "content": left.pop(0)}] if self.system is not None else []
        roles = ("user", "assistant")
        return turns + [{"role": roles[n % 2], "content": text} for n, text in enumerate(left)]

    def _said(self, rendered: str, chunks: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Contents of turns as rendered between the chunks: unchanged, or stripped of surrounding white space."""
        contents: list[str] = []
        place = 0
        for chunk, text in zip(chunks, texts, strict=False):
            place += len(chunk)
            kept = next((t for t in (text, text.strip()) if rendered.startswith(t, place)), None)
            if kept is None or not rendered.startswith(chunk, place - len(chunk)):
                raise PromptError(
                    f"The chat template of {_name(self.tokenizer)} changes {text[:40]!r}, or does "
                    "not render all turns alike. Write the turns into a Template yourself, or "
                    "give finished texts: prompts_from_text(texts, ..., "
                    "special_tokens='control')."
                )
            contents.append(kept)
            place += len(kept)
        return contents

    def _chunks(self, demonstrations: int) -> tuple[str, ...]:
        """Text that the chat template writes around the contents of this many demonstrations and a query."""
        if demonstrations not in self._known:
            marks = _marks(2 * demonstrations + 1 + (self.system is not None))
            rendered = self._render(self._turns(marks), generate=True)
            self._known[demonstrations] = self._divided(rendered, marks)
        return self._known[demonstrations]

    @cached_property
    def _known(self) -> dict[int, tuple[str, ...]]:
        return {}

    def _divided(self, rendered: str, marks: Sequence[str]) -> tuple[str, ...]:
        chunks: list[str] = []
        for mark in marks:
            before, there, rendered = rendered.partition(mark)
            if not there:
                raise PromptError(
                    f"The chat template of {_name(self.tokenizer)} changes or omits the content "
                    "of a turn. Leave system= out, or write the turns into a Template yourself."
                )
            chunks.append(before)
        return (*chunks, rendered)

    @cached_property
    def _probe(self) -> _Chunks:
        """Chunks of a sample conversation with two answered user turns."""
        marks = _marks(4 + (self.system is not None))
        rendered = self._render(self._turns(marks))
        around = self._divided(rendered, marks)
        return _Chunks(around, around[-2], around[-1])

    @property
    def _ends(self) -> str:
        """Text that ends an answered turn; empty if the last turn ends differently from earlier ones."""
        between, last = self._probe.around[-3], self._probe.after
        return next((end for end in (last, last.rstrip()) if between.startswith(end)), "")

    @property
    def _begins(self) -> str:
        """Text that begins a user turn."""
        return self._probe.around[-3].removeprefix(self._ends)

    def _answer(self, begun: str) -> str:
        """Text before an answer, given `begun`, the text with which the chat template opens the assistant's turn.

        A header before every answer (a channel) is included; text before the last answer only (an empty
        thought) is included only if the chat template opens the turn with it.
        """
        earlier, last = self._probe.around[-4], self._probe.answer
        return last if last == earlier and last.startswith(begun) else begun

    @property
    def _closed(self) -> str:
        """Text that the task's template writes after a label word, in the same turn."""
        return self.template.label_context[1].rstrip()

    def _render(self, turns: Sequence[Turn], generate: bool = False) -> str:
        return render(self.tokenizer, turns, generate, self.today, **self.template_kwargs)


Writing = Plain | Chat
"""Rendering of a task's texts."""


def check_chat(tokenizer: object, **said: str) -> None:
    """Reject tokenizers without a chat template, and invalid texts.

    Raises:
        PromptError: names the fault.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"The tokenizer {_name(tokenizer)} has no chat template; write the turns into a "
            "Template yourself, or use the tokenizer of an instruct model."
        )
    for name, text in said.items():
        if fault := text_fault(text):
            raise PromptError(f"{name}= {fault}.")


def render(
    tokenizer: "PreTrainedTokenizerBase",
    turns: Sequence[Turn],
    generate: bool = False,
    today: str | None = None,
    **options: Any,
) -> str:
    """Turns rendered by a tokenizer's chat template.

    Args:
        tokenizer: Tokenizer with the chat template.
        turns: Role and content of each turn.
        generate: Open the assistant's next turn.
        today: Date that the template takes as the current day.
        **options: Options of the chat template.

    Raises:
        PromptError: turns that the chat template rejects, or a date it needs and is not given.
    """
    from jinja2 import TemplateError

    template = tokenizer.get_chat_template(options.pop("chat_template", None))
    if "strftime_now" in template:
        patterns = {pattern for _, pattern in _DATES.findall(template)} if today else ()
        day = date.fromisoformat(today) if today else date.today()
        options["dates_of_today"] = {pattern: day.strftime(pattern) for pattern in patterns}
        template = _FROZEN + template
    try:
        text = tokenizer.apply_chat_template(
            list(turns),
            chat_template=template,
            tokenize=False,
            add_generation_prompt=generate,
            **options,
        )
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        if _UNDATED in str(error):
            raise PromptError(
                f"The chat template of {_name(tokenizer)} writes today's date, so prompts would "
                f"differ from day to day. Fix the date with today='{date.today().isoformat()}'."
            ) from None
        raise PromptError(
            f"The chat template of {_name(tokenizer)} rejects these turns: {error}. Leave system= "
            "out, change template_kwargs=, or write the turns into a Template yourself."
        ) from error
    return str(text)


def _turns_of(pieces: Iterable[Piece], demo: int | None) -> tuple[list[RolePiece], list[RolePiece]]:
    """Pieces of the user's turn, and those of the assistant's, which begins with the rationale or the label word."""
    said = [piece for filled in pieces for piece in with_role(filled, demo)]
    answer = ("rationale", "label_word")
    begins = next((n for n, piece in enumerate(said) if piece.role in answer), len(said))
    return said[:begins], said[begins:]


def _name(tokenizer: object) -> str:
    return repr(getattr(tokenizer, "name_or_path", ""))


def _marks(count: int) -> list[str]:
    """Placeholder contents that no template writes itself; none contains another."""
    return [f"QxMARK{number}xQ" for number in range(count)]


def _stripped(pieces: Sequence[RolePiece], *, left: bool = False) -> list[RolePiece]:
    """Pieces without trailing white space; with `left` also without leading white space."""
    kept = list(pieces)
    while kept and not (text := kept[-1].text.rstrip()):
        kept.pop()
    if kept:
        kept[-1] = kept[-1]._replace(text=text)
    while left and kept and not (text := kept[0].text.lstrip()):
        kept.pop(0)
    if left and kept:
        kept[0] = kept[0]._replace(text=kept[0].text.lstrip())
    return kept
