"""Label settings of demonstrations: which class each demonstration displays.

Source: Halawi et al. 2023, *Overthinking the Truth*, §2.
"""

from typing import Literal, get_args

import numpy as np

from icl_mech.errors import TaskError, near_matches

LabelSetting = Literal[
    "correct", "permuted", "half_permuted", "random", "random_incorrect", "shuffled", "other"
]
"""Label settings; `other` is for free-form answers only: the answer of another relation."""

SETTINGS: tuple[LabelSetting, ...] = get_args(LabelSetting)[:-1]


def draw_shift(n_classes: int, generator: np.random.Generator) -> int:
    """A cyclic shift `s`, uniform over `1 ... C-1`."""
    return int(generator.integers(1, n_classes))


def displayed_classes(
    classes: list[int],
    n_classes: int,
    setting: LabelSetting,
    shift: int,
    generator: np.random.Generator,
    share: float | None = None,
    *,
    nested: bool = False,
) -> list[int]:
    """Class displayed by each demonstration, given the true classes `classes`.

    * `correct`: the true class `y`;
    * `permuted`: `(y + s) mod C`, one shift `s` for the whole prompt;
    * `half_permuted`: correct with probability 1/2, else permuted;
    * `random`: uniform over all classes, the true one included;
    * `random_incorrect`: uniform over the wrong classes;
    * `shuffled`: the true classes in random order, each as often as before: a control in which
      label words carry no information about their demonstrations.

    With a `share`, the setting applies to each demonstration with this probability; otherwise it displays
    its true class: `half_permuted` is `permuted` with a share of 1/2. For a fixed seed, the demonstrations replaced
    with a small share are also replaced with a larger one.

    With `nested` draws, the labels of fewer demonstrations are a prefix of those of more, unless they are `shuffled`.

    Raises:
        TaskError: unknown setting, or a share that it does not support.
    """
    if share is not None:
        check_share(share, setting)
    n = len(classes)
    true = np.asarray(classes, dtype=int)
    # Every setting draws the same numbers, so a seed gives the same stream in all of them.
    if nested:
        coin, uniform = generator.random((n, 2)).T
    else:
        coin, uniform = generator.random(n), generator.random(n)
    permuted = (true + shift) % n_classes
    every = {
        "correct": true,
        "permuted": permuted,
        "half_permuted": np.where(coin < 0.5, true, permuted),
        "random": np.floor(uniform * n_classes).astype(int),
        "random_incorrect": (true + 1 + np.floor(uniform * (n_classes - 1)).astype(int))
        % n_classes,
        "shuffled": true[np.argsort(uniform, kind="stable")],
    }
    if setting not in every:
        raise TaskError(f"Unknown label setting {setting!r}. {near_matches(setting, SETTINGS)}")
    shown = every[setting]
    if share is not None:
        shown = np.where(coin >= 1 - share, shown, true)
    return [int(label) for label in shown]


def check_share(share: float, setting: LabelSetting) -> None:
    """Reject a share of false labels that is not a probability, or in a setting without a share.

    Raises:
        TaskError: states the valid settings or values.
    """
    if setting in ("correct", "half_permuted", "shuffled"):
        raise TaskError(
            f"false_share={share} has no effect with the label setting {setting!r}; choose "
            "'permuted', 'random' or 'random_incorrect', or leave false_share out."
        )
    if not 0 <= share <= 1:
        raise TaskError(f"false_share={share}; it is a probability, from 0 to 1.")


def false_answer(answer: int, n_classes: int, setting: LabelSetting, shift: int) -> int | None:
    """Class of the query if the false labels are followed, `(y + s) mod C`.

    None in settings without a unique false answer.
    """
    if setting in ("permuted", "half_permuted"):
        return (answer + shift) % n_classes
    return None
