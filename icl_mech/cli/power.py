"""`icl-mech power`: whether a study has enough prompts to detect an effect of a given size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from icl_mech.cli.console import say, say_json
from icl_mech.errors import SweepError

DEFAULT_N = 50


def power(
    file: Annotated[Path, typer.Argument(metavar="STUDY.YAML", help="A sweep with studies.")],
    effect: Annotated[
        float,
        typer.Option(
            min=0,
            help="Effect size, as a fraction: loyalty or accuracy lost, AUC above chance, "
            "prompts that change.",
        ),
    ] = 0.25,
    wanted: Annotated[
        float,
        typer.Option(
            "--power", min=0.01, max=0.99, help="Fraction of runs that should detect the effect."
        ),
    ] = 0.8,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Estimate how often runs of a study would support its claims, given an effect of this size."""
    from icl_mech.results.wording import listed
    from icl_mech.studies.power import UNITS, powers
    from icl_mech.sweeps.config import read_config

    given = read_config(file)
    studies = given.get("study") or ()
    studies = (studies,) if isinstance(studies, str) else tuple(studies)
    known = [curve for curve in powers() if curve.study in studies]
    if not known:
        raise SweepError(
            f"{file} names the study {', '.join(map(str, studies)) or 'default'}, but power was "
            "measured only for the claims of "
            f"{listed(dict.fromkeys(curve.study for curve in powers()))}."
        )
    n = int(given.get("n", DEFAULT_N))
    rows = [
        {
            "claim": curve.claim,
            "effect": effect,
            "unit": UNITS[curve.measure],
            "n": n,
            "power": curve.at(effect, n),
            "prompts_needed": curve.needed(effect, wanted),
        }
        for curve in known
    ]
    if json:
        measured = sorted({n for curve in known for n in curve.prompts})
        say_json({"rows": rows, "measured_prompts": measured})
        return
    for curve, row in zip(known, rows, strict=True):
        say(f"{row['claim']}: {effect:g} {row['unit']}")
        say(f"  with n = {n} and one seed: {_seen(row, wanted, curve.prompts[-1])}")
    say(
        "Measured on planted networks (synthetic networks with a known circuit), one seed each; "
        "means over several seeds detect smaller effects."
    )


def _seen(row: Mapping[str, Any], wanted: float, most: int) -> str:
    """How often an effect is detected, and how many prompts detect it often enough."""
    seen = "not measured for an effect this large or so few prompts"
    if row["power"] is not None:
        seen = f"supported in {row['power']:.0%} of runs"
    needed = row["prompts_needed"]
    enough = f"{needed} prompts" if needed else f"more than {most} prompts, or other seeds"
    return f"{seen}; {wanted:.0%} need {enough}"
