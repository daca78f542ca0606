"""`Prompt`: a text, its tokens and the role of every token, fixed when the prompt is built.

Every prompt has *anchors*, positions that aggregate a unit (a demonstration, a sentence), and an
*answer*: the prediction at the target position and the words it is scored against.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from icl_mech.checking import checked
from icl_mech.errors import PromptError, near_matches
from icl_mech.prompts.roles import ROLES, Role, Span, lay_labels, lay_spans
from icl_mech.tasks import Example

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

__all__ = [
    "ANSWER_KINDS",
    "ROLES",
    "AnswerKind",
    "Candidate",
    "Prompt",
    "Role",
    "Span",
    "WordScore",
    "check_first_tokens",
]

AnswerKind = Literal["classes", "choices", "vocabulary"]
"""Words the answer is scored against: classes of the batch, choices of the prompt, or the vocabulary."""

ANSWER_KINDS: tuple[AnswerKind, ...] = get_args(AnswerKind)
Decode = Callable[..., object] | None

WordScore = Literal["first", "sum", "mean"]
"""Score of a candidate with several tokens: its first token, the sum or the mean of log P over all tokens."""


class Candidate(NamedTuple):
    """Possible continuation of a prompt: the rest of a class's label word, or of a choice.

    Attributes:
        label: Name of the class or choice.
        text: Characters that follow the prompt's text.
        tokens: Ids that follow the prompt's target.
    """

    label: str
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Prompt:
    """One prompt: demonstrations with their answers, then a query whose answer is predicted.

    Or a text with spans (see `texts`), whose answer is the next token.

    Attributes:
        tokens: Token ids, without padding.
        spans: Cover the prompt, in order, without overlap.
        label_classes: Class displayed by each demonstration, in prompt order; in a prompt with choices,
            the index of the displayed choice.
        label_words: Token ids that follow the target for each word the answer is scored against: label
            words in class order; or the prompt's choices, the correct one first.
        answer: True class of the query, if known.
        false_answer: Class predicted by following the false demonstrations, if defined.
        labels: Names of the classes or choices.
        pieces: Characters that each token adds to the text; empty for later tokens of a multi-token character.
        exact: False if tokenising the whole text at once would give different tokens.
        kind: Words the answer is scored against; None: `classes`, for a text `vocabulary`.
        accepted: For free-form answers, the token ids of each accepted answer.
        sections: Spans of a text whose tokens have the roles of demonstrations.
        given_anchors: Anchors that override those of the roles.
        text: The tokenised text, without tokens that the tokenizer puts before every text.
        parts: Roles of the characters of `text`; empty if unknown.
        candidate_texts: Characters that follow `text` with each of `label_words`.
        score: How candidates are scored.
    """

    tokens: tuple[int, ...]
    spans: tuple[Span, ...]
    label_classes: tuple[int, ...]
    label_words: tuple[tuple[int, ...], ...]
    answer: int | None = None
    false_answer: int | None = None
    labels: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    exact: bool = True
    kind: AnswerKind | None = None
    accepted: tuple[tuple[int, ...], ...] = ()
    sections: tuple[tuple[int, int], ...] = ()
    given_anchors: tuple[int, ...] | None = None
    text: str = ""
    parts: tuple[Span, ...] = ()
    candidate_texts: tuple[str, ...] = ()
    score: WordScore = "first"

    def __post_init__(self) -> None:
        """Check the invariants that every analysis relies on.

        Raises:
            PromptError: spans that do not tile the prompt, classes out of range, label
                words that share their first token.
        """
        end = 0
        for span in self.spans:
            if span.start != end or span.stop <= span.start:
                raise PromptError(
                    f"Spans must tile the prompt without gaps; {span} follows a span ending at {end}."
                )
            end = span.stop
        if end != len(self.tokens):
            raise PromptError(f"Spans end at {end}, but the prompt has {len(self.tokens)} tokens.")
        if sum(span.stop - span.start for span in self.spans if span.role == "target") != 1:
            raise PromptError("A prompt needs exactly one target token, where its answer is read.")
        if min(self.tokens) < 0:
            raise PromptError(
                f"The prompt contains the token id {min(self.tokens)}; ids start at 0."
            )
        n_labels = len(self.label_words)
        if len(self.label_classes) != sum(span.role == "label_word" for span in self.spans):
            raise PromptError(
                f"{len(self.label_classes)} label classes for "
                f"{sum(span.role == 'label_word' for span in self.spans)} label words in the "
                "prompt; give one class for each."
            )
        for what, value in (
            *(("label class", label) for label in self.label_classes),
            ("answer", self.answer),
            ("false answer", self.false_answer),
        ):
            if value is not None and not 0 <= value < n_labels:
                raise PromptError(f"The {what} {value} is not one of the {n_labels} classes.")
        if self.score == "first":
            check_first_tokens(self.label_words, self.labels)
        if self.kind is None:
            object.__setattr__(self, "kind", usual_kind(self.label_words))
        self._check_kind()
        if not self.labels:
            object.__setattr__(self, "labels", tuple(f"class {c}" for c in range(n_labels)))
        if not self.text:
            object.__setattr__(self, "text", self.written())

    def _check_kind(self) -> None:
        """Reject words that do not match the kind of answer."""
        if self.kind not in ANSWER_KINDS:
            raise PromptError(
                f"kind={self.kind!r} is not a kind of answer. "
                f"{near_matches(self.kind, ANSWER_KINDS)}"
            )
        count = len(self.label_words)
        if self.kind != "vocabulary" and not count:
            raise PromptError(
                f"A prompt of kind {self.kind!r} needs words to score its answer against; give "
                "label words, or the prompt's choices."
            )
        if any(not word for word in self.accepted):
            raise PromptError("An accepted answer has no token; leave it out, or write it in full.")
        if self.kind == "choices" and self.answer:
            raise PromptError(
                "The correct answer of a prompt with choices must be its first choice, not "
                f"number {self.answer}."
            )

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def target(self) -> int:
        """Position whose next-token prediction is the answer."""
        return next(span.start for span in self.spans if span.role == "target")

    def written(self) -> str:
        """Text of the joined pieces, without a BOS token."""
        first = self.spans[0]
        return "".join(self.pieces[first.stop if first.role == "bos" else 0 :])

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Possible continuations, in class order; for choices, the correct one first."""
        texts = self.candidate_texts or ("",) * len(self.label_words)
        return tuple(map(Candidate, self.labels, texts, self.label_words))

    @property
    def shared_tokens(self) -> tuple[int, ...]:
        """Positions of tokens that span two roles, such as `.` and a line break in one token."""
        if not self.parts:
            return ()
        first = self.spans[0]
        put = first.stop if first.role == "bos" != self.parts[0].role else 0
        ends = [0, *accumulate(map(len, self.pieces[put:]))]
        edges = [part.stop for part in self.parts[:-1]]
        positions = []
        for position, (start, stop) in enumerate(pairwise(ends), start=put):
            cuts = [start, *(edge for edge in edges if start < edge < stop), stop]
            if sum(bool(self.text[a:b].strip(" ")) for a, b in pairwise(cuts)) > 1:
                positions.append(position)
        return tuple(positions)

    @property
    def label_tokens(self) -> tuple[int, ...]:
        """First token of each candidate, in class order."""
        return tuple(word[0] for word in self.label_words)

    @property
    def label_spans(self) -> tuple[Span, ...]:
        """Spans of the demonstrations' label words, in prompt order."""
        return tuple(span for span in self.spans if span.role == "label_word")

    @property
    def label_positions(self) -> tuple[int, ...]:
        """First token of each demonstration's label word, in prompt order."""
        return tuple(span.start for span in self.label_spans)

    @property
    def anchors(self) -> tuple[int, ...]:
        """Position that aggregates each unit before the target, in prompt order.

        The first token of each displayed label word or answer; in a text, the last token of each span.
        """
        if self.given_anchors is not None:
            positions = self.given_anchors
        elif self.label_spans:
            positions = self.label_positions
        else:
            positions = tuple(stop - 1 for _, stop in self.text_spans)
        return tuple(position for position in positions if position < self.target)

    @property
    def units(self) -> tuple[tuple[int, int], ...]:
        """Half-open token interval of each anchor's demonstration or span, up to the anchor.

        In prompts made from bare positions: the tokens between two anchors. The first token of the
        prompt belongs to no unit.
        """
        known = {span.demo: span.start for span in reversed(self.spans) if span.demo is not None}
        numbers = [-1 if span.demo is None else span.demo for span in self.label_spans]
        spans = [start for start, _ in self.text_spans]
        ends = [1, *(span.stop for span in self.label_spans)]
        units: list[tuple[int, int]] = []
        for number, anchor in enumerate(self.anchors):
            if not self.label_spans:
                start = spans[number]
            elif self.has_text_roles:
                start = known.get(numbers[number], ends[number])
            else:
                start = ends[number]
            units.append((min(max(start, 1), anchor), anchor))
        return tuple(units)

    @property
    def text_spans(self) -> tuple[tuple[int, int], ...]:
        """Token intervals of a text's spans, in order; none for prompts with demonstrations.

        The target belongs to the span that contains it.
        """
        intervals: dict[int, tuple[int, int]] = {}
        if self.sections:
            return self.sections
        if any(span.role == "span" for span in self.spans) or not self.label_words:
            for span in self.spans:
                if span.demo is not None:
                    start, _ = intervals.get(span.demo, (span.start, span.stop))
                    intervals[span.demo] = (start, span.stop)
        return tuple(intervals.values())

    @property
    def has_text_roles(self) -> bool:
        """False for prompts made from bare positions; tokens after a target with candidates need no role."""
        end = len(self) if self.kind == "vocabulary" else self.target
        return all(span.role != "unknown" for span in self.spans if span.start <= end)

    def examples(self, tokenizer: object = None) -> tuple[tuple[Example, ...], Example]:
        """Demonstrations, each with the class or answer it displays, and the query with its true answer.

        `build_prompts(task, model, demonstrations=demonstrations, queries=[query])` rebuilds the same prompt
        from them; for incorrect free-form answers also pass `choices=`, the prompt's `labels` other than the
        query's own answers. Texts of `prompts_from_text` also contain the template's words.

        Args:
            tokenizer: Needed for queries with several correct answers, and for prompts saved by earlier versions
                whose texts have characters of several tokens (😀).

        Raises:
            PromptError: unknown answers, answers that are not classes, or texts whose characters or roles are
                incomplete.
        """
        if self.kind == "vocabulary" or self.answer is None:
            problem = f"the answer of this prompt is {self.answer}, scored against {self.kind}"
            raise PromptError(f"Examples need a class or a free-form answer, but {problem}.")
        decode: Decode = getattr(tokenizer, "decode", None)
        pairs = zip(self.label_spans, self.label_classes, strict=True)
        shown = tuple(self._example("demo_text", span.demo, c, decode) for span, c in pairs)
        query = self._example("query_text", None, self.answer, decode)
        also = [word for word in self.accepted if word != self.label_words[self.answer]]
        if also and decode is None:
            raise PromptError(
                "The query has several accepted answers; give the tokenizer, which decodes them."
            )
        answers = (*query.answers, *(_read(decode, word) for word in also if decode))
        if self.kind == "choices" and self.false_answer is not None:
            query = replace(query, other=self.labels[self.false_answer])
        return shown, replace(query, answers=answers)

    def _example(self, role: Role, demo: int | None, label: int, decode: "Decode") -> Example:
        if self.parts:
            parts = [part for part in self.parts if (part.role, part.demo) == (role, demo)]
            texts = [self.text[part.start : part.stop] for part in parts]
        else:
            spans = [span for span in self.spans if (span.role, span.demo) == (role, demo)]
            pieces = ["".join(self.pieces[span.start : span.stop]).strip() for span in spans]
            ids = [self.tokens[span.start : span.stop] for span in spans]
            texts = pieces if decode is None else [_read(decode, token_ids) for token_ids in ids]
        reasons = None
        if self.parts:
            said = [p for p in self.parts if (p.role, p.demo) == ("rationale", demo)]
            reasons = "".join(self.text[p.start : p.stop] for p in said) or None
        cut = decode is None and re.search("�|⟨[0-9A-F]{2}⟩", str(texts))
        if len(texts) not in (1, 2) or not all(texts) or cut:
            raise PromptError(
                f"The {role} of a prompt reads {texts}; expected one text or two. Build prompts "
                "with build_prompts, and give the tokenizer if characters span several tokens."
            )
        text, text2 = (*texts, None)[:2]
        if self.kind == "choices":
            return Example(str(text), 0, text2, (self.labels[label],), rationale=reasons)
        return Example(str(text), label, text2, rationale=reasons)

    def view(
        self,
        values: Sequence[float] | None = None,
        *,
        name: str = "",
        low: float | None = None,
        high: float | None = None,
        limit: int | None = 1000,
    ) -> "View":
        """The text in a notebook, coloured by role or by a value for each token.

        Args:
            values: One number for each token, NaN where there is none: saliency, attention, ...
            name: Name of the values.
            low: Value of the lowest colour; default 0, or symmetric about 0 if there are negative values.
            high: Value of the highest colour; default the largest value.
            limit: Number of tokens shown, from the beginning and the end; None: all.

        Raises:
            ResultError: not one value for each token, or no scale.
        """
        from icl_mech.plots.prompt_view import prompt_view

        return prompt_view(self, values, name=name, low=low, high=high, limit=limit)

    def arcs(self, matrix: object, *, name: str = "weight", top: int = 30) -> "View":
        """The strongest edges between tokens as arcs, in a notebook.

        Args:
            matrix: Weight of each edge, `[dest, src]`, not negative; the diagonal is left out.
            name: Name of the weights, such as `saliency in layer 8`.
            top: Maximum number of edges drawn; the figure states the fraction of the total they hold.

        Raises:
            ResultError: a matrix of another shape, with negative weights or with edges from
                later tokens.
        """
        from icl_mech.plots.arcs import arcs_view

        return arcs_view(self, matrix, name=name, top=top)

    def _repr_html_(self) -> str:
        return self.view().html

    @classmethod
    @checked(PromptError)
    def from_positions(
        cls,
        tokens: Sequence[int],
        *,
        label_positions: Sequence[int],
        label_classes: Sequence[int],
        label_tokens: Sequence[int],
        label_lengths: Sequence[int] | None = None,
        answer: int | None = None,
        false_answer: int | None = None,
        target: int | None = None,
    ) -> "Prompt":
        """A prompt from raw ids and the positions of its label words.

        Args:
            tokens: Token ids.
            label_positions: First token of each demonstration's label word, in prompt order.
            label_classes: Class each of them displays.
            label_tokens: First token id of each class's label word, in class order.
            label_lengths: Number of tokens of each label word (default 1).
            answer: True class of the query.
            false_answer: Class predicted by following the false demonstrations.
            target: Position the answer is read at (default: the last token).

        Such a prompt has no text roles; analyses that need them reject it.

        Raises:
            PromptError: positions out of order or range, one of them at the target, or a value
                that is not a whole number.
        """
        lengths = [1] * len(label_positions) if label_lengths is None else label_lengths
        last = len(tokens) - 1
        target = last if target is None else target
        if not len(label_positions) == len(label_classes) == len(lengths):
            raise PromptError(
                f"{len(label_positions)} label positions, {len(label_classes)} classes and "
                f"{len(lengths)} lengths; one of each is needed per demonstration."
            )
        if not 0 <= target <= last:
            raise PromptError(f"Target {target} lies outside a prompt of {len(tokens)} tokens.")
        spans = lay_labels(len(tokens), label_positions, lengths, target)
        return cls(
            tuple(tokens),
            spans,
            tuple(label_classes),
            tuple((token,) for token in label_tokens),
            answer=answer,
            false_answer=false_answer,
        )

    @classmethod
    @checked(PromptError)
    def from_spans(
        cls,
        tokens: Sequence[int],
        spans: Sequence[tuple[int, int]],
        *,
        target: int | None = None,
        pieces: Sequence[str] = (),
    ) -> "Prompt":
        """A text without classes, from raw ids and its spans.

        Args:
            tokens: Token ids.
            spans: Half-open token intervals, ascending, without overlap; tokens outside all spans
                are kept apart.
            target: Position whose next token is predicted (default: the last token).
            pieces: Text of every token, for figures.

        Raises:
            PromptError: no spans, or spans that are empty, overlap or leave the text; a target
                outside of the text or before the end of the first span.
        """
        return cls(
            tuple(tokens), lay_spans(len(tokens), spans, target), (), (), pieces=tuple(pieces)
        )


def _read(decode: Callable[..., object], ids: Sequence[int]) -> str:
    return str(decode(list(ids), clean_up_tokenization_spaces=False)).strip()


def usual_kind(label_words: Sequence[object]) -> AnswerKind:
    """Default kind of answer, given the label words."""
    return "classes" if label_words else "vocabulary"


def check_first_tokens(words: Sequence[Sequence[int]], labels: Sequence[str] = ()) -> None:
    """Reject label words that share their first token.

    Raises:
        PromptError: names the two label words.
    """
    seen: dict[int, int] = {}
    for label, word in enumerate(words):
        earlier = seen.setdefault(word[0], label)
        if earlier != label:
            first, second = (repr(labels[c]) if labels else f"class {c}" for c in (earlier, label))
            raise PromptError(
                f"The label words {first} and {second} begin with the same token "
                f"(id {word[0]}), so one prediction cannot tell them apart. Score whole words, with "
                "score='sum' or score='mean', or choose other words."
            )
