"""`texts`: prompts from arbitrary texts, with spans instead of demonstrations and classes."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast, get_args

from icl_mech.checking import checked
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import finished, listed, tokenizer_and_limit
from icl_mech.prompts.encoding import Interval, SpecialTokens, TextTokenizer
from icl_mech.prompts.laying import lay_out
from icl_mech.prompts.roles import Role, Span, check_spans, lay_spans
from icl_mech.prompts.spans import Prompt
from icl_mech.prompts.splitting import Unit, split_text
from icl_mech.tasks.types import is_index, text_fault

Counted = Literal["characters", "tokens"]
"""Unit in which given spans are counted."""

Part = Literal["span", "anchor"]
"""Type of the given intervals."""

BEHIND = "behind anchors"
"""Splitting rule of texts with given anchors."""

CONTINUATION: Role = "format"
"""Role of the characters predicted after a text."""


@checked(PromptError, but=["texts", "spans", "anchors", "target", "continuation"])
def texts(
    texts: Sequence[str],
    model_or_tokenizer: object,
    *,
    spans: Unit | Sequence[Sequence[Interval]] = "sentences",
    anchors: Sequence[Sequence[str | Interval]] | None = None,
    unit: Counted = "characters",
    target: int | Sequence[int] | None = None,
    continuation: str | Sequence[str] | None = None,
    bos: bool | None = None,
    special_tokens: SpecialTokens = "refuse",
) -> PromptBatch:
    """Prompts from arbitrary texts: numbered spans, no demonstrations and no classes.

    Tokens outside all spans (BOS, text between given spans, a continuation) are kept apart. So is the
    first token where there is no BOS, unless spans are given: it attracts attention whatever it is.
    The target belongs to the span that contains it. Measurements that need classes reject such prompts;
    saliency uses the loss `next` (the token after the target) or `rest` (all tokens after it).

    Args:
        texts: The texts.
        model_or_tokenizer: Model (its context length is respected) or tokenizer.
        spans: `sentences`, `lines`, `paragraphs`, reasoning `steps`, dialogue `turns` or `items` of a list, see
            `icl_mech.prompts.splitting`; or for each text half-open intervals, ascending and without overlap.
        anchors: Alternatively, for each text a list of strings that occur in it once, or such intervals. The
            last token of each is an anchor that ends a span; the text after the last anchor is the last span.
        unit: Unit of given intervals: `characters` of the text, or its `tokens` (without BOS).
        target: Position whose next token is predicted, one number for all texts or one for
            each, counted in tokens from the first (BOS included); None: the last token of the text.
        continuation: Text to predict from the last token on, one for all texts or one for
            each. It follows the text directly, so it starts with its own space, and is in no span.
        bos: Prepend a BOS token; None: the tokenizer's default.
        special_tokens: How `<|im_end|>` and the like in the texts are read: as the tokens (`control`), as
            in texts of a chat template; as plain characters (`text`); or an error (`refuse`).

    Raises:
        PromptError: no texts, a text with fewer than two spans, spans or anchors that are empty, overlap or leave it,
            anchors that do not occur exactly once and before the target, a target before the first span's end, an
            empty continuation, or a prompt longer than the model's context.
    """
    given = _given(texts)
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    reader = TextTokenizer(tokenizer, special_tokens)
    intervals, how = _intervals(given, spans, anchors, unit)
    ends = _ends(len(given), target, continuation)
    prompts = []
    for number, (text, bounds, end) in enumerate(zip(given, intervals, ends, strict=True)):
        prompts.append(_prompt(reader, _Text(text, number, bounds, unit, how), bos, *end))
    return finished(prompts, _source(prompts, how, continuation is not None), tokenizer, limit)


def _given(texts: Sequence[str]) -> list[str]:
    given = listed(texts, "text")
    if not given:
        raise PromptError("texts is empty; give at least one text.")
    return given


def _source(prompts: Sequence[Prompt], spans: str, continued: bool) -> dict[str, object]:
    return {
        "task": {"name": "texts"},
        "n": len(prompts),
        "spans": spans,
        "bos": any(prompt.spans[0].role == "bos" for prompt in prompts),
        "continued": continued,
    }


def _ends(count: int, target: object, continuation: object) -> list[tuple[Any, Any]]:
    """Target and continuation of each text."""
    targets = _each("target", target, count, is_index, "a position")
    rests = _each("continuation", continuation, count, lambda x: isinstance(x, str), "a text")
    if target is not None and continuation is not None:
        raise PromptError(
            "target= and continuation= were both given, but a continuation is always predicted "
            "from the text's last token on. Leave one of them out."
        )
    return list(zip(targets, rests, strict=True))


class _Text(NamedTuple):
    """A text and the intervals it is split into.

    Attributes:
        text: The text.
        number: Its index, for messages.
        intervals: Its spans, or its anchors.
        unit: Unit of the intervals.
        how: How the intervals were chosen.
    """

    text: str
    number: int
    intervals: Sequence[Interval]
    unit: Counted
    how: str

    @property
    def what(self) -> Part:
        """Type of the intervals."""
        return "anchor" if self.how == BEHIND else "span"

    def cut(self, count: int) -> list[Interval]:
        """Spans of a text of `count` characters or tokens; given anchors end their spans."""
        if self.what == "span":
            return [*self.intervals]
        return list(pairwise(sorted({0, *(stop for _, stop in self.intervals), count})))


def _prompt(
    reader: TextTokenizer,
    passage: _Text,
    bos: bool | None,
    target: int | None,
    continuation: str | None,
) -> Prompt:
    """Prompt of one text: its tokens, its spans and the continuation to predict.

    Raises:
        PromptError: a span without a token, fewer than two spans, a bad target, an anchor that is not before it, or
            an empty continuation.
    """
    if continuation is not None and (fault := text_fault(continuation)):
        raise PromptError(
            f"The continuation of text {passage.number} {fault}; give the text to predict, or "
            "leave continuation= out."
        )
    whole = passage.text + (continuation or "")
    cuts = [] if passage.unit == "tokens" else passage.cut(len(passage.text))
    parts = _parts(cuts, len(passage.text), len(whole))
    laid = lay_out(reader, whole, parts, reader.encode(whole, [(0, len(whole))]), bos)
    put = laid.spans[0].stop if laid.spans[0].role == "bos" else 0
    stop = max(span.stop for span in laid.spans if span.role != CONTINUATION)
    if passage.unit == "tokens":
        check_spans(
            stop - put, passage.intervals, "token", f" of text {passage.number}", passage.what
        )
        spans = [(start + put, end + put) for start, end in passage.cut(stop - put)]
    else:
        spans = [_tokens_of(laid.spans, number, passage, cut) for number, cut in enumerate(cuts)]
    if passage.how != f"given in {passage.unit}" and spans and spans[0][0] == 0 and spans[0][1] > 1:
        spans[0] = (1, spans[0][1])
    end = stop - 1 if target is None else target
    _check_ends(spans, passage, end)
    try:
        tokens = lay_spans(len(laid.ids), spans, end, bos=put)
    except PromptError as error:
        raise PromptError(f"Text {passage.number}: {error}") from None
    return Prompt(laid.ids, tokens, (), (), pieces=laid.pieces, text=whole, parts=laid.parts)


def _parts(cuts: Sequence[Interval], length: int, whole: int) -> tuple[Span, ...]:
    """Character intervals of the spans, the text between them and a continuation, with their roles."""
    parts: list[Span] = []
    end = 0
    for number, (start, stop) in enumerate(cuts):
        parts += [Span("unknown", None, end, start)] * (start > end)
        parts.append(Span("span", number, start, stop))
        end = stop
    parts += [Span("unknown", None, end, length)] * (length > end)
    return (*parts, *[Span(CONTINUATION, None, length, whole)] * (whole > length))


def _tokens_of(spans: Sequence[Span], number: int, passage: _Text, cut: Interval) -> Interval:
    """Token interval of a span.

    Raises:
        PromptError: the span has no token.
    """
    matches = [span for span in spans if span.role == "span" and span.demo == number]
    if not matches:
        start, stop = cut
        raise PromptError(
            f"Span {number} of text {passage.number} ({passage.text[start:stop].strip()[:40]!r}) "
            "has no token: the tokenizer drops all its characters, or merges them with the "
            "characters before. Merge it with another span."
        )
    return matches[0].start, matches[-1].stop


def _check_ends(spans: Sequence[Interval], passage: _Text, target: int) -> None:
    """Reject anchors at or after the target, and texts with fewer than two spans.

    Raises:
        PromptError: names the anchor or text.
    """
    anchors = len(passage.intervals) if passage.what == "anchor" else 0
    for number, (_, stop) in enumerate(spans[:anchors]):
        if not 0 < stop - 1 < target:
            raise PromptError(
                f"Anchor {number} of text {passage.number} ends at token {stop - 1}, and the "
                f"answer is read at token {target}; anchors must lie after the first token and "
                "before the target. Choose another anchor, or a later target=."
            )
    if len(spans) < 2:
        raise PromptError(
            f"Text {passage.number} has {len(spans)} span{'s' * (len(spans) != 1)} "
            f"({passage.text.strip()[:40]!r}); at least two are needed. Choose smaller spans, or "
            "leave the text out."
        )


def _intervals(
    given: Sequence[str], spans: object, anchors: object, unit: Counted
) -> tuple[list[list[Interval]], str]:
    """Checked spans or anchors of each text, in characters or tokens, and how the texts are split."""
    what: Part = "span" if anchors is None else "anchor"
    if anchors is not None:
        if not isinstance(spans, str) or spans != "sentences":
            raise PromptError(
                "spans= and anchors= were both given, but anchors already determine the spans. "
                "Leave one of them out."
            )
        spans = anchors
    if isinstance(spans, str) and what == "span":
        if unit != "characters":
            raise PromptError(
                f"unit={unit!r} applies to given intervals only; leave it out with spans={spans!r}."
            )
        return [split_text(text, cast("Unit", spans)) for text in given], spans
    if not isinstance(spans, Sequence) or isinstance(spans, str | bytes):
        named = f"one of {', '.join(get_args(Unit))}, or " * (what == "span")
        raise PromptError(f"{what}s={spans!r}; expected {named}a list of intervals for each text.")
    if len(spans) != len(given):
        raise PromptError(
            f"{len(given)} texts but {len(spans)} lists of {what}s; give one per text."
        )
    by_words = what == "anchor" and unit == "characters"
    intervals: list[list[Interval]] = []
    for number, (text, marks) in enumerate(zip(given, spans, strict=True)):
        several = isinstance(marks, Sequence) and not isinstance(marks, str)
        listed = marks if several else [marks]
        pairs = [tuple(pair) if isinstance(pair, list) else pair for pair in listed]
        if by_words:
            pairs = [
                _place(text, mark, number) if isinstance(mark, str) else mark for mark in pairs
            ]
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(is_index, pair))):
                raise PromptError(
                    f"The {what}s of text {number} contain {pair!r}; expected "
                    f"{'words of the text, or ' * by_words}pairs (start, stop) of whole numbers, "
                    f"counted in {unit}."
                )
        plain = [(int(start), int(stop)) for start, stop in pairs]
        if unit == "characters":
            check_spans(len(text), plain, "character", f" of text {number}", what)
        intervals.append(plain)
    return intervals, f"given in {unit}" if anchors is None else BEHIND


def _place(text: str, words: str, number: int) -> Interval:
    """Character interval of a string that occurs once in a text."""
    places = [match.start() for match in re.finditer(f"(?={re.escape(words)})", text)]
    if len(places) != 1:
        where = f" (at characters {', '.join(map(str, places[:5]))})" * bool(places)
        raise PromptError(
            f"The anchor {words!r} occurs {len(places)} times in text {number}{where}; an anchor "
            "given as a string must occur exactly once. Include more of the text before it, or "
            "give (start, stop) in characters."
        )
    return places[0], places[0] + len(words)


def _each(
    name: str, given: object, count: int, fits: Callable[[object], bool], what: str
) -> list[Any]:
    """One value for each text."""
    if given is None or fits(given):
        return [given] * count
    listed = getattr(given, "tolist", lambda: given)()
    if isinstance(listed, str) or not isinstance(listed, Sequence) or not all(map(fits, listed)):
        raise PromptError(f"{name}={given!r}; expected {what}, one for all texts or one for each.")
    if len(listed) != count:
        raise PromptError(f"{count} texts but {len(listed)} in {name}=; give one per text.")
    return list(listed)
