"""`texts`: prompts made of any texts, with spans in the place of demonstrations and classes."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

from icl_mech.checking import checked
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import check_lengths, report_inexact, tokenizer_and_limit
from icl_mech.prompts.fingerprint import tokenizer_identity
from icl_mech.prompts.laying import check_spans, lay_spans
from icl_mech.prompts.spans import Prompt
from icl_mech.prompts.splitting import Interval, Unit, split_text
from icl_mech.prompts.tokenise import PieceTokenizer, SpecialTokens
from icl_mech.tasks.types import is_index, text_fault

Counted = Literal["characters", "tokens"]
"""What given spans count."""


@checked(PromptError, but=["texts", "spans", "target", "continuation"])
def texts(
    texts: Sequence[str],
    model_or_tokenizer: Any,
    *,
    spans: Unit | Sequence[Sequence[Interval]] = "sentences",
    unit: Counted = "characters",
    target: int | Sequence[int] | None = None,
    continuation: str | Sequence[str] | None = None,
    bos: bool | None = None,
    special_tokens: SpecialTokens = "refuse",
) -> PromptBatch:
    """Prompts made of any texts: numbered spans, no demonstrations and no classes.

    Tokens in no span (BOS, what stands between given spans, a continuation) are kept apart. So is the
    first token where there is no BOS, unless spans are given: it attracts attention whatever it is.
    The target is a token of the span it stands in. Measurements that need classes refuse such prompts;
    saliency is that of the loss `next` (the token behind the target) or `rest` (all of them).

    Args:
        texts: The texts.
        model_or_tokenizer: Model (its context length is respected) or tokenizer.
        spans: `sentences`, `lines`, `paragraphs`, reasoning `steps`, `turns` of a dialogue or
            `items` of a list, see `icl_mech.prompts.splitting`; or for each text a list of
            half-open intervals, ascending and apart.
        unit: What given intervals count: `characters` of the text, or its `tokens` (without BOS).
        target: Position whose next token is predicted, as one number for all texts or one for
            each, counted in tokens from the first (BOS is one); None: the last token of the text.
        continuation: What is predicted from the text's last token on, for all texts or one for
            each. It follows the text, so it begins with its own blank, and is in no span.
        bos: Put a BOS token first; None: what the tokenizer does by itself.
        special_tokens: What `<|im_end|>` and the like in the texts are: the tokens (`control`), as
            in texts of a chat template; their letters (`text`); or an error (`refuse`).

    Raises:
        PromptError: no texts, a text with fewer than two spans, spans that are empty, overlap or
            leave the text, a target before the end of the first span, an empty continuation, or a
            prompt longer than the model's context.
    """
    given = _listed(texts)
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    pieces = PieceTokenizer(tokenizer, special_tokens)
    intervals = _intervals(given, spans, unit)
    targets = _each("target", target, len(given), is_index, "a position")
    rests = _each("continuation", continuation, len(given), lambda x: isinstance(x, str), "a text")
    if target is not None and continuation is not None:
        raise PromptError(
            "target= and continuation= were both given; a continuation is predicted from the text's "
            "last token on. Leave one of them out."
        )
    prompts = []
    for number, (text, own) in enumerate(zip(given, intervals, strict=True)):
        parts = _Parts(pieces, text, bos, number)
        laid = parts.by_token(own) if unit == "tokens" and own is not None else parts.by_text(own)
        if isinstance(spans, str) and laid and laid[0][0] == 0 and laid[0][1] > 1:
            laid[0] = (1, laid[0][1])
        prompts.append(parts.prompt(laid, targets[number], rests[number]))
    check_lengths(prompts, limit)
    report_inexact(prompts)
    source = {
        "task": {"name": "texts"}, "n": len(given),
        "spans": spans if isinstance(spans, str) else f"given in {unit}",
        "bos": any(prompt.spans[0].role == "bos" for prompt in prompts),
        "continued": continuation is not None,
        "exact_tokens": all(prompt.exact for prompt in prompts),
        "tokenizer": tokenizer_identity(tokenizer),
    }  # fmt: skip
    return PromptBatch(tuple(prompts), source)


class _Parts:
    """One text as pieces that are tokenised apart, so that spans are exact."""

    def __init__(self, pieces: PieceTokenizer, text: str, bos: bool | None, number: int) -> None:
        self.pieces, self.text, self.number = pieces, text, number
        begun = pieces.begun(text, bos, template=False)
        start = () if begun else pieces.start_tokens(bos)
        self.tokens: list[int] = list(start)
        self.bos = begun or len(start)
        self.put = len(start)
        self.read: list[str] = []

    def by_text(self, intervals: Sequence[Interval] | None) -> list[Interval]:
        """Token spans of character spans; blanks before a span belong to it."""
        laid: list[Interval] = []
        end = 0
        own = [] if intervals is None else list(intervals)
        for number, (start, stop) in enumerate(own):
            gap = self.text[end:start]
            blanks = len(gap) - len(gap.rstrip(" "))
            self._add(self.text[end : start - blanks], self.text[start - blanks :])
            first = len(self.tokens)
            self._add(self.text[start - blanks : stop], self.text[stop:])
            if len(self.tokens) == first:
                raise PromptError(
                    f"Span {number} of text {self.number} ({self.text[start:stop].strip()[:40]!r}) has "
                    "no token: the tokenizer drops all its characters. Join it to another span."
                )
            laid.append((first, len(self.tokens)))
            end = stop
        self._add(self.text[end:], "")
        return laid

    def by_token(self, intervals: Sequence[Interval]) -> list[Interval]:
        """Token spans as they were given, behind BOS."""
        self._add(self.text, "")
        check_spans(len(self.tokens) - self.put, intervals, "token", f" of text {self.number}")
        return [(start + self.put, stop + self.put) for start, stop in intervals]

    def prompt(
        self, laid: Sequence[Interval], target: int | None, continuation: str | None
    ) -> Prompt:
        """The prompt, with what is predicted behind it.

        Raises:
            PromptError: fewer than two spans, a bad target or an empty continuation.
        """
        if len(laid) < 2:
            raise PromptError(
                f"Text {self.number} has {len(laid)} span{'s' * (len(laid) != 1)} "
                f"({self.text.strip()[:40]!r}); it takes two, of which one can matter for the other. "
                "Choose smaller spans, or leave the text out."
            )
        last = len(self.tokens) - 1
        if continuation is not None:
            if not continuation.strip():
                raise PromptError(
                    f"The continuation of text {self.number} is empty; give the text that is to be "
                    "predicted, or leave continuation= out."
                )
            self._add(continuation, "")
            target = last
        try:
            spans = lay_spans(
                len(self.tokens), laid, last if target is None else target, bos=self.bos
            )
        except PromptError as error:
            raise PromptError(f"Text {self.number}: {error}") from None
        ids = tuple(self.tokens)
        exact = self.pieces.gives(ids[self.put :], [(text, False) for text in self.read])
        return Prompt(ids, spans, (), (), pieces=self.pieces.words(ids), exact=exact)

    def _add(self, text: str, following: str) -> None:
        if text:
            first = len(self.tokens) == self.put
            self.tokens += self.pieces.piece(text, first=first, following=following)
            self.read.append(text)


def _listed(given: Any) -> list[str]:
    if isinstance(given, str | bytes):
        raise PromptError("texts is one string; give a list of texts, for one text [text].")
    if not isinstance(given, Iterable):
        raise PromptError(f"texts is a {type(given).__name__}; give a list of texts.")
    listed = list(given)
    if not listed:
        raise PromptError("texts is empty; give one text at least.")
    for number, text in enumerate(listed):
        if fault := text_fault(text):
            raise PromptError(f"Text {number} {fault}.")
    return listed


def _intervals(given: Sequence[str], spans: Any, unit: Counted) -> list[list[Interval] | None]:
    """Checked intervals of each text, in characters or tokens."""
    if isinstance(spans, str):
        if unit != "characters":
            raise PromptError(
                f"unit={unit!r} is for given spans; leave it out with spans={spans!r}."
            )
        return [split_text(text, cast("Unit", spans)) for text in given]
    if not isinstance(spans, Sequence) or isinstance(spans, bytes):
        raise PromptError(
            f"spans={spans!r}; expected one of {', '.join(get_args(Unit))}, or a list of intervals "
            "for each text."
        )
    if len(spans) != len(given):
        raise PromptError(f"{len(given)} texts but {len(spans)} lists of spans; give one per text.")
    found: list[list[Interval] | None] = []
    for number, (text, own) in enumerate(zip(given, spans, strict=True)):
        pairs = [tuple(pair) if isinstance(pair, list | tuple) else pair for pair in own] if (
            isinstance(own, Sequence) and not isinstance(own, str)
        ) else [own]  # fmt: skip
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(is_index, pair))):
                raise PromptError(
                    f"The spans of text {number} hold {pair!r}; expected pairs (start, stop) of whole "
                    f"numbers, which count {unit}."
                )
        plain = [(int(start), int(stop)) for start, stop in pairs]
        if unit == "characters":
            check_spans(len(text), plain, "character", f" of text {number}")
        found.append(plain)
    return found


def _each(name: str, given: Any, count: int, fits: Any, what: str) -> list[Any]:
    """One value for each text."""
    if given is None or fits(given):
        return [given] * count
    listed = getattr(given, "tolist", lambda: given)()
    if isinstance(listed, str) or not isinstance(listed, Sequence) or not all(map(fits, listed)):
        raise PromptError(f"{name}={given!r}; expected {what}, one for all texts or one for each.")
    if len(listed) != count:
        raise PromptError(f"{count} texts but {len(listed)} in {name}=; give one per text.")
    return list(listed)
