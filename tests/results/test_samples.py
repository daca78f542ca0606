"""Labelled samples: axes from types, intervals, selection, paired differences."""

import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import mean_ends, wilson_interval
from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.results import Quantity, Result, Samples, basis, function_of_means, quantity
from icl_mech.results.prompts import ENDS, doubtful, doubts, kinds_of_ends, too_skewed
from icl_mech.results.quantities import axes_of
from icl_mech.shapes import Bars, Grid, LayerCurves, Table
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

DIGEST = {"prompts": {"digest": "a", "count": 4}}


@dataclass(frozen=True, eq=False, kw_only=True)
class Colours(Result):
    """Numbers by colour and layer, and a yes or no."""

    mass: Float[Tensor, "batch colour layer"]
    right: Bool[Tensor, " batch"]
    classes: Int[Tensor, " batch"]

    axis_labels = {"colour": ("red", "green")}  # noqa: RUF012 - of the class, as results declare it


@dataclass(frozen=True, eq=False, kw_only=True)
class Shares(Result):
    """A ratio of means."""

    parts: Float[Tensor, "batch part"]

    def quantities(self):
        def share(means):
            return means / means.sum(-1, keepdim=True)

        return {"share": Quantity(("part",), self.parts, function_of_means(self.parts, share))}


@dataclass(frozen=True, eq=False, kw_only=True)
class Ratio(Result):
    """A function of means over other axes than its values."""

    parts: Float[Tensor, "batch part"]

    def quantities(self):
        first = function_of_means(self.parts, lambda means: means[..., 0] / means.sum(-1))
        return {"share": Quantity((), self.parts, first)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Declared(Result):
    """Fields that say which quantities they are."""

    right: Bool[Tensor, "batch layer"] = quantity("share", kind="outcome", name="accuracy")
    other: Float[Tensor, "batch layer"]
    change: Float[Tensor, "batch layer"] | None = quantity("nats", default=None)

    ranked = True
    axis_labels = {"layer": "blocks"}  # noqa: RUF012

    @property
    def blocks(self):
        return (5, 6, 7)

    def more_columns(self):
        return {"depth": 3}


@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Result):
    """Keeps nothing by prompt."""

    total: float


MASS = torch.tensor(
    [
        [[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]],
        [[2.0, 2.0, 4.0], [0.0, 1.0, 1.0]],
        [[3.0, 2.0, 5.0], [0.0, 2.0, 1.0]],
        [[6.0, 2.0, 0.0], [0.0, 3.0, 1.0]],
    ]
)


def colours(shift=0.0, origin=DIGEST, mass=MASS):
    return Colours(
        mass=mass + shift,
        right=torch.tensor([True, True, False, True]),
        classes=torch.tensor([0, 1, 2, 0]),
        provenance=origin,
    )


@pytest.mark.parametrize(
    ("kind", "ndim", "axes"),
    [
        (Float[Tensor, "batch layer"], 2, ("batch", "layer")),
        (Float[Tensor, " batch"] | None, 1, ("batch",)),
        (Float[Tensor, "layer dest=pos src=pos"], 3, ("layer", "dest", "src")),
        (Float[Tensor, "batch *demo layer"], 2, ("batch", "layer")),
        (Float[Tensor, "batch *demo layer"], 3, ("batch", "demo", "layer")),
        (Float[Tensor, "batch layer"], 3, None),
        (tuple[int, ...], 1, None),
    ],
)
def test_axes_are_read_from_types(kind, ndim, axes):
    assert axes_of(kind, ndim) == axes


def test_labelled_arrays():
    array = colours().to_xarray()
    assert array["mass"].dims == ("prompt", "colour", "layer")
    assert array["mass"].coords["colour"].values.tolist() == ["red", "green"]
    assert set(array) == {"mass", "right"}  # classes are ids, whose mean says nothing
    assert float(array["mass"].sel(prompt=2, colour="green", layer=1)) == 2.0


def test_estimates_are_means_with_bootstrap_and_wilson_intervals():
    found = colours().estimates()
    assert found["mass"].sel(end="value", colour="red").values.tolist() == [3.0, 2.0, 3.0]
    low, high = mean_ends(MASS)
    assert_close(torch.from_numpy(found["mass"].sel(end="low").values), low)
    assert_close(torch.from_numpy(found["mass"].sel(end="high").values), high)
    wilson = wilson_interval(torch.tensor([True, True, False, True]))
    assert tuple(found["right"].values.tolist()) == pytest.approx(wilson)


def test_one_number():
    result = colours()
    found = result.interval("mass", colour="green", layer=1)
    low, high = mean_ends(MASS[:, 1, 1])
    assert found == (1.5, float(low), float(high))
    assert result.interval("right").value == 0.75
    with WORDS.raises(ResultError, "number", "3"):
        result.interval(colour="red")


def test_selection_keeps_samples():
    found = colours().sel("mass", colour="green")
    assert isinstance(found, Samples)
    assert found.dims == ("layer",)
    assert_close(found.per_prompt, MASS[:, 1])
    assert colours().sel("mass", layer=[0, 2]).values.shape == (2, 2)
    assert colours().sel("mass", layer=slice(1, 2)).labels == (("red", "green"), (1, 2))


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        (("weight",), {}, "weight"),
        ((), {"row": 1}, "row"),
        ((), {"colour": "blue"}, "colourblue"),
        ((), {"layer": 7}, "layer7 0 1"),
    ],
)
def test_what_is_not_there(arguments, labels, message):
    with WORDS.raises(ResultError, message):
        colours().sel(*arguments, **labels)


def test_a_difference_is_paired():
    one, other = colours(), colours(mass=MASS * 2)
    found = one - other
    assert_close(found.values, -MASS.double().mean(0))
    assert_close(found.per_prompt, -MASS.double())
    low, high = mean_ends(-MASS.double())
    assert_close(found.low, low)
    assert_close(found.high, high)
    shifted = colours(shift=1.0) - colours()
    # The same change in every prompt leaves no doubt, however much prompts differ.
    assert_close(shifted.low, torch.ones(2, 3).double())
    assert_close(shifted.high, torch.ones(2, 3).double())
    assert found.provenance["difference"]["subtrahend"] == DIGEST


def test_one_number_of_a_difference():
    found = colours() - colours(mass=MASS * 2)
    gap = -MASS[:, 1, 2].double()
    low, high = mean_ends(gap)
    cell = found.interval(colour="green", layer=2)
    assert tuple(cell) == pytest.approx((float(gap.mean()), float(low), float(high)))
    assert found.sel(layer=0).labels == (("red", "green"),)


def test_known_ends_are_not_estimated_again():
    known = torch.tensor([-1.0, -2.0]), torch.tensor([8.0, 9.0])
    quantity = Quantity(("part",), MASS[:, 0, :2], known=known)
    for end, expected in zip(quantity.ends(), known, strict=True):
        assert torch.equal(end, expected)
    *_, high = quantity.minus(Quantity(("part",), MASS[:, 0, 1:]))
    assert float(high.max()) < 8.0


def test_cells_without_numbers_stay_so():
    """Blank cells have no values and no intervals, and leave the others as they are."""
    blank = MASS.double()
    blank[:, 1, 2] = torch.nan
    found, whole = colours(mass=blank), colours(mass=MASS.double())
    for ends in zip(*(Quantity(("c", "l"), x.mass).ends() for x in (found, whole)), strict=True):
        assert bool(ends[0][1, 2].isnan())
        assert_close(*(end.flatten()[:5] for end in ends), rtol=0, atol=0)
    gap = found - whole
    assert bool(gap.values[1, 2].isnan() & gap.low[1, 2].isnan() & gap.high[1, 2].isnan())
    assert int(gap.low.isfinite().sum()) == 5


def test_a_difference_of_ratios_is_recomputed_in_each_resample():
    generator = torch.Generator().manual_seed(1)
    parts = [torch.rand(9, 2, generator=generator, dtype=torch.float64) for _ in range(2)]
    one, other = (Shares(parts=part, provenance=DIGEST) for part in parts)
    found = one - other
    weights = resample_weights(9)
    drawn = [weights @ part for part in parts]
    share = [means / means.sum(-1, keepdim=True) for means in drawn]
    plain = np.quantile((share[0] - share[1]).numpy(), [0.025, 0.975], axis=0)
    assert_close(
        torch.stack([found.low, found.high]), torch.stack(quantile_ends(share[0] - share[1], 9))
    )
    # As much wider as Student's t of nine prompts asks for.
    wider = (found.high - found.low).numpy() / (plain[1] - plain[0])
    assert bool(((wider > 1.1) & (wider < 1.5)).all())
    whole = [part.mean(0) / part.mean(0).sum() for part in parts]
    assert_close(found.values, whole[0] - whole[1])
    assert found.per_prompt is None


def test_one_cell_of_a_difference_of_ratios():
    one, other = (Shares(parts=MASS[:, 0] + shift, provenance=DIGEST) for shift in (0.0, 1.0))
    found = one - other
    cell = found.interval(part=2)
    assert cell == tuple(float(end[2]) for end in (found.values, found.low, found.high))


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured(Result):
    """Means whose intervals come from elsewhere."""

    mass: Float[Tensor, "batch layer"]
    half: float

    def quantities(self):
        mean = self.mass.mean(0)
        return {"mass": Quantity(("layer",), self.mass, known=(mean - self.half, mean + self.half))}


@dataclass(frozen=True, eq=False, kw_only=True)
class Masses(Result):
    mass: Float[Tensor, "batch layer"]


def test_ends_that_are_known_are_taken_but_differences_stay_paired():
    one, other = (Measured(mass=MASS[:, 0], half=half, provenance=DIGEST) for half in (0.5, 3.0))
    assert one.interval(layer=0) == (3.0, 2.5, 3.5)
    assert other.to_pandas().mass_high.tolist() == [6.0, 5.0, 6.0]
    assert other.sel(layer=1).drawing().low.tolist() == [[-1.0]]
    difference = one - other
    assert_close(torch.stack([difference.low, difference.high]), torch.zeros(2, 3).double())


def test_what_intervals_rest_on():
    WORDS.exactly(basis(colours()), "basis_of_skewed_values", "4", "95", "12")
    WORDS.exactly(basis(colours(), quantity=""), "what_intervals_rest", "4", "95")
    assert colours().sel().note == (colours() - colours()).note.removesuffix("; paired")
    shared = colours(origin={**DIGEST, "conditional_on_demonstrations": True})
    WORDS.exactly(
        basis(shared, "2 pairs of prompts"), "basis_of_shared", "2 pairs of prompts", "12"
    )


def skewed(prompts):
    """Of three means the first has one prompt apart from all others."""
    own = torch.linspace(-1, 1, prompts)[:, None].repeat(1, 3)
    own[:, 0] = (torch.arange(prompts) == 0).float()
    return own


def test_values_too_skewed_for_so_few_prompts_are_named():
    one = Measured(mass=skewed(16), half=0.1, provenance=DIGEST)
    assert "skewed" not in one.sel().note  # its ends are of another kind
    own = Quantity(("layer",), skewed(16))
    # Skewness (1 - 2 / 16) / sqrt(15) * 16 / sqrt(1): 14 / sqrt(15), four times its square is 52.3.
    WORDS.exactly(doubts([own]), "values_too_skewed_so", "1", "3", "53")
    assert too_skewed(own) == (1, 3, 53)
    assert doubts([Quantity(("layer",), skewed(16)[:, 1:])]) == ""
    assert doubts([Quantity(("layer",), skewed(16).abs(), kind="outcome")]) == ""
    assert doubts([Quantity(("layer",), skewed(16) > 0)]) == ""
    WORDS(doubts([Quantity(("layer",), skewed(8)), own]), "values_too_skewed_so_2", "8")


def test_pages_say_where_prompts_are_too_few():
    (few,) = doubtful({"one": colours(), "two": colours()})
    WORDS.exactly(few, "few_prompts", "mass", "4", "12")
    enough, apart = (Masses(mass=skewed(24)[:, own]) for own in (slice(1, 3), slice(3)))
    (rare,) = doubtful({"one": enough})
    WORDS.exactly(rare, "rare_values", "24", "8")
    skew, also = doubtful({"one": apart, "two": enough})
    WORDS.exactly(skew, "skewed_values", "mass", "1 of 3", "85")
    assert also == rare
    assert doubtful({"one": Masses(mass=skewed(48)[:, 1:])}) == []


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked(Result):
    """Counts how often its quantities are made."""

    values: Float[Tensor, "batch layer"]
    kind: str = "value"
    made: ClassVar[list[int]] = []

    def quantities(self):
        self.made.append(1)
        return {"values": Quantity(("layer",), self.values, kind=self.kind)}


def test_what_the_ends_are_is_said():
    found = [
        Asked(values=skewed(16).clamp(0, 1), kind=own) for own in ("outcome", "change", "value")
    ]
    said = kinds_of_ends(dict(zip("abc", found, strict=True)))
    assert [ENDS[own] in said for own in ("share", "change", "mean", "function")] == [1, 1, 1, 0]
    WORDS.exactly(kinds_of_ends({"one": found[1]}), "what_ends_said", ENDS["change"])
    assert ENDS["function"] in kinds_of_ends({"one": Ratio(parts=skewed(16).abs())})
    assert kinds_of_ends({"one": Measured(mass=skewed(16), half=0.1)}) == ""


def test_quantities_are_made_once():
    own = Asked(values=skewed(16))
    Asked.made.clear()
    first = own.quantities()
    first["another"] = first["values"]
    assert own.sel("values").name == "values"
    assert list(own.quantities()) == ["values"]
    assert len(Asked.made) == 1
    own.sel().low.zero_()
    before = own.interval(layer=1)
    own.values.add_(1)  # what is changed in place is made again
    assert own.interval(layer=1).value == pytest.approx(before.value + 1)
    object.__setattr__(own, "values", skewed(24))
    assert own.quantities()["values"].count == 24
    again = pickle.loads(pickle.dumps(own))  # noqa: S301 - made here
    assert vars(again).keys() == {"values", "kind", "provenance"}
    assert list(replace(own, values=skewed(8)).quantities()["values"].per_prompt.shape) == [8, 3]


def test_differences_of_differences():
    found = (colours(shift=3.0) - colours()) - (colours(shift=1.0) - colours())
    assert_close(found.values, torch.full((2, 3), 2.0).double())


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_paired():
    with WORDS.raises(ResultError, "what_cannot_paired", "4", "5"):
        _ = colours() - colours(origin={"prompts": {"digest": "b", "count": 5}})
    with WORDS.raises(ResultError, "what_cannot_paired_2"):
        _ = colours() - colours(origin={})
    with WORDS.raises(ResultError, "what_cannot_paired_3"):
        _ = colours() - Shares(parts=MASS[:, 0], provenance=DIGEST)
    with WORDS.raises(ResultError, "what_cannot_paired_4", "2", "3"):
        _ = colours() - colours(mass=MASS[..., :2])
    with WORDS.raises(ResultError, "what_cannot_paired_5", "'mass'", "'right'"):
        _ = colours().sel("mass") - colours().sel("right")
    false = {**DIGEST, "false_prompts": {"digest": "x"}}
    other = {**DIGEST, "false_prompts": {"digest": "y"}}
    with WORDS.raises(ResultError, "what_cannot_paired_6"):
        _ = colours(origin=false) - colours(origin=other)
    with WORDS.raises(ResultError, "what_cannot_paired_7"):
        _ = colours() - 1


def test_tables_name_every_quantity_over_the_same_axes():
    table = colours().to_pandas()
    assert list(table.columns) == ["colour", "layer", "mass", "mass_low", "mass_high"]
    assert len(table) == 6
    assert table.loc[4, ["colour", "layer", "mass"]].tolist() == ["green", 1, 1.5]
    single = colours().to_pandas("right")
    assert list(single.columns) == ["right", "right_low", "right_high"]
    assert single["right"].tolist() == [0.75]
    assert single.equals(colours().sel("right").to_pandas())
    low = colours().sel(colour="green", layer=1).low
    assert table.loc[4, "mass_low"] == float(low)


def test_wide_tables_have_the_first_axis_across():
    table = colours().to_pandas(wide=True)
    columns = ["red", "red_low", "red_high", "green", "green_low", "green_high"]
    assert list(table.columns) == ["layer", *columns]
    assert table["green"].tolist() == [0.0, 1.5, 1.0]
    of_one_axis = colours().sel(colour="red").to_pandas(wide=True)
    assert len(of_one_axis) == 1
    assert of_one_axis["1"].tolist() == [2.0]
    assert list(colours().to_pandas("right", wide=True).columns)[1:] == ["right_low", "right_high"]


def test_tables_of_single_prompts():
    table = colours().by_prompt()
    assert list(table.columns) == ["prompt", "colour", "layer", "mass"]
    assert table.query("prompt == 3 and colour == 'green' and layer == 1")["mass"].tolist() == [3.0]
    with WORDS.raises(ResultError, "tables_single_prompts"):
        Ratio(parts=MASS[:, 0], provenance=DIGEST).by_prompt()


def test_fields_declare_quantities():
    """Name, unit and kind stand on the field; fields that are not declared are none."""
    own = Declared(right=MASS[:, 0] > 1, other=MASS[:, 0], change=None, provenance=DIGEST)
    (found,) = own.quantities().items()
    assert found[0] == "accuracy"
    assert (found[1].unit, found[1].kind, found[1].dims) == ("share", "outcome", ("layer",))
    more = Declared(right=MASS[:, 0] > 1, other=MASS[:, 0], change=MASS[:, 0], provenance=DIGEST)
    assert list(more.quantities()) == ["accuracy", "change"]
    assert more.coordinates() == {"layer": (5, 6, 7)}
    table = more.to_pandas()
    assert table["layer"].tolist() == [6, 5, 7]  # the largest first
    assert table["depth"].tolist() == [3, 3, 3]
    assert list(more.to_pandas("change").columns) == [
        "layer",
        "change",
        "change_low",
        "change_high",
    ]


def test_saved_and_loaded(tmp_path):
    found = colours() - colours(mass=MASS * 2)
    loaded = Result.load(found.save(tmp_path / "difference"))
    for name in ("values", "low", "high", "per_prompt"):
        assert_close(getattr(loaded, name), getattr(found, name))
    assert (loaded.dims, loaded.labels) == (found.dims, found.labels)
    assert loaded.summary() == found.summary()
    assert_close((loaded - found).values, torch.zeros(2, 3).double())


def test_every_result_can_be_drawn():
    result = colours()
    assert isinstance(result.drawing(), LayerCurves)
    assert result.drawing().names == ("red", "green")
    assert isinstance(result.sel("mass", layer=1).drawing(), Bars)
    assert isinstance(result.sel("right").drawing(), Bars)
    many = Samples(
        name="score",
        dims=("layer", "head"),
        labels=(tuple(range(3)), tuple(range(20))),
        values=torch.randn(3, 20),
        low=torch.randn(3, 20),
        high=torch.randn(3, 20),
    )
    assert isinstance(many.drawing(), Grid)
    long = Samples(
        name="score", dims=("word",), labels=(tuple(range(40)),),
        values=torch.rand(40), low=torch.rand(40), high=torch.rand(40),
    )  # fmt: skip
    assert isinstance(long.drawing(), Table)
    for shown in (result, many, long):
        assert [type(part).__name__ for part in shown.shown()] == ["str", "Drawn"]


def test_a_short_repr_and_a_notebook_display_without_a_figure():
    assert repr(colours()) == f"<Colours {colours().summary()}>"
    assert len(repr(colours())) < 120
    nothing = Nothing(total=3.0)
    assert repr(nothing) == "<Nothing Nothing>"
    assert nothing.shown() == ["Nothing"]
    with WORDS.raises(ResultError, "short_repr_notebook_display"):
        nothing.to_xarray()


def test_one_name_for_one_kind():
    with WORDS.raises(ResultError, "name_kind", "'FlowScores'"):
        type("FlowScores", (Result,), {"__module__": __name__})


def test_summary_names_the_largest_cell():
    found = colours(mass=MASS * 3) - colours()
    WORDS(found.summary(), "summary_names_largest_cell", "0", "6")


def test_a_view_that_is_not_there():
    with pytest.raises(ResultError, match="show='bars'"):
        colours().plot("bars")


def test_slices_say_what_they_hold():
    model = tiny_model("gpt2")
    found = icl.flow_scores(model, icl.build_prompts(TASK, model, n=1))
    WORDS(repr(found.sel("share", layer=slice(0, 1))), "slices_say_what_they", "0", "1")
    assert "over 1 prompt" in icl.predict(model, icl.build_prompts(TASK, model, n=1)).summary()
    shown = icl.predict(model, icl.build_prompts(TASK, model, n=6)).drawing()
    assert shown.note == "6 prompts"
    assert found.drawn().note.startswith("1 prompt,")
