"""Curves drawn together are told apart by the colour-blind, and without colour."""

from itertools import combinations

import pytest

from icl_mech.plots.style import LOOKS
from tests.plots.colours import SEEN, apart, lab

TOGETHER = (("text", "label", "other"), ("true", "false"), ("label", "query", "target"))
"""Meanings that the figures of a study draw in one panel."""

CLEAR = 20
"""ΔE of two colours of thin lines that are told apart without comparing them side by side."""


def test_the_scale_of_differences():
    assert apart("#000000", "#ffffff") == pytest.approx(100, abs=0.1)
    assert lab("#ff0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.1)
    # Red and green of one lightness are one colour to an eye without green, blue and yellow are not.
    assert apart("#c85a5a", "#6f8a3a", "no green") < 25 < apart("#c85a5a", "#6f8a3a")
    assert apart("#3060c0", "#a08020", "no green") > 80


@pytest.mark.parametrize("eye", [eye for eye in SEEN if eye != "grey"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("meanings", TOGETHER, ids="-".join)
def test_every_eye_tells_curves_of_one_panel_apart(meanings, theme, eye):
    for one, other in combinations(meanings, 2):
        colours = [getattr(LOOKS[meaning], theme) for meaning in (one, other)]
        assert apart(*colours, eye) >= CLEAR, (one, other)


@pytest.mark.parametrize("meanings", TOGETHER, ids="-".join)
def test_without_colour_dash_and_marker_tell_curves_apart(meanings):
    for one, other in combinations((LOOKS[meaning] for meaning in meanings), 2):
        assert one.dash != other.dash
        assert one.marker != other.marker
