"""One judge: the same evidence gives the same status and the same p on pages, in sweeps, in comparisons, in an atlas."""

import math
import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from icl_mech.atlas import site
from icl_mech.atlas.store import Entry
from icl_mech.metrics import Interval
from icl_mech.results import Quantity, Result
from icl_mech.results.judging import Controlled
from icl_mech.studies import Analysis, Study
from icl_mech.studies import study as studies
from icl_mech.studies.claim import Claim, Effect
from icl_mech.studies.judge import among_all, judge
from icl_mech.studies.shares import ratio
from icl_mech.sweeps import Sweep, comparison
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.verdicts import by_model

PROMPTS = (2, 5, 6, 24, 48)
ORIGIN = {
    "model": {"weights": "m", "n_layers": 1}, "prompts": {"digest": "d"}, "date": "", "versions": {},
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn(Result):
    """Effects drawn at random."""

    title: ClassVar[str] = "Drawn"

    effects: dict[str, Interval | None]
    count: int

    def quantities(self) -> dict[str, Quantity]:
        """None over prompts."""
        return {}

    def summary(self) -> str:
        """Nothing to say."""
        return ""


def _effect(name, **how):
    return Effect(
        name, lambda run: run["drawn"].effects[name], prompts=lambda run: run["drawn"].count, **how
    )


NAMES = ("one", "two", "beside networks", "beside words", "below", "share", "need", "loss")
ONE, TWO, NETWORKS, WORDS_, _, SHARE, NEED, _ = map(_effect, NAMES)
BELOW, LOSS = _effect("below", rising=False, null=0.2, opposite=0.4), _effect("loss", rising=False)
CLAIMS = (
    Claim("A: alone", [ONE], "drawn"),
    Claim("B: both", [ONE, TWO], "drawn", needs=NEED),
    Claim("C: one measure", [ONE, TWO], "drawn", one=True, share=SHARE),
    Claim("D: networks", [NETWORKS], "drawn", needs=(NEED, ONE)),
    Claim("E: words", [WORDS_], "drawn"),
    Claim("F: below", [BELOW], "drawn", unless=LOSS),
    Claim("G: all", [ONE, NETWORKS, BELOW], "drawn", needs=NEED, share=SHARE, unless=LOSS, least=0.3),
)  # fmt: skip


def drawn(generator):
    """Effects with missing, undefined, zero-width, one-sided intervals, and controls of one draw or without a number."""

    def interval():
        kind = generator.choice(
            ["usual"] * 6 + ["none", "nan", "inf", "still", "one-sided", "touching"]
        )
        if kind == "none":
            return None
        value, low, high = (
            generator.gauss(0.2, 0.4),
            generator.expovariate(4),
            generator.expovariate(4),
        )
        ends = Interval(value, value - low, value + high)
        return {
            "nan": Interval(value, math.nan, math.nan), "inf": Interval(value, -math.inf, value + high),
            "still": Interval(value, value, value), "one-sided": Interval(value, value, value + high),
            "touching": Interval(abs(value), 0.0, abs(value) + high),
        }.get(kind, ends)  # fmt: skip

    found = {name: interval() for name in NAMES}
    if generator.random() < 0.5:
        found["share"] = Interval(0.02, 0.0, 0.02 + generator.expovariate(20))
    for name, control in (("beside networks", "networks"), ("beside words", "relabelled")):
        if found[name] is not None and generator.random() < 0.9:
            values = [generator.gauss(0, 0.05) for _ in range(generator.choice([0, 1, 2, 3, 3, 3]))]
            if values and generator.random() < 0.2:
                values[0] = math.nan
            words = (generator.random() ** 3, generator.random(), generator.choice([0.001, 0.2]))
            found[name] = Controlled.of(
                found[name], **{control: values if control == "networks" else words}
            )
    return Drawn(effects=found, count=generator.choice(PROMPTS), provenance=ORIGIN)


def item_of(seed=0, task="t"):
    return Item(
        model="m", task=task, study="drawn", labels="correct", shots=1, n=24, seed=seed, false_share=None,
        demonstrations="shared", format="", pair=False, balanced=True, measured={}, sources={},
    )  # fmt: skip


@pytest.fixture
def study():
    made = Study("drawn", claims=CLAIMS)
    yield made
    studies._KNOWN.pop("drawn", None)


def told(verdicts):
    return {own.claim: (own.status, own.p) for own in verdicts}


def check(seed, study):
    run = Analysis({"drawn": drawn(random.Random(seed))}, "m on t", made={"study": "drawn"})
    page = told(run.verdicts())
    sweep = Sweep([item_of()], analyses={item_of().key: run})
    compared = {own.claim.text: (own.status, own.p) for own in comparison(sweep).judged}
    demo = among_all([own.verdict for claim in CLAIMS for own in by_model(sweep, claim)])
    entry = Entry(run)
    vars(entry).update(item=item_of(), name="run")
    atlas = {row["claim"]: (row["status"], row["p"]) for row in site._judged([entry])}
    assert page == compared == told(demo) == atlas, seed
    return page


def test_places_agree_on_random_results(study):
    statuses = {status for seed in range(120) for status, _ in check(seed, study).values()}
    assert len(statuses) == 6


@pytest.mark.slow
def test_places_agree_on_many_random_results(study):
    for seed in range(1_000):
        check(seed, study)


@pytest.mark.parametrize(
    ("share", "status"),
    [
        (Interval(0.6, 0.4, 0.8), "supported"),
        (Interval(0.04, 0.01, 0.07), "present, not used"),
        (Interval(-0.4, -0.7, -0.2), "present, not used"),
        (Interval(0.1, 0.02, 0.2), "not shown"),
        (Interval(0.1, 0.1, 0.1), "not shown"),
        (Interval(0.6, math.nan, math.nan), "cannot be judged"),
        (None, "cannot be judged"),
    ],
)
def test_the_share_of_the_answer_decides(share, status):
    clear = Interval(0.5, 0.4, 0.6)
    effects = {"one": clear, "two": clear, "share": share, "need": clear, "loss": None}
    run = Analysis({"drawn": Drawn(effects=effects, count=24, provenance={})}, "")
    claim = Claim("C: it is so", [ONE, TWO], "drawn", one=True, share=SHARE, needs=NEED)
    found = judge(claim, lambda own: own.evidence(run))
    assert found.status == status
    if status == "supported":
        assert 0 < found.p < 0.025
    effects["one"] = Interval(0.0, -0.1, 0.1)  # nothing is there, however much it would carry
    assert judge(claim, lambda own: own.evidence(run)).status in ("not shown", "cannot be judged")


def test_a_mixed_claim_names_what_disagrees_and_not_its_share():
    clear, nothing = Interval(0.5, 0.4, 0.6), Interval(0.0, -0.1, 0.1)
    claim = Claim("C: it is so", [ONE, TWO], "drawn", share=SHARE)
    for share in (None, clear):
        effects = {"one": clear, "two": nothing, "share": share}
        run = Analysis({"drawn": Drawn(effects=effects, count=24, provenance={})}, "")
        found = judge(claim, lambda own, run=run: own.evidence(run))
        assert found.status == "mixed"
        assert {"one", "two"} <= {*found.remark.split()}
        assert "share" not in found.remark


def test_means_keep_their_controls(study):
    """Means over seeds lie beyond the means of their networks; p-values over words have no mean."""

    def run(far, networks, words=(0.001, 0.9, 0.001)):
        wide = Interval(far, far - 0.1, far + 0.1)
        effects = {
            "beside networks": networks and Controlled.of(wide, networks=networks),
            "beside words": Controlled.of(wide, relabelled=words),
        }
        result = Drawn(effects={**dict.fromkeys(NAMES), **effects}, count=24, provenance={})
        return Analysis({"drawn": result}, "m on t", made={"study": "drawn"})

    def status(runs, effect):
        items = [item_of(seed) for seed in range(len(runs))]
        analyses = {item.key: one for item, one in zip(items, runs, strict=True)}
        (found,) = by_model(Sweep(items, analyses=analyses), Claim("X: y", [effect], "drawn"))
        return found.status

    near, beyond = [0.0, 0.01, 0.02], [0.5, 0.4, 0.6]
    assert status([run(0.5, near), run(0.52, near), run(0.48, near)], NETWORKS) == "supported"
    assert status([run(0.5, beyond), run(0.52, beyond), run(0.48, beyond)], NETWORKS) == "not shown"
    for odd in ([math.nan, 0.0, 0.1], [0.1]):
        runs = [run(0.5, near), run(0.52, odd), run(0.48, near)]
        assert status(runs, NETWORKS) == "cannot be judged"
    assert status([run(0.5, near)] * 3, WORDS_) == "cannot be judged"
    assert status([run(0.5, near)], WORDS_) == "supported"


def test_a_share_of_items_is_a_ratio_of_their_means(study):
    """One item alone may have no clear gain; the mean over items takes numerators and denominators, not shares."""
    generator = torch.Generator().manual_seed(0)
    added = [0.8 + torch.randn(24, generator=generator).double() for _ in range(6)]
    added[0] -= added[0].mean()  # demonstrations add nothing there
    runs = [
        Analysis({"drawn": Drawn(effects={}, count=24, provenance=ORIGIN)}, str(number))
        for number in range(6)
    ]
    share = ratio("share", lambda run: (0.5 * added[int(run.title)], added[int(run.title)]))
    items = [item_of(seed) for seed in range(6)]
    sweep = Sweep(items, analyses={i.key: run for i, run in zip(items, runs, strict=True)})
    clear = Effect("clear", lambda run: Interval(0.5, 0.4, 0.6))
    (found,) = by_model(sweep, Claim("X: y", [clear], share=share))
    assert found.effects["share"].value == pytest.approx(0.5)
    assert found.effects["share"].low > 0.4
    assert math.isnan(share.interval(runs[0]).low)
    assert found.status == "supported"
