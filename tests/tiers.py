"""Which tests run when: `make quick`, `make test`, `make check`, `make test-all`, `make test-exhaustive`.

* quick: the files below, with one family of models, in two minutes;
* usual: all that is not marked `slow`, `second` (another family outside of `BOTH`) or `combination`;
* check: the usual ones, and those of the docs' site, the second real model and TransformerLens 3.9;
* all: the slow ones, all combinations and families;
* exhaustive: what is marked so, minutes each.

Each holds the one before it, but for the exhaustive tests, which stand apart.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tiny import FAMILIES

HERE = Path(__file__).parent

QUICK = (
    "atlas/test_checks.py",
    "bad_inputs/test_bad_inputs.py",
    "cli/test_prompts.py",
    "cli/test_words.py",
    "demo/test_data.py",
    "engine/test_gradients.py",
    "engine/test_padding.py",
    "engine/test_paths.py",
    "explorer/test_actions.py",
    "interventions/test_golden.py",
    "measurements/accuracy/test_early_exit.py",
    "measurements/anchors/test_spans.py",
    "measurements/by_demonstration/test_flow.py",
    "measurements/calibration/test_calibration.py",
    "measurements/causal/test_function_vectors_golden.py",
    "measurements/circuits/test_files.py",
    "measurements/compression/test_golden.py",
    "measurements/confusion/test_diagnosis.py",
    "measurements/extraction/test_extraction.py",
    "measurements/heads/test_scores.py",
    "measurements/isolation/test_windows.py",
    "measurements/lens/test_logit_lens.py",
    "measurements/rationales/test_rationale_answers.py",
    "measurements/reweighting/test_reweighting.py",
    "measurements/saliency/test_flow.py",
    "measurements/saliency/test_roles.py",
    "measurements/stability/test_stability.py",
    "measurements/test_label_words_golden.py",
    "measurements/test_overthinking_golden.py",
    "metrics/test_means.py",
    "metrics/test_outcomes.py",
    "metrics/test_priors.py",
    "models/test_checks.py",
    "models/test_watching.py",
    "plots/test_figures.py",
    "prompts/test_build.py",
    "prompts/test_spans.py",
    "prompts/test_tokens.py",
    "recipes/test_recipes.py",
    "results/test_files.py",
    "results/test_judging.py",
    "results/test_samples.py",
    "studies/test_claims_overthinking.py",
    "studies/test_kept.py",
    "sweeps/test_averages.py",
    "sweeps/test_plan.py",
    "tasks/test_task.py",
    "tasks/test_template.py",
    "test_architecture.py",
    "test_corruption.py",
    "test_house.py",
    "test_metrics.py",
    "test_metrics_auc.py",
    "test_metrics_family.py",
    "test_metrics_overthinking.py",
    "test_mutations.py",
    "test_public_api.py",
    "test_segments.py",
    "test_stub.py",
    "test_tiers.py",
    "test_typechecked.py",
    "texts/test_texts.py",
)

WITHOUT_QUICK = ("browser", "families", "faults", "fuzz", "second_model")
"""Folders that no quick file stands for: pages in a browser, families, kills, random cases, another real model."""

BOTH = (
    "engine",
    "interventions",
    "measurements/confusion",
    "measurements/heads",
    "measurements/lens",
    "models",
)
"""Folders whose code goes another way where heads share keys, positions rotate or norms differ."""


def is_left_out(path: Path) -> bool:
    """True for a file of tests that is not a quick one."""
    inside = path.suffix == ".py" and path.name.startswith("test_") and HERE in path.parents
    return inside and path.relative_to(HERE).as_posix() not in QUICK


def mark_second_families(items: Iterable[pytest.Item]) -> None:
    """Mark what another family runs too, outside of `BOTH`."""
    items = [(item, _family(item)) for item in items]
    first = {_name(item) for item, family in items if family == FAMILIES[0]}
    for item, family in items:
        folder = item.path.relative_to(HERE).as_posix()
        if family in FAMILIES[1:] and _name(item) in first and not folder.startswith(BOTH):
            item.add_marker(pytest.mark.second)


def mark_combinations(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of a test whose values of every parameter occur in its other cases.

    What stays holds each value once, most often all together: of a grid of 4 × 21 cases, 21.
    """
    grids: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        # What runs in `make test-all` alone cannot stand for others.
        apart = any(map(item.get_closest_marker, ("second", "slow", "exhaustive")))
        if getattr(item, "callspec", None) and not apart:
            grids.setdefault((*_name(item), item.cls), []).append(item)
    for cases in grids.values():
        for item in _repeated(cases):
            item.add_marker(pytest.mark.combination)


def _repeated(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases left over when those with the most new values are taken first."""
    # A list of pairs is one parameter here: somebody chose the pairs. (`indices` number combinations.)
    values = [set(enumerate(item.callspec._idlist)) for item in cases]
    seen: set[tuple[int, str]] = set()
    taken = set()
    for news in range(len(values[0]), 0, -1):
        for number, own in enumerate(values):
            if len(own - seen) >= news:
                seen |= own
                taken.add(number)
    return [item for number, item in enumerate(cases) if number not in taken]


def _family(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    given = call.params.values() if call else ()
    found = [own for own in given if isinstance(own, str) and own in FAMILIES]
    return found[0] if len(found) == 1 else None


def _name(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)
