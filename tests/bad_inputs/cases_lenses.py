"""Bad arguments of fitted lenses, calibration and alignment."""

import functools
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, ResultError, RunError, TaskError
from icl_mech.measurements import Calibration, CompareLenses, LogitLens
from tests.bad_inputs.case import Bench, Case

ROWS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6]]


def fitted(
    what: str, *says: str, error: type[IclMechError] = RunError, rows: Any = ROWS, **options: Any
) -> Case:
    """An option of a fit."""
    return Case(what, lambda b: icl.fit_tuned_lens(b.model, rows, **options), error, says)


def jacobian(
    what: str, *says: str, error: type[IclMechError] = RunError, rows: Any = ROWS, **options: Any
) -> Case:
    """An option of a fit of Jacobians."""
    return Case(what, lambda b: icl.fit_jacobian_lens(b.model, rows, **options), error, says)


def calibrated(what: str, *says: str, error: type[IclMechError] = RunError, **options: Any) -> Case:
    """An option of calibration."""
    return Case(what, lambda b: icl.calibration(b.model, b.prompts, **options), error, says)


@functools.lru_cache
def lens() -> icl.TunedLens:
    """One of another size."""
    return icl.TunedLens(weight=torch.zeros(2, 4, 4), bias=torch.zeros(2, 4), readout="other")


def saved(b: Bench) -> Any:
    """A lens in a file, with a folder of its own."""
    return lens().save(b.folder / "lens")


CASES = [
    fitted("no rate for translators", "lr=0", "above 0", lr=0),
    fitted("a rate of NaN for translators", "lr=nan", "finite", lr=float("nan")),
    fitted("no ridge", "ridge=0", "above 0", ridge=0),
    fitted("nothing held out", "held_out=0", "between 0 and 1", held_out=0),
    fitted("everything held out", "held_out=1", "between 0 and 1", held_out=1),
    fitted("fewer epochs than none", "epochs=-1", "at least 0", epochs=-1),
    fitted("no rows a step", "batch_size=0", "at least 1", batch_size=0),
    fitted("no positions", "positions=0", "at least 1", positions=0),
    fitted("a negative first position", "skip_first=-1", "at least 0", skip_first=-1),
    fitted("a start nearly named", "Did you mean 'ridge'", start="rigde"),
    fitted("a seed in text for translators", "seed='0'", "whole number", seed="0"),
    fitted("memory of a fit that is no size", "'plenty'", "8GB", memory="plenty"),
    fitted("a text to fit on", "a str", "token ids", rows="text", error=PromptError),
    fitted("nothing to fit on", "a list", "token ids", rows=[], error=PromptError),
    fitted("empty sequences to fit on", "token ids", rows=[[], []], error=PromptError),
    fitted("texts to fit on", "token ids", rows=["a", "b"], error=PromptError),
    fitted("words to fit on", "tokens=", "whole number", rows=[["a"], ["b"]], error=PromptError),
    fitted("None to fit on", "NoneType", "token ids", rows=None, error=PromptError),
    fitted("one sequence to fit on", "1 prompts", "judged", rows=ROWS[:1], error=PromptError),
    fitted("equal sequences to fit on", "of which 1", rows=ROWS[:1] * 3, error=PromptError),
    fitted("sequences too short to fit on", "has 4 tokens", "skip_first", skip_first=4, error=PromptError),
    jacobian("sequences too short for Jacobians", "needs at least 18", error=PromptError),
    Case(
        "no rows of Jacobians",
        lambda b: icl.fit_jacobian_lens(b.model, ROWS, rows=0),
        RunError,
        ("rows=0", "at least 1"),
    ),
    jacobian("a negative skip", "skip_first=-1", "at least 0", skip_first=-1),
    jacobian("text for Jacobians", "token ids", rows="text", error=PromptError),
    jacobian("held out text", "token ids", skip_first=0, held_out="text", error=PromptError),
    Case(
        "translators in lists",
        lambda b: icl.TunedLens.given(b.model, [[1.0]], [1.0]),
        ResultError,
        ("weight=[[1.0]]", "a tensor of float"),
    ),
    Case(
        "translators that do not fit together",
        lambda b: icl.TunedLens.given(b.model, torch.zeros(2, 4, 4), torch.zeros(2, 5)),
        ResultError,
        ("bias=Tensor[2, 5]", "(block, out)"),
    ),
    Case(
        "translators that are NaN",
        lambda b: icl.TunedLens.given(b.model, torch.full((2, 4, 4), torch.nan), torch.zeros(2, 4)),
        ResultError,
        ("weight of the tuned lens", "not finite"),
    ),
    Case(
        "translators of another model",
        lambda b: icl.TunedLens.given(b.model, torch.zeros(2, 4, 4), torch.zeros(2, 4)),
        RunError,
        ("has 2 layers of width 4", "fit one for this model"),
    ),
    Case(
        "Jacobians that are no squares",
        lambda b: icl.JacobianLens.given(b.model, torch.zeros(2, 4, 5)),
        ResultError,
        ("[2, 4, 5]", "2 layers of width 5"),
    ),
    Case(
        "a lens of another model",
        lambda b: icl.logit_lens(b.model, b.prompts, lens=lens()),
        RunError,
        ("has 2 layers of width 4",),
    ),
    Case("a lens by name", lambda b: LogitLens(lens="tuned"), RunError, ("lens='tuned'", "FittedLens")),
    Case("no lens to compare", lambda b: CompareLenses(None), RunError, ("lens=None", "FittedLens")),
    Case(
        "a lens of heads",
        lambda b: icl.logit_lens(b.model, b.prompts, per="head", lens=lens()),
        RunError,
        ("per='layer'",),
    ),
    Case(
        "a lens beside the reference",
        lambda b: icl.layer_accuracy(b.model, *b.pair, variant="reference", lens=lens()),
        RunError,
        ("takes no other lens",),
    ),
    Case("no saved lens", lambda b: icl.TunedLens.load(b.folder), ResultError, ("result.json is missing",)),
    Case(
        "a tuned lens for a Jacobian one",
        lambda b: icl.load(saved(b), kind=icl.JacobianLens),
        ResultError,
        ("holds a TunedLens", "expected JacobianLens"),
    ),
    Case(
        "a saved lens of another model",
        lambda b: icl.load(saved(b), b.model),
        RunError,
        ("has 2 layers of width 4",),
    ),
    calibrated("no random words", "draws=0", "at least 1", draws=0, texts=["a b"]),
    calibrated("an unknown form", "Did you mean 'paper'", form="papers", texts=["a b"]),
    calibrated("an unknown form of batches", "'ratio'", batch_form="ratios", texts=["a b"]),
    calibrated("no prompts together", "together=0", "at least 1", together=0, texts=["a b"]),
    calibrated("one input in text", "inputs='N/A'", "a list", inputs="N/A", texts=["a b"]),
    calibrated("no inputs", "inputs is empty", inputs=[], texts=["a b"], error=PromptError),
    calibrated("calibration texts in text", "texts='a b'", "a list", texts="a b"),
    calibrated("blank calibration texts", "no texts", texts=[" "], error=PromptError),
    calibrated("a task and texts", "give one", task="reviews", texts=["a"], error=PromptError),
    calibrated("a task nobody knows", "nosuch", task="nosuch", error=TaskError),
    calibrated("factors in words", "a Reweight", reweighting="beta", texts=["a b"]),
    calibrated("texts for more shots", "a PromptBatch", more_shots=["x"], texts=["a b"]),
    Case("a class of factors", lambda b: Calibration(reweighting=icl.Reweight), RunError, ("not the class",)),
    Case(
        "one set to be aligned",
        lambda b: icl.alignment(b.model, b.prompts, b.prompts),
        PromptError,
        ("the same prompts", "build_prompt_pairs"),
    ),
    Case(
        "demonstrations in zero-shot prompts",
        lambda b: icl.alignment(b.model, *b.pair, b.pair[0]),
        PromptError,
        ("hold demonstrations", "shots=0"),
    ),
    Case(
        "texts for zero-shot prompts",
        lambda b: icl.alignment(b.model, *b.pair, ["x"]),
        RunError,
        ("zero_shot=['x']", "a PromptBatch"),
    ),
]  # fmt: skip
