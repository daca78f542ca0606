"""Label settings: what each demonstration displays."""

import inspect

import numpy as np
import pytest

from icl_mech.corruption import SETTINGS, displayed_classes, draw_shift, false_answer
from icl_mech.errors import TaskError
from tests.said import Words

WORDS = Words(__file__)

CLASSES = [0, 1, 2, 3, 0, 2]


class Listed:
    """Stands in for a generator: hands out the given numbers, in order."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self, n):
        draw = self.draws.pop(0)
        assert len(draw) == n
        return np.array(draw)


COINS = [0.1, 0.9, 0.49, 0.5, 0.0, 0.99]
UNIFORM = [0.0, 0.24, 0.25, 0.99, 0.5, 0.74]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("correct", [0, 1, 2, 3, 0, 2]),
        ("permuted", [3, 0, 1, 2, 3, 1]),
        # Correct where the coin is below one half.
        ("half_permuted", [0, 0, 2, 2, 0, 1]),
        # floor(4 u)
        ("random", [0, 0, 1, 3, 2, 2]),
        # y + 1 + floor(3 u) mod 4
        ("random_incorrect", [1, 2, 3, 2, 2, 1]),
        # In the order of u.
        ("shuffled", [0, 1, 2, 0, 2, 3]),
    ],
)
def test_by_hand(setting, shown):
    # The generator's type is checked at run time, hence the bare function.
    plain = inspect.unwrap(displayed_classes)
    assert plain(CLASSES, 4, setting, 3, Listed(COINS, UNIFORM)) == shown


def test_shuffled_labels_are_as_many_of_each_and_say_nothing_of_their_texts():
    true, generator = [0, 1, 2, 3] * 2, np.random.default_rng(0)
    drawn = [displayed_classes(true, 4, "shuffled", 1, generator) for _ in range(2000)]
    assert all(sorted(own) == sorted(true) for own in drawn)
    assert np.mean(np.array(drawn) == true) == pytest.approx(1 / 4, abs=0.02)
    with WORDS.raises(TaskError, "shuffled_labels_many_each"):
        displayed_classes(true, 4, "shuffled", 1, generator, share=0.5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_demonstrations(setting):
    assert displayed_classes([], 3, setting, 1, np.random.default_rng(0)) == []


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_every_setting_takes_as_much_from_the_stream(n_classes):
    after = set()
    for setting in SETTINGS:
        generator = np.random.default_rng(5)
        displayed_classes([0, 1, 1, 0], n_classes, setting, 1, generator)
        after.add(generator.random())
    assert len(after) == 1


def draws(setting, n_classes, n=6000, shift=1):
    generator = np.random.default_rng(1)
    true = generator.integers(0, n_classes, n)
    shown = np.array(displayed_classes(true.tolist(), n_classes, setting, shift, generator))
    assert shown.min() >= 0
    assert shown.max() < n_classes
    return true, shown


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_permuted_is_never_correct_and_one_to_one(n_classes):
    for shift in range(1, n_classes):
        true, shown = draws("permuted", n_classes, shift=shift)
        assert not np.any(true == shown)
        assert {(int(t), int(s)) for t, s in zip(true, shown, strict=True)} == {
            (label, (label + shift) % n_classes) for label in range(n_classes)
        }


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_half_permuted_is_correct_or_shifted_each_half_of_the_time(n_classes):
    true, shown = draws("half_permuted", n_classes)
    correct = true == shown
    assert np.array_equal(shown[~correct], (true[~correct] + 1) % n_classes)
    assert abs(correct.mean() - 0.5) < 0.03  # about 5 standard errors


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_random_is_uniform_whatever_the_true_class(n_classes):
    true, shown = draws("random", n_classes)
    for label in range(n_classes):
        shares = np.bincount(shown[true == label], minlength=n_classes) / np.sum(true == label)
        assert np.abs(shares - 1 / n_classes).max() < 0.075


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_random_incorrect_is_uniform_over_the_wrong_classes(n_classes):
    true, shown = draws("random_incorrect", n_classes)
    for label in range(n_classes):
        shares = np.bincount(shown[true == label], minlength=n_classes) / np.sum(true == label)
        assert shares[label] == 0
        assert np.abs(np.delete(shares, label) - 1 / (n_classes - 1)).max() < 0.075


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_shift_is_uniform_over_one_to_c_minus_one(n_classes):
    generator = np.random.default_rng(2)
    shifts = [draw_shift(n_classes, generator) for _ in range(3000)]
    assert set(shifts) == set(range(1, n_classes))
    shares = np.bincount(shifts)[1:] / len(shifts)
    assert np.abs(shares - 1 / (n_classes - 1)).max() < 0.05


def test_false_answer_by_hand():
    assert false_answer(2, 4, "permuted", 3) == 1
    assert false_answer(0, 2, "half_permuted", 1) == 1
    for setting in ("correct", "random", "random_incorrect"):
        assert false_answer(2, 4, setting, 3) is None


def test_false_answer_is_what_a_permuted_demonstration_of_that_class_shows():
    for label in range(5):
        for shift in range(1, 5):
            shown = displayed_classes([label], 5, "permuted", shift, np.random.default_rng(0))
            assert shown == [false_answer(label, 5, "permuted", shift)]


def test_unknown_setting():
    plain = inspect.unwrap(displayed_classes)
    with pytest.raises(TaskError) as caught:
        plain([0, 1], 2, "permutated", 1, np.random.default_rng(0))
    WORDS(str(caught.value), "unknown_setting", "'permutated'")
    assert "'permuted'" in str(caught.value)


@pytest.mark.parametrize("setting", ["permuted", "random", "random_incorrect"])
def test_a_share_of_false_labels(setting):
    generator = np.random.default_rng(1)
    true = generator.integers(0, 4, 6000).tolist()
    before = set()
    for share in (0.0, 0.2, 0.5, 0.8, 1.0):
        own, whole = (np.random.default_rng(7) for _ in range(2))
        shown = displayed_classes(true, 4, setting, 1, own, share)
        false = displayed_classes(true, 4, setting, 1, whole)
        assert own.random() == whole.random()
        taken = {i for i in range(6000) if shown[i] == false[i] != true[i]}
        could = sum(a != b for a, b in zip(false, true, strict=True))
        assert abs(len(taken) / could - share) < 0.03
        assert before <= taken  # what a smaller share replaces stays replaced
        before = taken
        if share == 1:
            assert shown == false


def test_half_of_the_permuted_labels_are_half_permuted():
    both = [
        displayed_classes(CLASSES, 4, setting, 3, np.random.default_rng(3), share)
        for setting, share in (("half_permuted", None), ("permuted", 0.5))
    ]
    assert both[0] == both[1] != CLASSES


@pytest.mark.parametrize(
    ("setting", "share", "message"),
    [("correct", 0.2, "false_share"), ("half_permuted", 1.0, "none own"),
     ("permuted", 1.2, "0 to 1"), ("random", -0.1, "0 to 1"),
     ("permuted", float("nan"), "0 to 1")],
)  # fmt: skip
def test_shares_that_cannot_be(setting, share, message):
    plain = inspect.unwrap(displayed_classes)
    with WORDS.raises(TaskError, message):
        plain([0, 1], 2, setting, 1, np.random.default_rng(0), share)
