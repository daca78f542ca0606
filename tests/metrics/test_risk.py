"""Risk control: p-values by hand and by their size, accepted thresholds, and the guarantee on data of known risk."""

from math import comb, e, exp, log

import pytest
import torch
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics.risk import hoeffding_bentkus, learn_then_test
from tests.said import Words

WORDS = Words(__file__)


def test_p_values_by_hand():
    """1 of 10, 0 of 10 and 3 of 10 losses against .3; 5 of 10 lies above it."""
    found = hoeffding_bentkus(torch.tensor([0.1, 0.0, 0.3, 0.5]), 0.3, 10)
    entropy = 0.1 * log(0.1 / 0.3) + 0.9 * log(0.9 / 0.7)
    bentkus = e * sum(comb(10, k) * 0.3**k * 0.7 ** (10 - k) for k in (0, 1))
    assert exp(-10 * entropy) < bentkus
    assert_close(found, torch.tensor([exp(-10 * entropy), 0.7**10, 1.0, 1.0]).double())
    # Far below, Bentkus is smaller: 30 of 1000 against .05.
    (far,) = hoeffding_bentkus(torch.tensor([0.03]), 0.05, 1000)
    tail = e * sum(comb(1000, k) * 0.05**k * 0.95 ** (1000 - k) for k in range(31))
    assert float(far) == pytest.approx(tail, rel=1e-9)
    entropy = 0.03 * log(0.03 / 0.05) + 0.97 * log(0.97 / 0.95)
    assert float(far) < exp(-1000 * entropy)


@pytest.mark.parametrize("level", [0.02, 0.1, 0.3, 0.55])
@pytest.mark.parametrize("count", [7, 48, 200])
def test_never_too_small_at_the_level(level, count):
    """Of 0/1 losses with this mean, exactly: P(p <= u) <= u."""
    losses = torch.arange(count + 1)
    p = hoeffding_bentkus(losses.double() / count, level, count)
    mass = torch.tensor([comb(count, k) * level**k * (1 - level) ** (count - k) for k in range(count + 1)])  # fmt: skip
    for u in (0.001, 0.01, 0.05, 0.1, 0.25, 0.5):
        assert float(mass[p <= u].sum()) <= u


def test_never_too_small_for_losses_of_three_values():
    """Half losses, as differences give: simulated, with the mean at the level."""
    generator = torch.Generator().manual_seed(0)
    for share in (0.1, 0.5, 0.9):  # of losses of a half
        weights = torch.tensor([(1 - share) * 0.45, share, (1 - share) * 0.55]).expand(20_000, 3)
        drawn = torch.multinomial(weights, 60, replacement=True, generator=generator)
        level = float(weights[0] @ torch.tensor([0.0, 0.5, 1.0]))
        p = hoeffding_bentkus(drawn.double().mean(1) / 2, level, 60)
        for u in (0.01, 0.05, 0.1):
            assert float((p <= u).double().mean()) <= u


def test_accepted_thresholds_by_hand():
    p = torch.tensor([0.01, 0.2, 0.01, 0.04])
    assert learn_then_test(p, 0.05).tolist() == [True, False, False, False]
    assert learn_then_test(p, 0.05, 2).tolist() == [True, False, True, False]
    assert learn_then_test(p, 0.2, 4).tolist() == [True, False, True, True]  # Bonferroni
    assert learn_then_test(p.flip(0), 0.05).tolist() == [True, True, False, False]
    both = learn_then_test(torch.stack([p, p.flip(0)]), 0.05)
    assert both.tolist() == [[True, False, False, False], [True, True, False, False]]


@pytest.mark.parametrize("starts", [1, 5, 20])
def test_the_guarantee_on_data_of_known_risk(starts):
    """20 thresholds with known risks, most of them just above the level, losses that share prompts."""
    generator = torch.Generator().manual_seed(1)
    level, delta, count = 0.2, 0.1, 100
    risks = torch.linspace(0.1, 0.3, 20)
    uniform = torch.rand(4000, count, 1, generator=generator)
    losses = (uniform < risks).double().mean(1)
    accepted = learn_then_test(hoeffding_bentkus(losses, level, count), delta, starts)
    wrong = (accepted & (risks > level)).any(1).double().mean()
    assert float(wrong) <= delta
    # It is no use to accept nothing.
    assert float(accepted.any(1).double().mean()) > 0.3


def test_refusals():
    with WORDS.raises(ResultError, "level"):
        hoeffding_bentkus(torch.tensor([0.1]), 1.0, 10)
    with WORDS.raises(ResultError, "negative"):
        hoeffding_bentkus(torch.tensor([-0.1, 0.5]), 0.3, 10)
    with WORDS.raises(ResultError, "starts"):
        learn_then_test(torch.tensor([0.1]), 0.1, 2)
