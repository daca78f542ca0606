"""What prompts must hold to learn re-weighting from them, and what a fit has seen."""

import hashlib
import warnings

from icl_mech.errors import PromptError
from icl_mech.interventions import FittedReweight, Reweight
from icl_mech.measurements.demonstrations import displayed
from icl_mech.prompts import Prompt, PromptBatch, check_classes


def check_learnable(prompts: PromptBatch, what: str) -> None:
    """Refuse prompts nothing can be learned from.

    Raises:
        PromptError: a prompt without an answer, or without a demonstration before its target.
    """
    check_classes(prompts, "Re-weighting")
    missing = sum(prompt.answer is None for prompt in prompts)
    if missing:
        raise PromptError(
            f"{missing} of {len(prompts)} {what} prompts have no answer; re-weighting is learned "
            "and judged by true classes, so give answers= when building them."
        )
    shown = [displayed(prompt) for prompt in prompts]
    bare = sum(not classes for classes in shown)
    if bare:
        raise PromptError(
            f"{bare} of {len(prompts)} {what} prompts have no demonstration before their target, "
            "so there is no label word to re-weight; build them with shots >= 1."
        )


def warn_unseen_classes(prompts: PromptBatch) -> None:
    """Warn of classes no demonstration displays."""
    shown = [displayed(prompt) for prompt in prompts]
    never = [name for c, name in enumerate(prompts.labels) if not any(c in own for own in shown)]
    if never:
        warnings.warn(
            f"No demonstration displays {', '.join(map(repr, never))}; their factors get no "
            "gradient and stay 1 (beta 0).",
            stacklevel=3,
        )


def check_held_out(validation: PromptBatch, prompts: PromptBatch) -> None:
    """Refuse validation prompts that are trained on, or of another task.

    Raises:
        PromptError: says how many, or names the label words.
    """
    if validation[0].label_words != prompts[0].label_words:
        raise PromptError(
            f"The validation prompts have the labels {', '.join(validation.labels)}, the training "
            f"prompts {', '.join(prompts.labels)}; use prompts of one task."
        )
    known = {prompt.tokens for prompt in prompts}
    shared = sum(prompt.tokens in known for prompt in validation)
    if shared:
        raise PromptError(
            f"{shared} of {len(validation)} validation prompts are also trained on; hold other "
            "prompts out, for example build more of them and split the batch."
        )


def check_same_queries(more_shots: PromptBatch, prompts: PromptBatch) -> None:
    """Refuse prompts whose queries are not those of the test prompts.

    Raises:
        PromptError: says how to build them.
    """
    same = [prompt.answer for prompt in more_shots] == [prompt.answer for prompt in prompts]
    if same and all(p.has_text_roles for batch in (more_shots, prompts) for p in batch):
        same = [query(prompt) for prompt in more_shots] == [query(prompt) for prompt in prompts]
    if not same:
        raise PromptError(
            "more_shots must hold the queries of the test prompts in the same order; build both "
            "with the same task, n and seed, and larger shots."
        )


def query(prompt: Prompt) -> list[tuple[int, ...]]:
    """Tokens of the query's texts."""
    return [prompt.tokens[s.start : s.stop] for s in prompt.spans if s.role == "query_text"]


def digest(prompt: Prompt) -> str:
    """Short name of a prompt's tokens, by which a fit remembers what it has seen."""
    return hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()[:16]


def count_seen(factors: Reweight, prompts: PromptBatch) -> int:
    """How many of the prompts the factors were learned from."""
    known = set(factors.training.get("seen", ())) if isinstance(factors, FittedReweight) else set()
    return sum(digest(prompt) in known for prompt in prompts)


def warn_seen(factors: Reweight, prompts: PromptBatch) -> None:
    """Warn of prompts the factors were learned from."""
    seen = count_seen(factors, prompts)
    if seen:
        warnings.warn(
            f"The factors were learned from {seen} of these {len(prompts)} prompts; the accuracy is "
            "not held out. Use prompts of the test split.",
            stacklevel=3,
        )


def split(prompts: PromptBatch, per_class: int) -> tuple[PromptBatch, PromptBatch]:
    """The first few prompts of each class, to learn from, and all others.

    Raises:
        PromptError: a class with fewer prompts than twice as many.
    """
    answers = prompts.answers.tolist()
    rarest = min(answers.count(label) for label in range(prompts.n_labels))
    if rarest < 2 * per_class:
        raise PromptError(
            f"Re-weighting needs at least {2 * per_class} prompts of every class, the rarest has "
            f"{rarest}."
        )
    chosen: list[int] = []
    for label in range(prompts.n_labels):
        chosen += [number for number, own in enumerate(answers) if own == label][:per_class]
    others = [number for number in range(len(prompts)) if number not in set(chosen)]
    return prompts[sorted(chosen)], prompts[others]
