"""Untrained networks compared with a model: the measurements of a study on randomly initialised networks.

Networks of one architecture on the same prompts are measured once and kept (`kept_nulls`). Each costs the
memory of one more model while it is measured. Their range is drawn as an outline beside the curves of the model;
the threshold for claims about flow is in `untrained`.
"""

import gc
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float
from icl_mech.engine.progress import expect
from icl_mech.errors import IclMechError, ResultError
from icl_mech.looks.lenses import with_zero_shot
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.lens.fitted import lens_used
from icl_mech.measurements.lens.top_words import TopWordsResult
from icl_mech.measurements.provenance import Identity
from icl_mech.measurements.running import Item, Prompts, measured, work_of
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.models import LanguageModel
from icl_mech.models.adapt import untrained
from icl_mech.models.rehearsal import stage
from icl_mech.results import Figure, Quantity, Result
from icl_mech.results.wording import counted
from icl_mech.shapes import Behind, LayerCurves
from icl_mech.studies.bench import Bench
from icl_mech.studies.kept_nulls import KeptNull
from icl_mech.studies.untrained import UntrainedFlow, beside_flow, check_nulls

PROMPTS = 8
"""Number of prompts an untrained network is measured on; a few are enough, since these curves hardly differ."""

LARGEST = 4 << 30
"""Maximum size of the unpacked weights, in bytes, for which untrained networks are made by default."""

SMALL = 128
"""Networks up to this width are left to the usual garbage collection."""

MOST_KNOWN = 1024
_KNOWN: dict[str, Result] = {}

LEFT_OUT = (
    "No untrained (randomly initialised) networks were measured to compare flow and attention with; "
    "nulls=3 measures three."
)


def usual_nulls(model: LanguageModel) -> int:
    """Default number of untrained networks.

    They are never packed: a weight of 8 or 4 bits counts two bytes.
    """
    size = sum(
        prod((getattr(parameter, "quant_state", None) or parameter).shape)
        * max(2, parameter.element_size())
        for parameter in model.module.parameters()
    )
    return 3 if size <= LARGEST else 0


def add_untrained(bench: Bench, data: Prompts, nulls: int | None) -> None:
    """Add results of untrained networks to those of the model.

    Information flow becomes `untrained`, which claims about it must exceed; every result drawn as
    curves over layers gets a band behind them.

    Args:
        bench: The bench, with the results of the model, and what to measure on the networks.
        data: Its prompts.
        nulls: Number of networks; None: three for models that are not large, 0: none.

    Raises:
        IclMechError: networks were requested and cannot be measured.
    """
    count = usual_nulls(bench.model) if nulls is None else nulls
    if not count:
        bench.notes.append(LEFT_OUT)
        return
    check_nulls(count)
    left: dict[str, tuple[AnyMeasurement[Any, Any], Prompts]] = {}
    for name, (measurement, most) in bench.for_nulls.items():
        if name in bench.results and not _kept(bench, name, count):
            left[name] = (measurement, first_of(data, most))
    _announce(bench, data, count, [name for name in bench.for_nulls if name not in left], -1)
    try:
        new_results = untrained_results(bench.model, left, count, bench.options)
        for name, results in new_results.items():
            _keep(bench, name, left[name][1], results)
    except IclMechError as error:
        if nulls is not None:
            raise
        bench.notes.append(f"Untrained networks left out: {error}")


def announce_untrained(bench: Bench, data: Prompts, nulls: int | None) -> None:
    """Announce the work of untrained networks that are measured later, so that progress counts it from the start."""
    count = usual_nulls(bench.model) if nulls is None else nulls
    if count:
        _announce(bench, data, count, bench.for_nulls, 1)


def _announce(bench: Bench, data: Prompts, count: int, names: Iterable[str], sign: int) -> None:
    """Announce, or withdraw, work on these results."""
    if stage() is None:
        for work, missing in _missing(bench, data, count, names):
            expect(sign * work * missing)


def missing_share(bench: Bench, data: Prompts, count: int) -> float:
    """Fraction of the work of `count` networks that is still to be done; the rest was kept by earlier runs."""
    parts = list(_missing(bench, data, count, bench.for_nulls))
    whole = count * sum(work for work, _ in parts)
    return sum(work * missing for work, missing in parts) / whole if whole else 1.0


def _missing(
    bench: Bench, data: Prompts, count: int, names: Iterable[str]
) -> Iterator[tuple[float, int]]:
    """For each of these results, its work on a network, and the number of networks that lack it."""
    for measurement, most in map(bench.for_nulls.__getitem__, names):
        with suppress(IclMechError):  # raised, or noted, where they are measured
            first = first_of(data, most)
            work = _work(measurement, bench.model, first, bench.options)
            places = (
                KeptNull(bench.model, measurement, first, bench.options.interventions, seed)
                for seed in range(count)
            )
            yield work, sum(_known(place) is None for place in places)


def _work(
    measurement: AnyMeasurement[Any, Any], model: LanguageModel, data: Prompts, options: Options
) -> float:
    """Approximate cost of one untrained network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are given for the model
        return work_of(Item.checked(measurement, model, data, options), model, options)


def _known(place: KeptNull) -> Result | None:
    """A result that was measured before; None if there is none."""
    if place.may_be_kept and place.identity in _KNOWN:
        return _KNOWN[place.identity]
    result = place.load()
    if result is not None:
        _remember(place, result)
    return result


def _remember(place: KeptNull, result: Result) -> None:
    if stage() is None and place.may_be_kept:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[place.identity] = result


def _kept(bench: Bench, name: str, count: int) -> bool:
    """True if the folder holds all untrained results for this result, which are then put on the bench."""
    result = bench.results[name]
    wanted: list[tuple[str, Any]] = [(f"{PREFIX}{name}", UntrainedCurves)]
    if isinstance(result, FlowScores):
        wanted.append(("untrained", UntrainedFlow))
    for key, kind in wanted:
        kept = bench.kept(key, kind)
        if kept is None or len(kept.networks) != count or not _same(result, kept):
            return False
        bench.results[key] = kept
    return True


def _keep(bench: Bench, name: str, data: Prompts, results: Sequence[Result]) -> None:
    result = bench.results[name]
    networks = [f"untrained, seed {seed}" for seed in range(len(results))]
    prompts = len(data[0]) if isinstance(data, tuple) else len(data)
    flows = [flow for flow in results if isinstance(flow, FlowScores)]
    if isinstance(result, FlowScores):
        bench.keep("untrained", beside_flow(result, flows, networks, prompts))
    curves = curves_of(result, results, prompts, networks)
    if curves is not None:
        bench.keep(f"{PREFIX}{name}", curves)


def untrained_results(
    model: LanguageModel,
    wanted: Mapping[str, tuple[AnyMeasurement[Any, Any], Prompts]],
    count: int,
    options: Options,
) -> dict[str, list[Result]]:
    """Results of the measurements on `count` untrained networks, with seeds 0, 1, ….

    Raises:
        IclMechError: a measurement rejects them, or no untrained network can be made of this model.
    """
    how = vars(options)
    results: dict[str, list[Result]] = {name: [] for name in wanted}
    for seed in range(count):
        network: Any = None
        for name, (measurement, data) in wanted.items():
            kept = KeptNull(model, measurement, data, options.interventions, seed)
            result = _known(kept)
            if result is None:
                network = untrained(model.wrapped, seed) if network is None else network
                # `measured` announces it again.
                expect(-_work(measurement, model, data, options))
                with warnings.catch_warnings():
                    # Warnings about the prompts were already given for the model.
                    warnings.simplefilter("ignore")
                    result = measured(measurement, network, data, **how)
                _remember(kept, result)
                if stage() is None:
                    kept.keep(result)
            results[name].append(result)
        if network is not None and model.info.d_model > SMALL:
            network = None  # it and its adapter refer to each other
            gc.collect()
    return results


def first_of(data: Prompts, most: int) -> Prompts:
    """The first prompts, at most this many; of a pair, of both sides."""
    if isinstance(data, tuple):
        true, false = (side[: min(most, len(side))] for side in data)
        return true, false
    return data[: min(most, len(data))]


def _same(result: Result, kept: Result) -> bool:
    return not Identity.recorded(result.provenance).differences(Identity.recorded(kept.provenance))


# --- the outline beside a curve ---

PREFIX = "untrained_"
"""Prefix of the names of these results, before the name of the model's result."""


@dataclass(frozen=True, eq=False, kw_only=True)
class UntrainedCurves(Result):
    """Curves of randomly initialised networks, drawn behind those of the model.

    Attributes:
        values: Curves of each network.
        names: Names of the curves.
        x: Horizontal coordinates of their points.
        show: The drawing that they belong to.
        networks: Names of the networks.
        count: Number of prompts each was measured on.
    """

    title: ClassVar[str] = "Untrained networks behind a figure"

    values: Float[torch.Tensor, "network curve x"]
    names: tuple[str, ...]
    x: tuple[float, ...]
    show: str
    networks: tuple[str, ...]
    count: int

    def quantities(self) -> dict[str, Quantity]:
        """No quantities over prompts: each network is one curve."""
        return {}

    def figures(self) -> list[Figure]:
        """No figures: the curves are drawn behind those of the model."""
        return []

    def drawing(self) -> LayerCurves:
        """Mean and range of the networks."""
        low, middle, high = self._range()
        return LayerCurves(
            title="Untrained networks",
            names=self.names,
            values=middle,
            low=low,
            high=high,
            y_title="as in the model's figure",
            note=self._note(),
            x=self.x,
        )

    def behind(self, shape: LayerCurves) -> LayerCurves:
        """The figure of the model with these networks behind its curves."""
        x = shape.x or tuple(map(float, range(shape.values.shape[1])))
        named = {name: row for row, name in enumerate(self.names)}
        drawn = [i for i in range(len(shape.names)) if i not in shape.nulls]
        if x != self.x or len(named) < len(self.names):
            return shape  # an earlier version, whose curves shared names
        low, _, high = self._range()
        areas = tuple(
            Behind("untrained", i, tuple(low[row].tolist()), tuple(high[row].tolist()))
            for i in drawn
            for row in [named.get(shape.names[i])]
            if row is not None
        )
        if not areas:
            return shape
        note = f"{shape.note}; {self._note()}" if shape.note else self._note()
        return replace(shape, behind=areas, note=note)

    def _note(self) -> str:
        prompts = counted(self.count, "prompt")
        return (
            f"outlined: range of {counted(len(self.networks), 'untrained network')} over {prompts}"
        )

    def _range(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Minimum, mean and maximum over the networks that have a value."""
        known = ~self.values.isnan()
        low = torch.where(known, self.values, torch.inf).amin(0)
        high = torch.where(known, self.values, -torch.inf).amax(0)
        nothing = ~known.any(0)
        ends = [torch.where(nothing, torch.nan, end) for end in (low, high)]
        return ends[0], self.values.nanmean(0), ends[1]

    def summary(self) -> str:
        """Networks, prompts and number of curves."""
        return f"{self._note()}, of {counted(len(self.names), 'curve')}"


def curves_of(
    own: Result, results: Sequence[Result], count: int, networks: Sequence[str]
) -> UntrainedCurves | None:
    """The curves of results of untrained networks; None if they have none.

    Args:
        own: Result of the model.
        results: The same result of each network.
        count: Number of prompts.
        networks: Names of the networks.
    """
    shapes, show = [], own.shows[0]
    for result in results:
        try:
            how: dict[str, Any] = {"show": show} if show else {}
            shape = result.drawing(**how)
        except ResultError:
            continue
        if isinstance(shape, LayerCurves):
            shapes.append(shape)
    if len(shapes) < len(results) or len({shape.names for shape in shapes}) != 1:
        return None
    first = shapes[0]
    return UntrainedCurves(
        values=torch.stack([shape.values.float() for shape in shapes]),
        names=first.names,
        x=first.x or tuple(map(float, range(first.values.shape[1]))),
        show=show,
        networks=tuple(networks),
        count=count,
        provenance={**own.provenance, "networks": list(networks)},
    )


def with_band(results: Mapping[str, Result], name: str, show: str, drawing: object) -> Any:
    """The drawing of a result, with what was measured to compare it with.

    Untrained networks are drawn behind its curves, the lens of bare queries beside those of classes.
    """
    top = next((own for own in results.values() if isinstance(own, TopWordsResult)), None)
    if isinstance(drawing, LayerCurves) and show == "classes" and top is not None:
        return with_zero_shot(drawing, top) if top.lens == lens_used(results[name]) else drawing
    nulls = results.get(f"{PREFIX}{name}")
    if (
        isinstance(drawing, LayerCurves)
        and isinstance(nulls, UntrainedCurves)
        and nulls.show == show
    ):
        return nulls.behind(drawing)
    return drawing
