"""`icl-mech power`: whether the prompts of a study suffice to see an effect of some size."""

from pathlib import Path
from typing import Annotated, Any

import typer

from icl_mech.cli.console import say, say_json
from icl_mech.errors import SweepError
from icl_mech.sweeps.config import read_config

DEFAULT_N = 50


def power(
    file: Annotated[
        Path, typer.Argument(metavar="STUDY.YAML", help="A sweep, with study: label_words.")
    ],
    effect: Annotated[
        float, typer.Option(min=0, help="Size to be seen: loyalty lost, or AUC above chance.")
    ] = 0.25,
    wanted: Annotated[
        float, typer.Option("--power", min=0.01, max=0.99, help="Share of runs that shall see it.")
    ] = 0.8,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """How often runs of a study would support its claims, at an effect of this size."""
    from icl_mech.studies.power import UNITS, powers

    given = read_config(file)
    studies = given.get("study") or ()
    studies = (studies,) if isinstance(studies, str) else tuple(studies)
    if "label_words" not in studies:
        raise SweepError(
            f"{file} has the study {', '.join(map(str, studies)) or 'default'}; power was measured for the claims "
            "of label_words."
        )
    n = int(given.get("n", DEFAULT_N))
    rows: list[dict[str, Any]] = []
    for own in powers():
        rate, needed = own.at(effect, n), own.needed(effect, wanted)
        rows.append({"claim": own.claim, "effect": effect, "unit": UNITS[own.measure], "n": n,
                     "power": rate, "prompts_needed": needed})  # fmt: skip
    if json:
        say_json({"rows": rows, "measured_prompts": list(powers()[0].prompts)})
        return
    for row in rows:
        seen = "an effect beyond what was measured"
        if row["power"] is not None:
            seen = f"supported in {row['power']:.0%} of runs"
        needed = row["prompts_needed"]
        enough = (
            f"{needed} prompts"
            if needed
            else f"more than {powers()[0].prompts[-1]} prompts, or other seeds"
        )
        say(f"{row['claim']}: {effect:g} {row['unit']}")
        say(f"  with n = {n} of one seed {seen}; {wanted:.0%} need {enough}")
    say(
        "Measured on planted circuits, one seed each; means over several seeds see smaller effects."
    )
