"""`build_prompts`: a `PromptBatch` from a task, a tokenizer and a seed."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from icl_mech.checking import Count, Natural, bound_to, checked, conformed
from icl_mech.corruption import (
    LabelSetting,
    check_share,
    displayed_classes,
    draw_shift,
    false_answer,
)
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.drawing import (
    PROMPTS,
    Chosen,
    Demonstrations,
    InAll,
    Split,
    Total,
    chosen_demonstrations,
    chosen_queries,
    draw_queries,
    examples_digest,
    way_of,
    without,
)
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.given import redrawable
from icl_mech.prompts.identity import tokenizer_identity
from icl_mech.prompts.laying import Asked, assemble
from icl_mech.prompts.open_answers import OpenDraw, OpenSide, open_prompts
from icl_mech.prompts.plain import warn_of_copies
from icl_mech.prompts.spans import Prompt, WordScore
from icl_mech.prompts.writing import Chat, Plain, Writing
from icl_mech.tasks import Example, Task, as_task
from icl_mech.tasks.types import text_fault

WHOLE_TEXT = "whole text"
"""Tokenisation record of prompts; prompts without it were assembled from separately tokenised pieces."""


@redrawable
@checked(PromptError, but=["task"])
def build_prompts(
    task: str | Task,
    model_or_tokenizer: object,
    *,
    shots: Natural | None = None,
    total: Total | None = None,
    n: Count | None = None,
    seed: Natural = 0,
    labels: LabelSetting = "correct",
    false_share: float | None = None,
    demonstrations: Demonstrations | Sequence[Example] | None = None,
    queries: Sequence[Example] | None = None,
    choices: Sequence[str] | None = None,
    balanced: bool = True,
    bos: bool | None = None,
    split: Split = "test",
    special_tokens: Literal["text", "refuse"] = "text",
    score: WordScore | None = None,
    chat: bool = False,
    system: str | None = None,
    prefill: str = "",
    template_kwargs: Mapping[str, Any] | None = None,
    today: str | None = None,
) -> PromptBatch:
    r"""`n` prompts: demonstrations (per class, in all, or chosen), then a query.

    Args:
        task: The task, or its name.
        model_or_tokenizer: Model (its context length is respected) or tokenizer.
        shots: Demonstrations per class, in random order (default 1); 0 gives zero-shot prompts.
        total: Instead of `shots`: demonstrations in all, the class of each drawn independently and
            uniformly, redrawn for every prompt, no text twice. For a fixed seed, smaller sets are prefixes of larger
            ones. `max`: the largest number with which every prompt fits the model's context, counted with the
            label word of the most tokens everywhere, so that it does not depend on `labels`; or
            as many as the task has texts for, with a warning.
        n: Number of prompts (default 50, or one for each of `queries`).
        seed: The same seed gives the same texts and order for all `labels` (for free-form answers, see
            `icl_mech.prompts.open_answers`); shared demonstrations depend on seed and `shots` only.
        labels: Which class the demonstrations display.
        false_share: Probability with which each demonstration displays this class instead of its true
            class, the dose of false labels; None: always.
        demonstrations: One set for all prompts (`shared`, the default with `shots`), or a new draw for each prompt
            (`per_prompt`, the default with `total`), in both cases without replacement inside a prompt; or chosen
            examples, in this order, for all prompts. The query is never among the demonstrations.
        queries: Chosen queries, instead of those drawn with `n`, `balanced` and `split`.
        choices: For free-form answers: the words that every prompt's answer is scored against in addition to the
            query's own (its correct answer, and its `other`), in this order; words that demonstrations can
            display are added if missing. None: the choices described in `icl_mech.prompts.open_answers`;
            `[]`: only words of the demonstrations. If all words are given, chance does not depend on
            what is displayed.
        balanced: Queries with equally many true answers per class.
        bos: Prepend a BOS token; None: the tokenizer's default (GPT-2 and SmolLM2
            add none; a bridge not loaded by `load_model` may have been set to add one).
        split: Split that queries come from. `train`: training examples that no demonstration of the
            prompt shows, for fitting (`fit_reweighting`) while `test` is held out.
        special_tokens: How `</s>` and the like in texts and label words are read: as plain characters
            (`text`), or an error (`refuse`). Special tokens written by the template stay special.
        score: Score of label words with several tokens: their first token
            (`first`), log P of all tokens (`sum`), or log P per token (`mean`). None: `first` if all
            begin with different tokens, else `sum`. Recorded.
        chat: Render each demonstration as a user turn and an assistant turn, with the tokenizer's
            chat template: the user turn is the task's template up to `{label}`, the assistant turn the label word.
        system: Chat only: the system message.
        prefill: Chat only: text before the answer, such as an empty thought
            (`"<think>\n\n</think>\n\n"`), if the chat template does not write it itself.
        template_kwargs: Chat only: options of the chat template, such as `{"enable_thinking": False}`.
        today: Chat only: the date written by the chat template, such as `2026-01-01`.

    Raises:
        PromptError: several ways of choosing demonstrations at once, too few examples, label words sharing a first
            token with `score="first"`, a text without tokens, a prompt longer than the model's context, a
            chat template that is missing or changes the contents of turns, chat options without `chat=True`.
        TaskError: unknown task name, or a false share that the label setting does not support.
    """
    task = as_task(task)
    if task.is_open:
        how: dict[str, Any] = {"shots": shots, "total": total, "n": n, "seed": seed, "split": split}
        how |= {"balanced": balanced, "bos": bos, "special_tokens": special_tokens}
        how |= {"demonstrations": demonstrations, "queries": queries, "choices": choices}
        how |= {"score": score, "chat": chat, "system": system, "prefill": prefill}
        how |= {"template_kwargs": template_kwargs, "today": today}
        side = OpenSide(labels, false_share)
        return _open_batches(task, model_or_tokenizer, [side], **how)[0]
    if choices is not None:
        raise PromptError(
            f"choices= applies to free-form answers, but task {task.name!r} has classes; leave it "
            "out."
        )
    if false_share is not None:
        check_share(false_share, labels)
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    reader = TextTokenizer(tokenizer, special_tokens)
    options: dict[str, Any] = {"system": system, "prefill": prefill, "today": today}
    options["template_kwargs"] = template_kwargs
    written = _writing(task, tokenizer, chat=chat, **options)
    asked_for = Asked(task.labels, task.names, written.after, score=score)
    way = way_of(
        task,
        shots=shots,
        total=total,
        demonstrations=demonstrations,
        queries=queries or (),
        split=split,
        seed=seed,
    )
    chosen = way.draw(0, None) if way.shared else []
    if queries is not None:
        asked = chosen_queries(task, queries, n, chosen if isinstance(way, Chosen) else [])
        drawn: dict[str, Any] = {"queries": "given", "query_texts": examples_digest(asked)}
    else:
        others = chosen if split == "train" or isinstance(way, Chosen) else []
        asked = draw_queries(task, n or PROMPTS, balanced, split, others, seed)
        drawn = {"pool": pool_size(task, balanced, split, others)}
        drawn |= {"balanced": balanced, "split": split}

    def prompt(
        shown: Sequence[Example], classes: Sequence[int], query: Example, taught: int | None
    ) -> Prompt:
        texts = [(e, task.labels[c]) for e, c in zip(shown, classes, strict=True)]
        return assemble(
            reader,
            written.pieces(texts, query),
            asked_for,
            label_classes=classes,
            answer=query.label,
            false_answer=taught,
            bos=written.bos(bos),
        )

    if isinstance(way, InAll) and total == "max":
        sizes = [len(reader.encode(f"a {label}").ids) for label in task.labels]
        longest = sizes.index(max(sizes))
        way.fit(
            asked,
            limit,
            lambda demos, q: longest_run(prompt(demos, [longest] * len(demos), q, None)),
        )
    prompts: list[Prompt] = []
    for number, query in enumerate(asked):
        if not way.shared:
            chosen = way.draw(number, query)
        if not prompts or not way.shared:
            generator = way.labels(number)
            shift = draw_shift(len(task.labels), generator)
            true = [example.label for example in chosen]
            nested = isinstance(way, InAll)
            classes = displayed_classes(
                true, len(task.labels), labels, shift, generator, false_share, nested=nested
            )
        taught = false_answer(query.label, len(task.labels), labels, shift)
        prompts.append(prompt(chosen, classes, query, taught))
    source = {
        "task": task.describe(),
        "n": len(asked),
        "seed": seed,
        "labels": labels,
        **way.source(),
        **drawn,
        **written.source(),
        "bos": prompts[0].spans[0].role == "bos",
    }
    share = {} if false_share is None else {"false_share": false_share}
    return finished(prompts, source, tokenizer, limit, **share)


@checked(PromptError, but=["task", "tokenizer"])
def _writing(
    task: Task,
    tokenizer: object,
    *,
    chat: bool = False,
    system: str | None = None,
    prefill: str = "",
    template_kwargs: Mapping[str, Any] | None = None,
    today: str | None = None,
) -> Writing:
    """Rendering of the task's template, filled in or as turns of a chat.

    Raises:
        PromptError: chat options without `chat=True`.
    """
    if chat:
        kwargs = template_kwargs or {}
        return Chat(task.template, tokenizer, system, prefill, kwargs, today)
    options = {"system": system, "prefill": prefill or None, "template_kwargs": template_kwargs}
    for name, value in {**options, "today": today}.items():
        if value is not None:
            raise PromptError(f"{name}= applies to chats only; leave it out, or add chat=True.")
    return Plain(task.template)


def pool_size(task: Task, balanced: bool, split: Split, others: Sequence[Example]) -> int:
    """Number of queries that `draw_queries` can draw; if balanced, the largest number with equal classes."""
    sizes = [len(without(group, others)) for group in task.by_class(split)]
    return min(sizes) * len(sizes) if balanced else sum(sizes)


def listed(texts: object, one: str) -> list[str]:
    """The texts of a list, checked; `one` names a single text in messages.

    Raises:
        PromptError: not a list of texts.
    """
    if isinstance(texts, str | bytes):
        raise PromptError(f"texts is a single string; give a list of texts, for one {one} [text].")
    if not isinstance(texts, Iterable):
        raise PromptError(f"texts is a {type(texts).__name__}; give a list of texts.")
    strings = list(texts)
    for number, text in enumerate(strings):
        if fault := text_fault(text):
            raise PromptError(f"Text {number} {fault}.")
    return strings


def finished(
    prompts: Sequence[Prompt],
    source: Mapping[str, object],
    tokenizer: object,
    limit: int | None,
    **more: object,
) -> PromptBatch:
    """Batch of finished prompts, with their provenance.

    Raises:
        PromptError: a prompt is longer than the model's context.
    """
    check_lengths(prompts, limit)
    if len({prompt.score for prompt in prompts}) > 1:  # in some prompts all words begin differently
        prompts = [replace(prompt, score="sum") for prompt in prompts]
    warn_of_copies(prompts, 5)
    made = {
        "tokens_of": WHOLE_TEXT,
        **({"score": prompts[0].score} if prompts and prompts[0].label_words else {}),
        "tokenizer": tokenizer_identity(tokenizer),
    }
    return PromptBatch(tuple(prompts), {**source, **made, **more})


@redrawable
def build_prompt_pairs(
    task: str | Task,
    model_or_tokenizer: object,
    *,
    false_labels: LabelSetting = "permuted",
    false_share: float | None = None,
    **options: Any,
) -> tuple[PromptBatch, PromptBatch]:
    """(true, false) prompts over the same texts in the same order.

    Args:
        task: The task, or its name.
        model_or_tokenizer: Model or tokenizer.
        false_labels: Which class the false demonstrations display.
        false_share: Probability with which each of them displays this class instead of its true class.
        **options: Options of `build_prompts`.

    Raises:
        PromptError: as `build_prompts`; also if `labels` is given.
    """
    if "labels" in options:
        raise PromptError("build_prompt_pairs sets labels itself; give false_labels= instead.")
    conformed("false_labels", false_labels, LabelSetting, PromptError)
    signature, given = inspect.signature(build_prompts), (task, model_or_tokenizer)
    bound_to(signature, "build_prompts", given, options, PromptError)
    task = as_task(task)
    if task.is_open:
        sides = [OpenSide("correct"), OpenSide(false_labels, false_share)]
        true, false = _open_batches(task, model_or_tokenizer, sides, **options)
        return true, false
    true = build_prompts(task, model_or_tokenizer, labels="correct", **options)
    options |= {"labels": false_labels, "false_share": false_share}
    return true, build_prompts(task, model_or_tokenizer, **options)


@checked(PromptError, but=["task", "model_or_tokenizer", "sides"])
def _open_batches(
    task: Task,
    model_or_tokenizer: object,
    sides: Sequence[OpenSide],
    *,
    demonstrations: Demonstrations | Sequence[Example] | None = None,
    queries: Sequence[Example] | None = None,
    choices: Sequence[str] | None = None,
    shots: Natural | None = None,
    total: Total | None = None,
    n: Count | None = None,
    seed: Natural = 0,
    balanced: bool = True,
    split: Split = "test",
    bos: bool | None = None,
    special_tokens: Literal["text", "refuse"] = "text",
    score: WordScore | None = None,
    **chat: Any,
) -> list[PromptBatch]:
    """Prompts with free-form answers; without classes, `shots` and `total` both count all demonstrations.

    Raises:
        PromptError: as `build_prompts`.
    """
    if not balanced:
        raise PromptError(
            "balanced=False has no effect on free-form answers, which have no classes; leave it "
            "out."
        )
    _check_total(task, shots, total, demonstrations)
    given = chosen_demonstrations(task, demonstrations, shots, total)
    asked = None if queries is None else chosen_queries(task, queries, n, given or [])
    count = next((number for number in (shots, total) if isinstance(number, int)), 1)
    shared = total is None and demonstrations != "per_prompt"
    draw = OpenDraw(count, n or PROMPTS, seed, shared, split, given, asked, choices)
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    reader = TextTokenizer(tokenizer, special_tokens)
    written = _writing(task, tokenizer, **chat)
    batches = []
    made = open_prompts(reader, task, written, draw, sides, bos, score)
    for side, prompts in zip(sides, made, strict=True):
        source = {
            "task": task.describe(),
            "answers": "open",
            **draw.source(task),
            "n": len(prompts),
            "labels": side.labels,
            **written.source(),
            "bos": prompts[0].spans[0].role == "bos",
        }
        share = {} if side.share is None else {"false_share": side.share}
        batches.append(finished(prompts, source, tokenizer, limit, **share))
    return batches


def _check_total(
    task: Task, shots: int | None, total: Total | None, demonstrations: object
) -> None:
    """Reject two counts of demonstrations; as with classes, `total` redraws them for every prompt."""
    if (shots is not None and total is not None) or total == "max":
        raise PromptError(
            f"Task {task.name!r} has no classes, so shots and total both count all demonstrations; give "
            "one of them, as a number."
        )
    if total is not None and demonstrations == "shared":
        raise PromptError(
            "total= redraws demonstrations for every prompt; leave demonstrations='shared' out, "
            "or give shots= instead."
        )


def longest_run(prompt: Prompt) -> int:
    """Number of tokens in the longest forward pass: the prompt and a candidate without its last token."""
    words = (*prompt.label_words, *prompt.accepted)
    rest = 1 if prompt.score == "first" else max(map(len, words), default=1)
    return len(prompt) + rest - 1


def check_lengths(prompts: Sequence[Prompt], limit: int | None) -> None:
    """Reject prompts longer than the model's context; prompts are never truncated.

    Raises:
        PromptError: states how many prompts are too long, and by how much the longest is.
    """
    lengths = [longest_run(prompt) for prompt in prompts]
    longest = max(lengths, default=0)
    if limit is not None and longest > limit:
        count = sum(length > limit for length in lengths)
        whole = " with its longest label word" * (prompts[0].score != "first")
        alone = len(prompts) == 1
        which = "The prompt" if alone else f"{count} of {len(prompts)} prompts"
        raise PromptError(
            f"{which} {'is' if count == 1 else 'are'} longer than the model's context of {limit} tokens; "
            f"{'it' if alone else 'the longest'} has {longest}{whole}, {longest - limit} too many. Use fewer shots or shorter texts."
        )


def tokenizer_and_limit(model_or_tokenizer: object) -> tuple[Any, int | None]:
    """Tokenizer of a model, or the tokenizer itself, and the maximum prompt length in tokens, if known.

    Raises:
        PromptError: there is no tokenizer.
    """
    tokenizer = getattr(model_or_tokenizer, "tokenizer", None)
    if tokenizer is None:
        if not callable(model_or_tokenizer) or not hasattr(model_or_tokenizer, "decode"):
            raise PromptError(
                f"A {type(model_or_tokenizer).__name__} has no tokenizer; give a model that has one, "
                "or a Hugging Face tokenizer."
            )
        limit = getattr(model_or_tokenizer, "model_max_length", None)
        return model_or_tokenizer, limit if limit and limit < 10**9 else None
    config = getattr(model_or_tokenizer, "cfg", None) or getattr(model_or_tokenizer, "info", None)
    return tokenizer, getattr(config, "n_ctx", None)
