"""Bad arguments of results, figures and statistics."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import MissingResult, ModelError, PromptError, ResultError
from icl_mech.measurements import CompressContext, Flow, Predict
from icl_mech.metrics import (
    bootstrap_interval,
    kinds_test,
    mean_interval,
    standing_out,
    wilson_interval,
)
from icl_mech.metrics.agreement import same_label
from icl_mech.metrics.outliers import uniform_mass
from icl_mech.metrics.permutations import relabelling
from icl_mech.plots import figure
from icl_mech.results import Result
from tests.bad_inputs.case import Bench, Case

RESULTS: dict[str, Callable[[Bench], Any]] = {
    "flow": lambda b: icl.flow_scores(b.model, b.prompts),
    "maps": lambda b: icl.saliency_maps(b.model, b.prompts),
    "right": lambda b: icl.predict(b.model, b.prompts),
    "layers": lambda b: icl.layer_accuracy(b.model, *b.pair),
    "heads": lambda b: icl.head_scores(b.model, b.pair[1]),
    "isolated": lambda b: icl.isolation(b.model, b.prompts, draws=1),
    "exit": lambda b: icl.early_exit(result("layers")),
    "context": lambda b: CompressContext()(b.model, b.prompts),
    "analysis": lambda b: icl.measure(b.model, b.prompts, Flow(), Predict()),
}


@functools.lru_cache
def result(name: str) -> Any:
    """A result, measured once."""
    return RESULTS[name](bench())


def bench() -> Bench:
    """What no files are written with."""
    return Bench(Path())


def of(
    name: str, what: str, call: Callable[[Any], object], *says: str, error: Any = ResultError
) -> Case:
    """A bad call of a result."""
    return Case(what, lambda b: call(result(name)), error, says)


def any_(what: str, call: Callable[[], object], *says: str) -> Case:
    """A bad call of a function."""
    return Case(what, lambda b: call(), ResultError, says)


def minus(name: str) -> Callable[[Any], object]:
    """Take another result away."""
    return lambda r: r - result(name)


CASES = [
    of("flow", "a quantity that is not there", lambda r: r.sel("shares"), "'share'"),
    of("flow", "a quantity that is a number", lambda r: r.sel(3), "share"),
    of("flow", "a quantity that is a list", lambda r: r.sel(["share"]), "'share'"),
    of("flow", "an axis that is not there", lambda r: r.sel(head=1), "'head'", "layer"),
    of("flow", "a label that is not there", lambda r: r.sel(layer=99), "layer=99", "0, 1, 2"),
    of("flow", "labels of another kind", lambda r: r.sel(layer="0"), "layer='0'", "0, 1, 2"),
    of("flow", "a dictionary of labels", lambda r: r.sel(layer={"a": 1})),
    of("flow", "no labels", lambda r: r.sel(layer=[]), "0, 1, 2"),
    of("flow", "an empty slice", lambda r: r.sel(layer=slice(5, 2)), "0, 1, 2"),
    of("flow", "one number of many", lambda r: r.interval()),
    of("flow", "a number to subtract", lambda r: r - 3),
    of("flow", "a result of another kind", minus("right")),
    of("right", "a difference to nothing", lambda r: r - None, "NoneType"),
    Case(
        "a result of other prompts",
        lambda b: result("right") - icl.predict(b.model, b.prompts[:2]),
        ResultError,
    ),
    of("flow", "an unknown thing to show", lambda r: r.plot("shares"), "show='shares'", "'roles'"),
    of("heads", "a number to show", lambda r: r.plot(show=3), "show=3", "prefix_matching"),
    of("flow", "an unknown option of a figure", lambda r: r.plot(layer=0), "'layer'"),
    of("maps", "a prompt that is not there", lambda r: r.plot(prompt=99), "prompt=99", "4 prompts"),
    of("maps", "a prompt by text", lambda r: r.plot(prompt="first"), "prompt='first'"),
    of("maps", "half a layer", lambda r: r.plot(layer=1.5), "layer=1.5"),
    of("maps", "a truth for a layer", lambda r: r.plot(layer=True), "layer=True"),
    of("maps", "a table of what has no numbers", lambda r: r.to_pandas()),
    of("heads", "no top heads", lambda r: r.top(0), "k=0"),
    of("heads", "top heads by a list", lambda r: r.top(score=["same"]), "score=['same']"),
    of("heads", "top heads by another score", lambda r: r.top(score="sane"), "'same'"),
    of("layers", "an unknown metric", lambda r: r.defined("calibrate"), "'calibrated'"),
    of("layers", "an unknown side", lambda r: r.accuracy("left"), "Unknown 'left'", "true"),
    of("exit", "a task that is not there", lambda r: r.overthinking(9), "task=9", "1 tasks"),
    of("exit", "a side by number", lambda r: r.overthinking(side=1), "side=1"),
    of(
        "context",
        "one text for queries",
        lambda r: r.queries(bench().model, 3),
        "texts=3",
        error=PromptError,
    ),
    of("context", "queries of no model", lambda r: r.queries(None, ["x"]), error=ModelError),
    of("flow", "an unknown third", lambda r: r.share("wp", "middle"), "third='middle'"),
    of("flow", "a score by number", lambda r: r.share(0, "first"), "score=0"),
    of("flow", "an argument left out", lambda r: r.share("wp"), "'third'"),
    of("isolated", "a window by number", lambda r: r.difference(0, 1), "first=0"),
    of(
        "analysis",
        "a result not measured",
        lambda r: r["lens"],
        "no result 'lens'",
        error=MissingResult,
    ),
    of("analysis", "a result by number", lambda r: r[3], error=MissingResult),
    of("analysis", "a page without a path", lambda r: r.to_html(None), "page=None", "reviews.html"),
    any_("a plain result's numbers", lambda: Result().sel()),
    any_("no accuracy to leave early by", lambda: icl.early_exit(None), "a LayerAccuracyResult"),
    any_(
        "an early exit of text", lambda: icl.early_exit("x"), "results='x'", "LayerAccuracyResult"
    ),
    any_("a figure of a number", lambda: figure(3), "plot()"),
    any_("a mean of a list", lambda: mean_interval([0.5]), "per_prompt=[0.5]"),
    any_("a mean of no prompts", lambda: mean_interval(torch.zeros(0))),
    any_(
        "no orders of classes",
        lambda: relabelling(torch.rand(1, 3, 3), torch.rand(3, 3), orders=0),
        "orders=0",
    ),
    any_(
        "outliers without a window",
        lambda: standing_out(torch.rand(20), torch.ones(20), window=0),
        "window=0",
    ),
    any_(
        "a seed of words below 0",
        lambda: kinds_test(torch.ones(1), ["a"], torch.ones(1).bool(), seed=-1),
        "seed=-1",
    ),
    any_("tokens before a row", lambda: uniform_mass(-1), "count=-1"),
    any_("a share of numbers", lambda: wilson_interval(torch.zeros(3)), "float32"),
    any_(
        "classes of other prompts",
        lambda: same_label(torch.zeros(3).long(), torch.zeros(4).long()),
        "reference=Tensor[4]",
        "(batch)",
    ),
    any_(
        "a negative seed of resamples",
        lambda: bootstrap_interval(torch.zeros(3), seed=-1),
        "seed=-1",
    ),
    any_("no resamples", lambda: bootstrap_interval(torch.zeros(3), resamples=0), "resamples=0"),
]
