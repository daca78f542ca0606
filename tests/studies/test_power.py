"""What was measured of power, by hand and as it ships."""

import pytest

from icl_mech.studies.power import UNITS, Cell, Power, powers


@pytest.fixture
def own():
    cells = [(0.0, 12, 0), (0.2, 12, 2), (0.4, 12, 8), (0.0, 24, 0), (0.2, 24, 6), (0.4, 24, 10)]
    return Power(
        "label_words", "C", "isolation", tuple(Cell(effect, n, k, 10) for effect, n, k in cells)
    )


def test_rates_lie_between_those_of_measured_effects(own):
    assert own.at(0.2, 12) == pytest.approx(0.2)
    assert own.at(0.3, 12) == pytest.approx(0.5)  # half way from .2 to .8
    assert own.at(0.3, 23) == pytest.approx(0.5)  # the largest measured number up to 23 is 12
    assert own.at(0.3, 24) == pytest.approx(0.8)
    assert own.at(0.1, 100) == pytest.approx(0.3)
    assert own.at(0.0, 12) == 0


def test_nothing_is_said_beyond_what_was_measured(own):
    assert own.at(0.5, 24) is None
    assert own.at(0.3, 6) is None
    assert own.needed(0.5, 0.8) is None


def test_prompts_needed(own):
    assert own.needed(0.4, 0.8) == 12
    assert own.needed(0.3, 0.8) == 24
    assert own.needed(0.1, 0.8) is None


def test_a_larger_effect_is_not_seen_less_often():
    cells = [(0.0, 12, 0), (0.2, 12, 6), (0.4, 12, 5), (0.6, 12, 9)]
    own = Power(
        "label_words", "C", "isolation", tuple(Cell(effect, n, k, 10) for effect, n, k in cells)
    )
    rates = [own.at(step / 20, 12) for step in range(13)]
    assert rates == sorted(rates)


def test_a_fall_is_shared_by_those_around_it():
    """7 of 10 at .5, then 2 of 10 at .76: a running maximum would report 7 of 10 where 2 were seen."""
    cells = [(0.0, 24, 0, 10), (0.5, 24, 14, 20), (0.76, 24, 2, 10), (1.0, 24, 10, 10)]
    cells += [(0.0, 48, 0, 10), (1.0, 48, 10, 10), (0.0, 96, 0, 10), (0.9, 96, 9, 10)]
    own = Power("causal", "C", "needed", tuple(Cell(*cell) for cell in cells))
    assert own.at(0.5, 24) == own.at(0.76, 24) == pytest.approx(16 / 30)
    assert own.at(0.88, 24) == pytest.approx((16 / 30 + 1) / 2)
    assert own.needed(0.76, 0.6) == 48
    assert own.needed(0.95, 0.8) == 24  # 96 were not measured at so much
    late = [Cell(1.0, 24, 9, 10), Cell(1.0, 48, 7, 10), Cell(1.0, 96, 9, 10)]
    assert Power("causal", "C", "needed", tuple(late)).needed(1.0, 0.8) == 96


def test_what_ships():
    studies = {"label_words": (12, 24, 48), "overthinking": (24, 48), "causal": (24, 48)}
    studies["contextualise"] = (24, 48)
    assert {own.study for own in powers()} == set(studies)
    assert {own.measure for own in powers()} == set(UNITS)
    assert len({own.claim for own in powers()}) == len(powers())
    for own in powers():
        assert own.prompts == studies[own.study]
        for n in own.prompts:
            weakest, *_, strongest = (cell for cell in own.cells if cell.n == n)
            assert weakest.supported == 0  # strength 0
            assert weakest.effect < strongest.effect
    assert next(o for o in powers() if o.claim == "Shallow aggregation").measure == "isolation"
