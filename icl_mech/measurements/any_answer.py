"""Prompts with answers of any kind, converted for measurements of demonstrations.

A text becomes a prompt with demonstrations: each span before the target is a unit whose last token is its
*anchor*, and the query is the text after the last span. Its answer is the *followed* token: the next token of
the text, where there is one, else the top token of the unmodified model. Its *rival* is the most likely
other token in the same unmodified run. A prediction is one of the two, or neither, so a prediction under an
intervention is unchanged exactly where the greedy token is.
"""

from collections.abc import Sequence
from dataclasses import replace

from icl_mech._typing import Int, Tensor
from icl_mech.engine import run
from icl_mech.errors import PromptError
from icl_mech.measurements.passes import Options
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import LanguageModel
from icl_mech.prompts import AnswerKind, Prompt, PromptBatch, Role, Span
from icl_mech.prompts.encoding import TextTokenizer

KINDS: dict[AnswerKind, str] = {
    "classes": "classes, the same label words in all prompts",
    "choices": "free-form answers, choices of each prompt",
    "vocabulary": "texts, the next token",
}
"""Names of the kinds of answers in messages and tables."""


def check_kind(prompts: PromptBatch, takes: Sequence[AnswerKind], what: str, why_not: str) -> None:
    """Reject prompts whose answers are of a kind that a measurement does not take.

    Raises:
        PromptError: names the kind, the reason and the kinds it takes.
    """
    kind = prompts.answer_kind
    if kind in takes:
        return
    reason = f": {why_not}" if why_not else ""
    known = "; ".join(KINDS[taken] for taken in takes)
    raise PromptError(
        f"{what} does not take prompts of the kind {kind!r} ({KINDS[kind]}){reason}. It takes "
        f"{known}. To get prompts with classes, use build_prompts or prompts_from_text; the table "
        "of measurements and kinds of answers in the docs shows which measurement takes which "
        "kind."
    )


def as_demonstrations(
    model: LanguageModel, sets: Sequence[PromptBatch], options: Options
) -> tuple[PromptBatch, ...]:
    """Texts as prompts with demonstrations, each with its answer (see the module).

    Both sides of a pair have the true side's answer; where the false side's differs, that one is the rival: the
    answer of a model that follows the false text. One forward pass over each set, without `interventions`,
    gives the top tokens of the unmodified model.

    Raises:
        PromptError: sets of different sizes.
    """
    if len({len(texts) for texts in sets}) > 1:
        raise PromptError(
            f"The true set has {len(sets[0])} texts and the false set {len(sets[1])}; give equally "
            "many, so that each text has its counterpart."
        )
    followed = [_followed(model, texts, options) for texts in sets]
    words = None if model.tokenizer is None else TextTokenizer(model.tokenizer).words
    made: list[PromptBatch] = []
    for side, texts in enumerate(sets):
        prompts: list[Prompt] = []
        for number, prompt in enumerate(texts):
            answer, rival = followed[0][number]
            taught = followed[-1][number][0]
            differs = taught != answer
            choices = (answer, taught if differs else rival)
            laid = _spans(prompt)
            prompts.append(
                replace(
                    prompt,
                    spans=laid,
                    sections=prompt.text_spans,
                    label_classes=(0,) * sum(span.role == "label_word" for span in laid),
                    label_words=tuple((token,) for token in choices),
                    labels=words(choices) if words else (),
                    answer=0,
                    false_answer=1 if differs and side else None,
                    kind="vocabulary",
                )
            )
        made.append(PromptBatch(tuple(prompts), texts.source))
    return tuple(made)


def _followed(model: LanguageModel, texts: PromptBatch, options: Options) -> list[tuple[int, int]]:
    """The token that follows each text, and the most likely other one."""
    size, memory = options.batch_size, options.memory
    (read,) = run(
        model, texts, [PredictionReading(2)], batch_size=size, memory=memory, title="next tokens"
    )
    top: Int[Tensor, "batch 2"] = read[2]
    pairs: list[tuple[int, int]] = []
    for prompt, (likeliest, second) in zip(texts, top.tolist(), strict=True):
        behind = prompt.tokens[prompt.target + 1 : prompt.target + 2]
        token = behind[0] if behind else likeliest
        pairs.append((token, second if token == likeliest else likeliest))
    return pairs


def as_texts(prompts: PromptBatch) -> PromptBatch:
    """Prompts with demonstrations as texts, with one span per demonstration and its answer."""
    return PromptBatch(tuple(map(_in_spans, prompts)), prompts.source)


def _in_spans(prompt: Prompt) -> Prompt:
    if not prompt.label_spans:
        return prompt
    units = zip(prompt.units, prompt.label_spans, strict=False)
    kept = [(start, word.stop) for (start, _), word in units if word.stop <= prompt.target]
    if not kept:
        return prompt
    text = Prompt.from_spans(prompt.tokens, kept, target=prompt.target, pieces=prompt.pieces)
    # In an answer of several tokens the first one is the anchor, not the last of its span.
    return replace(text, exact=prompt.exact, given_anchors=prompt.anchors)


def _spans(prompt: Prompt) -> tuple[Span, ...]:
    """The tokens of a text with the roles of demonstrations and a query."""
    spans: list[Span] = []
    for number, (start, stop) in enumerate(prompt.text_spans):
        anchor = stop - 1
        if anchor < prompt.target:
            if start < anchor:
                spans.append(Span("demo_text", number, start, anchor))
            spans.append(Span("label_word", number, anchor, stop))
        elif start < prompt.target:
            spans.append(Span("query_text", None, start, prompt.target))
    spans.append(Span("target", None, prompt.target, prompt.target + 1))
    laid: list[Span] = []
    bos = prompt.spans[0].stop if prompt.spans[0].role == "bos" else 0
    end = 0

    def fill(stop: int) -> None:
        first: Role = "bos" if end < bos else "format"
        cut = min(bos, stop) if first == "bos" else stop
        laid.append(Span(first, None, end, cut))
        if cut < stop:
            laid.append(Span("format", None, cut, stop))

    for span in spans:
        if span.start > end:
            fill(span.start)
        laid.append(span)
        end = span.stop
    if end < len(prompt):
        laid.append(Span("format", None, end, len(prompt)))
    return tuple(laid)
