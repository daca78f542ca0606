"""Writes docs/families.md: what is compared, and what came out."""

import logging
import math
import sys
import warnings
from pathlib import Path

from tests.families.compare import COMPARISONS, Both, outcome
from tests.families.configs import FAMILIES, Family

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
HEAD = """# Supported families

Written by `python -m tests.families`, from a run over tiny random models; the tests make the same
comparisons. Every model is compared with plain Hugging Face (eager attention, no TransformerLens)
on the same weights, in float32:

| comparison | ours | theirs |
|---|---|---|
"""
TABLE = """
*Largest difference* is relative to the largest value, or to 1, rounded up to a power of ten.
*Class* is that of transformers; checkpoints of other names with that class behave alike.

| family | class | compared | largest difference | refused, and why |
|---|---|---|---|---|
"""


def main() -> None:
    """Run all families and write the page."""
    rows = [_row(family) for family in FAMILIES]
    sides = [_side(name, compare.__doc__ or "") for name, compare in COMPARISONS.items()]
    PAGE.write_text(HEAD + "".join(sides) + TABLE + "".join(rows), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


def _side(name: str, text: str) -> str:
    ours, theirs = text.strip().rstrip(".").split(" against ")
    return f"| {name} | {ours.rstrip(',')} | {theirs} |\n"


def _row(family: Family) -> str:
    found = outcome(Both(family))
    kind = type(family.make()).__name__
    if found.refused:
        return f"| {family.name} | `{kind}` | - | - | {_cell(found.refused)} |\n"
    names = "all" if len(found.gaps) == len(COMPARISONS) else ", ".join(found.gaps)
    worst = 10.0 ** math.ceil(math.log10(max(*found.gaps.values(), 1e-7)))
    notes = [f"{name}: {_cell(text)}" for name, text in found.refusals.items()]
    notes += [f"{name} not compared: the plain model {why}" for name, why in family.untried.items()]
    return f"| {family.name} | `{kind}` | {names} | {worst:.0e} | {'; '.join(notes)} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    main()
