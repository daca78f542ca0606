"""Models that changed since they were checked, and runs whose numbers are not finite."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.finite import NonFiniteError
from icl_mech.errors import ModelError, RunError
from icl_mech.interventions import Isolate, Reweight
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import adapt
from tests.bad_inputs.case import Bench, Case

PREDICTION = [PredictionReading()]
WHERE = ("prompt 0", "NaN", "block 1", "mlp.c_proj")


def training(part: str) -> Callable[[Bench], object]:
    """A prediction while one part is in training mode."""

    def call(bench: Bench) -> object:
        adapt(bench.model)
        bench.model.original_model.get_submodule(part).train()
        try:
            return icl.predict(bench.model, bench.prompts)
        finally:
            bench.model.eval()

    return call


@contextmanager
def spoilt(bench: Bench, value: float) -> Any:
    """One weight of block 1 is not finite."""
    weight = bench.model.original_model.transformer.h[1].mlp.c_proj.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[3, 3] = value
        yield bench.model
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def after(
    study: Callable[[Any, icl.PromptBatch], object], value: float = torch.nan
) -> Callable[[Bench], object]:
    """A study after a weight changed that had been checked."""

    def call(bench: Bench) -> object:
        adapt(bench.model)
        with spoilt(bench, value) as model:
            return study(model, bench.prompts)

    return call


def behind_kept_keys(bench: Bench) -> object:
    prepared = prepare(bench.model, bench.prompts)
    with spoilt(bench, torch.nan) as model:
        return run(model, prepared, PREDICTION)


def cut(bench: Bench) -> object:
    bench.model.add_hook("blocks.1.hook_resid_post", lambda residual, hook: residual.detach())
    try:
        return icl.flow_scores(bench.model, bench.prompts)
    finally:
        bench.model.reset_hooks()


VARIANTS = [[], [Isolate([1])], [Isolate([2])]]

CASES = [
    Case("the wrapped model in training mode", training(""), ModelError, ("model.eval()",)),
    Case(
        "one dropout in training mode",
        training("transformer.h.1.attn.attn_dropout"),
        ModelError,
        ("'transformer.h.1.attn.attn_dropout'", "model.eval()"),
    ),
    Case("a weight that became NaN, flow", after(icl.flow_scores), RunError, WHERE),
    Case("a weight that became infinite", after(icl.predict, torch.inf), RunError, WHERE),
    Case(
        "a weight that became NaN, every position",
        after(lambda model, prompts: icl.flow_scores(model, prompts, path="whole")),
        RunError,
        WHERE,
    ),
    Case(
        "a weight that became NaN, variants",
        after(lambda model, prompts: run_variants(model, prompts, PREDICTION, VARIANTS)),
        RunError,
        WHERE,
    ),
    Case("a weight that became NaN, kept keys", behind_kept_keys, RunError),
    Case(
        "a weight that became NaN, compression", after(icl.compress_demonstrations), RunError, WHERE
    ),
    Case("a weight that became NaN, training", after(icl.fit_reweighting), RunError, WHERE),
    Case(
        "factors that overflow",
        lambda b: icl.predict(
            b.model, b.prompts, interventions=[Reweight(torch.full((3, 4, 2), 200.0))]
        ),
        NonFiniteError,
    ),
    Case("a hook that cuts the graph", cut, RunError, ("'pattern'",)),
]
