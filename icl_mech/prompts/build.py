"""`build_prompts`: a task, a tokenizer and a seed give a `PromptBatch`."""

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from icl_mech.checking import Count, Natural, checked, conformed
from icl_mech.corruption import (
    LabelSetting,
    check_share,
    displayed_classes,
    draw_shift,
    false_answer,
)
from icl_mech.errors import PromptError, near_matches
from icl_mech.prompts.assemble import assemble, template_pieces
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.fingerprint import tokenizer_identity
from icl_mech.prompts.spans import Prompt, check_first_tokens
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import Example, Task, as_task

Demonstrations = Literal["shared", "per_prompt"]
Split = Literal["test", "train"]


@checked(PromptError, but=["task"])
def build_prompts(
    task: str | Task,
    model_or_tokenizer: Any,
    *,
    shots: Natural = 1,
    n: Count = 50,
    seed: Natural = 0,
    labels: LabelSetting = "correct",
    false_share: float | None = None,
    demonstrations: Demonstrations = "shared",
    balanced: bool = True,
    bos: bool | None = None,
    split: Split = "test",
    special_tokens: Literal["text", "refuse"] = "text",
) -> PromptBatch:
    """`n` prompts: `shots` demonstrations per class in random order, then a query.

    Args:
        task: The task, or its name.
        model_or_tokenizer: Model (its context length is respected) or tokenizer.
        shots: Demonstrations per class; 0 gives zero-shot prompts.
        n: Number of prompts.
        seed: Same seed, same texts and order, whatever `labels` says; shared demonstrations
            depend on seed and `shots` only.
        labels: Which class the demonstrations display.
        false_share: Probability with which each demonstration displays it, instead of its true
            class: the dose of false labels; None: always.
        demonstrations: One set for all prompts (`shared`), or drawn anew (`per_prompt`),
            in both cases without replacement inside a prompt.
        balanced: Queries with equally many true answers per class.
        bos: Put a BOS token first; None: what the tokenizer does by itself (GPT-2 and SmolLM2
            put none; a bridge not loaded by `load_model` may have been set to put one).
        split: Where queries come from. `train`: training examples that no demonstration of the
            prompt shows, to fit something on (`fit_reweighting`) and keep `test` for the end.
        special_tokens: What `</s>` and the like in texts and label words are: their letters
            (`text`), or an error (`refuse`). Those the template itself writes stay special.

    Raises:
        PromptError: too few examples, label words sharing a first token, a text without tokens,
            or a prompt longer than the model's context.
        TaskError: unknown task name, or a share that the label setting cannot have.
    """
    if false_share is not None:
        check_share(false_share, labels)
    task = as_task(task)
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    pieces = PieceTokenizer(tokenizer, special_tokens)
    words = label_word_tokens(pieces, task.label_words, task.labels)
    # Separate streams: shared demonstrations are the same for any n and split.
    draws, shown, demos = (np.random.default_rng([seed, stream]) for stream in range(3))
    chosen: list[Example] = []
    if demonstrations == "shared":
        chosen = _draw_demonstrations(task, shots, demos)
    queries = _draw_queries(task, n, balanced, draws, split, chosen)
    prompts: list[Prompt] = []
    for query in queries:
        if demonstrations == "per_prompt":
            others = [query] if split == "train" else []
            chosen = _draw_demonstrations(task, shots, demos, without=others)
        if not prompts or demonstrations == "per_prompt":
            shift = draw_shift(len(task.labels), shown)
            classes = displayed_classes(
                [example.label for example in chosen], len(task.labels), labels, shift, shown,
                false_share,
            )  # fmt: skip
        texts = [(e, task.label_words[c]) for e, c in zip(chosen, classes, strict=True)]
        prompts.append(
            assemble(
                pieces,
                template_pieces(task.template, texts, query),
                label_classes=classes,
                label_words=words,
                labels=task.labels,
                answer=query.label,
                false_answer=false_answer(query.label, len(task.labels), labels, shift),
                bos=bos,
            )
        )
    check_lengths(prompts, limit)
    report_inexact(prompts)
    source = {
        "task": task.describe(), "shots": shots, "n": n, "seed": seed, "labels": labels,
        "demonstrations": demonstrations, "balanced": balanced, "split": split,
        "bos": prompts[0].spans[0].role == "bos",
        "exact_tokens": all(prompt.exact for prompt in prompts),
        "tokenizer": tokenizer_identity(tokenizer),
    }  # fmt: skip
    if false_share is not None:
        source["false_share"] = false_share
    return PromptBatch(tuple(prompts), source)


def build_prompt_pairs(
    task: str | Task,
    model_or_tokenizer: Any,
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
        false_share: Probability with which each of them displays it, instead of its true class.
        **options: Those of `build_prompts`.

    Raises:
        PromptError: as `build_prompts`; also if `labels` is given.
    """
    if "labels" in options:
        raise PromptError("build_prompt_pairs sets labels itself; choose false_labels=.")
    conformed("false_labels", false_labels, LabelSetting, PromptError)
    known = [*inspect.signature(build_prompts).parameters][2:]
    for name in options:
        if name not in known:
            raise PromptError(f"build_prompts has no option {name!r}. {near_matches(name, known)}")
    task = as_task(task)
    true = build_prompts(task, model_or_tokenizer, labels="correct", **options)
    options |= {"labels": false_labels, "false_share": false_share}
    return true, build_prompts(task, model_or_tokenizer, **options)


def label_word_tokens(
    tokenizer: PieceTokenizer, words: Sequence[str], labels: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Ids of each label word as it stands inside a prompt.

    Raises:
        PromptError: if two share their first token, or one has none.
    """
    ids = tuple(tokenizer.piece(word, first=False) for word in words)
    if () in ids:
        raise PromptError(
            f"The label word {labels[ids.index(())]!r} has no token: the tokenizer drops all its "
            "characters. Choose another word."
        )
    check_first_tokens(ids, labels)
    return ids


def check_lengths(prompts: Sequence[Prompt], limit: int | None) -> None:
    """Refuse prompts longer than the model's context; nothing is ever truncated.

    Raises:
        PromptError: says by how much the longest is too long, and how many are.
    """
    longest = max((len(prompt) for prompt in prompts), default=0)
    if limit is not None and longest > limit:
        count = sum(len(prompt) > limit for prompt in prompts)
        raise PromptError(
            f"{count} of {len(prompts)} prompts are longer than the model's context of {limit} tokens; "
            f"the longest has {longest}, {longest - limit} too many. Use fewer shots or shorter texts."
        )


def tokenizer_and_limit(model_or_tokenizer: Any) -> tuple[Any, int | None]:
    """The tokenizer of a model, or the tokenizer itself, and how many tokens a prompt may have.

    Raises:
        PromptError: there is none.
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


def _draw_queries(
    task: Task,
    n: int,
    balanced: bool,
    generator: np.random.Generator,
    split: Split,
    chosen: Sequence[Example],
) -> list[Example]:
    """Queries of a split; those from `train` are none of the shared demonstrations `chosen`."""
    left = chosen if split == "train" else ()
    groups = [_without(group, left) for group in task.by_class(split)]
    kind = "test" if split == "test" else "training"
    besides = " besides the demonstrations" if left else ""
    if not balanced:
        examples = _without(getattr(task, split), left)
        if n > len(examples):
            raise PromptError(
                f"Task {task.name!r} has {len(examples)} {kind} examples{besides}, "
                f"n={n} asked for more."
            )
        return [examples[i] for i in generator.permutation(len(examples))[:n]]
    order = generator.permutation(len(groups))
    queries: list[Example] = []
    for rank, label in enumerate(order):
        wanted = n // len(groups) + (rank < n % len(groups))
        if wanted > len(groups[label]):
            fits = min(len(group) for group in groups) * len(groups)
            raise PromptError(
                f"Task {task.name!r} has {len(groups[label])} {kind} examples of "
                f"{task.labels[label]!r}{besides}, but n={n} balanced prompts need {wanted}. "
                f"Use n <= {fits} or balanced=False."
            )
        queries += [groups[label][i] for i in generator.permutation(len(groups[label]))[:wanted]]
    return [queries[i] for i in generator.permutation(len(queries))]


def _without(examples: Sequence[Example], others: Sequence[Example]) -> list[Example]:
    """The examples that share no text with the others."""
    taken = {key for example in others for key in example.keys}
    return [e for e in examples if not (taken and taken.intersection(e.keys))]


def _draw_demonstrations(
    task: Task, shots: int, generator: np.random.Generator, without: Sequence[Example] = ()
) -> list[Example]:
    chosen: list[Example] = []
    for label, group in enumerate(task.by_class("train")):
        left = _without(group, without)
        if shots > len(left):
            besides = " besides the query" if len(left) < len(group) else ""
            raise PromptError(
                f"Task {task.name!r} has {len(left)} training examples of {task.labels[label]!r}"
                f"{besides}, but shots={shots} were asked for."
            )
        chosen += [left[i] for i in generator.permutation(len(left))[:shots]]
    return [chosen[i] for i in generator.permutation(len(chosen))]


def report_inexact(prompts: Sequence[Prompt]) -> None:
    """Warn where the tokens keep spans apart that the tokenizer would merge."""
    count = sum(not prompt.exact for prompt in prompts)
    if count:
        warnings.warn(
            f"In {count} of {len(prompts)} prompts the tokenizer would merge text across a span's "
            "edge if it saw the whole prompt at once; the tokens used keep the spans apart "
            "(prompt.exact is False there).",
            stacklevel=3,
        )
