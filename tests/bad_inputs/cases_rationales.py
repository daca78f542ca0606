"""Bad prompts and arguments of rationales."""

from typing import Any

import icl_mech as icl
from icl_mech.errors import CallError, IclMechError, PromptError, ResultError, RunError
from icl_mech.prompts import corrupted_rationales, rationale_prefix, with_rationales
from tests.bad_inputs.case import Bench, Case
from tests.measurements.rationales.cases import setting

QUIET = {"progress": False}


def reasoned() -> icl.PromptBatch:
    """Prompts with rationales, for the same tiny model."""
    return setting("gpt2")[1]


def used(what: str, *says: str, error: type[IclMechError] = RunError, **options: Any) -> Case:
    """A test of the use of rationales that must be refused."""
    return Case(
        what, lambda b: icl.rationale_use(b.model, reasoned(), **options, **QUIET), error, says
    )


def answers(b: Bench) -> Any:
    """The answer after each sentence."""
    return icl.rationale_answers(b.model, reasoned(), lens=False, **QUIET)


CASES = [
    Case(
        "answers after sentences of no rationale",
        lambda b: icl.rationale_answers(b.model, b.prompts),
        PromptError,
        ("rationale_answers", "comparisons"),
    ),
    Case(
        "the use of no rationale",
        lambda b: icl.rationale_use(b.model, b.prompts),
        PromptError,
        ("rationale_use", "comparisons"),
    ),
    Case(
        "the use of rationales of one class",
        lambda b: icl.rationale_use(b.model, reasoned()[[1]]),
        PromptError,
        ("another class",),
    ),
    Case(
        "rationales of texts without demonstrations",
        lambda b: icl.rationale_use(b.model, icl.texts(["It was good. So."], b.model)),
        PromptError,
    ),
    Case(
        "a lens that is neither on nor off",
        lambda b: icl.rationale_answers(b.model, reasoned(), lens="yes"),
        RunError,
        ("lens", "yes"),
    ),
    used("draws of random edges below 0", "draws", "-1", draws=-1),
    used("edges of a rationale cut after", "mode", "after", mode="after"),
    used("edges of a rationale in a layer that is none", "7", layers=[7]),
    used("an option of rationales that there is none of", "drawn", error=CallError, drawn=2),
    Case(
        "a loss of rationales that was not measured",
        lambda b: icl.rationale_use(b.model, reasoned(), draws=0, **QUIET).fraction("tex"),
        ResultError,
        ("'tex'", "cut text"),
    ),
    Case(
        "a sentence that no rationale has",
        lambda b: answers(b).interval("log_prob", prefix=9),
        ResultError,
        ("9",),
    ),
    Case(
        "fewer rationales than prompts",
        lambda b: with_rationales(reasoned(), b.model, ["So."]),
        PromptError,
        ("1 rationale", "4 prompts"),
    ),
    Case(
        "rationales that are all empty",
        lambda b: with_rationales(reasoned(), b.model, [""] * 4),
        PromptError,
        ("rationale_prefix",),
    ),
    Case(
        "a rationale that is no text",
        lambda b: with_rationales(reasoned(), b.model, ["So.", 2, "So.", "So."]),
        PromptError,
        ("rationales", "2"),
    ),
    Case(
        "one text for all rationales",
        lambda b: with_rationales(reasoned(), b.model, "So.."),
        PromptError,
        ("rationales", "So.."),
    ),
    Case(
        "rationales where there are none",
        lambda b: with_rationales(b.prompts, b.model, ["So."] * 4),
        PromptError,
    ),
    Case(
        "more sentences than a rationale has",
        lambda b: rationale_prefix(reasoned(), b.model, 9),
        PromptError,
        ("2 sentences", "9"),
    ),
    Case(
        "fewer sentences than none",
        lambda b: rationale_prefix(reasoned(), b.model, -1),
        PromptError,
        ("sentences", "-1"),
    ),
    Case(
        "a corruption of rationales that is none",
        lambda b: corrupted_rationales(reasoned(), b.model, "wrong"),
        PromptError,
        ("'wrong'", "shuffled"),
    ),
    Case(
        "rationales corrupted elsewhere",
        lambda b: corrupted_rationales(reasoned(), b.model, where="text"),
        PromptError,
        ("'text'", "demonstrations"),
    ),
    Case(
        "rationales written with an option there is none of",
        lambda b: icl.write_rationales(b.model, reasoned(), temprature=1),
        CallError,
        ("temprature", "temperature"),
    ),
    Case(
        "rationales written of no tokens",
        lambda b: icl.write_rationales(b.model, reasoned(), max_new_tokens=0),
        RunError,
        ("max_new_tokens=0",),
    ),
    Case(
        "rationales written where there are none",
        lambda b: icl.write_rationales(b.model, b.prompts),
        PromptError,
        ("write_rationales",),
    ),
]
