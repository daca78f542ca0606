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
    fitted("a rate of NaN for translators", "lr=nan", lr=float("nan")),
    fitted("no ridge", "ridge=0", "above 0", ridge=0),
    fitted("nothing held out", "held_out=0", held_out=0),
    fitted("everything held out", "held_out=1", held_out=1),
    fitted("fewer epochs than none", "epochs=-1", epochs=-1),
    fitted("no rows a step", "batch_size=0", batch_size=0),
    fitted("no positions", "positions=0", positions=0),
    fitted("a negative first position", "skip_first=-1", skip_first=-1),
    fitted("a start nearly named", "'ridge'", start="rigde"),
    fitted("a seed in text for translators", "seed='0'", seed="0"),
    fitted("memory of a fit that is no size", "'plenty'", "8GB", memory="plenty"),
    fitted("a text to fit on", rows="text", error=PromptError),
    fitted("nothing to fit on", rows=[], error=PromptError),
    fitted("empty sequences to fit on", rows=[[], []], error=PromptError),
    fitted("texts to fit on", rows=["a", "b"], error=PromptError),
    fitted("words to fit on", "tokens=", rows=[["a"], ["b"]], error=PromptError),
    fitted("None to fit on", "NoneType", rows=None, error=PromptError),
    fitted("one sequence to fit on", "1 prompts", rows=ROWS[:1], error=PromptError),
    fitted("equal sequences to fit on", rows=ROWS[:1] * 3, error=PromptError),
    fitted("sequences too short to fit on", "skip_first", skip_first=4, error=PromptError),
    jacobian("sequences too short for Jacobians", error=PromptError),
    Case(
        "no rows of Jacobians",
        lambda b: icl.fit_jacobian_lens(b.model, ROWS, rows=0),
        RunError,
        ("rows=0",),
    ),
    jacobian("a negative skip", "skip_first=-1", skip_first=-1),
    jacobian("text for Jacobians", rows="text", error=PromptError),
    jacobian("held out text", skip_first=0, held_out="text", error=PromptError),
    Case(
        "translators in lists",
        lambda b: icl.TunedLens.given(b.model, [[1.0]], [1.0]),
        ResultError,
        ("weight=[[1.0]]",),
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
    ),
    Case(
        "translators of another model",
        lambda b: icl.TunedLens.given(b.model, torch.zeros(2, 4, 4), torch.zeros(2, 4)),
        RunError,
    ),
    Case(
        "Jacobians that are no squares",
        lambda b: icl.JacobianLens.given(b.model, torch.zeros(2, 4, 5)),
        ResultError,
        ("[2, 4, 5]",),
    ),
    Case(
        "a lens of another model",
        lambda b: icl.logit_lens(b.model, b.prompts, lens=lens()),
        RunError,
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
    ),
    Case("no saved lens", lambda b: icl.TunedLens.load(b.folder), ResultError),
    Case(
        "a tuned lens for a Jacobian one",
        lambda b: icl.load(saved(b), kind=icl.JacobianLens),
        ResultError,
        ("expected a JacobianLens",),
    ),
    Case(
        "a saved lens of another model",
        lambda b: icl.load(saved(b), b.model),
        RunError,
    ),
    calibrated("no random words", "draws=0", draws=0, texts=["a b"]),
    calibrated("an unknown form", "'paper'", form="papers", texts=["a b"]),
    calibrated("an unknown form of batches", "'ratio'", batch_form="ratios", texts=["a b"]),
    calibrated("no prompts together", "together=0", together=0, texts=["a b"]),
    calibrated("one input in text", "inputs='N/A'", inputs="N/A", texts=["a b"]),
    calibrated("no inputs", inputs=[], texts=["a b"], error=PromptError),
    calibrated("calibration texts in text", "texts='a b'", texts="a b"),
    calibrated("blank calibration texts", texts=[" "], error=PromptError),
    calibrated("a task and texts", task="reviews", texts=["a"], error=PromptError),
    calibrated("a task nobody knows", "nosuch", task="nosuch", error=TaskError),
    calibrated("factors in words", reweighting="beta", texts=["a b"]),
    calibrated("texts for more shots", "a PromptBatch", more_shots=["x"], texts=["a b"]),
    Case("a class of factors", lambda b: Calibration(reweighting=icl.Reweight), RunError),
    Case(
        "one set to be aligned",
        lambda b: icl.alignment(b.model, b.prompts, b.prompts),
        PromptError,
        ("build_prompt_pairs",),
    ),
    Case(
        "demonstrations in zero-shot prompts",
        lambda b: icl.alignment(b.model, *b.pair, b.pair[0]),
        PromptError,
        ("shots=0",),
    ),
    Case(
        "texts for zero-shot prompts",
        lambda b: icl.alignment(b.model, *b.pair, ["x"]),
        RunError,
        ("zero_shot=['x']", "a PromptBatch"),
    ),
]  # fmt: skip
