"""Measure the untrained networks of the offline model that come with the package: `python -m tests.shipped_nulls`.

They are those of the commands below, with the options that the README and the guides give or the command line has
without them. Takes a quarter of an hour; what is there is not measured again (after a change of numbers, delete
the folder), and what no command needs is deleted.
"""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

from icl_mech.cli.app import app
from icl_mech.cli.console import say
from icl_mech.measurements.base import Options
from icl_mech.studies import kept_nulls, nulls
from icl_mech.studies.bench import Bench
from icl_mech.studies.kept_nulls import SHIPPED, KeptNull

TASKS = "reviews", "headlines", "questions"

COMMANDS = (
    *(f"--task {task}" for task in TASKS),
    *(f"--task {task} --study label_words --n {n}" for task, n in product(TASKS, (8, 12, 50))),
    *(
        f"--task {task} --study overthinking --shots 2 --n {n}"
        for task, n in product(TASKS, (12, 50))
    ),
)


class _Seen(BaseException):
    """Ends a command where its untrained networks would be measured."""


def needed(command: str) -> tuple[Any, dict[str, Any], int, Options]:
    """What `icl-mech analyze` with these options asks of untrained networks; nothing is measured.

    Returns:
        Model, measurements, number of networks, and how they are run.
    """

    def skipped(bench: Bench, data: Any, *given: Any, optional: Any = ()) -> None:
        bench.results |= {measurement.name: Any for measurement in (*given, *optional)}

    def seen(*given: Any) -> None:
        raise _Seen(*given)

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(Bench, "measure", skipped),
        patch.object(nulls, "untrained_results", seen),
    ):
        try:
            app(["analyze", *command.split(), "--quiet", "--out", f"{folder}/run"])
        except _Seen as ended:
            return ended.args
    raise AssertionError(f"icl-mech analyze {command} measures no untrained networks")


def kept(command: str) -> Iterator[KeptNull]:
    """Every result of a command."""
    model, wanted, count, options = needed(command)
    for (measurement, data), seed in product(wanted.values(), range(count)):
        yield KeptNull(model, measurement, data, options.interventions, seed)


def main() -> None:
    """Measure what is missing."""
    used = set()
    with (
        patch.object(kept_nulls, "nulls_folder", lambda: None),  # not what this machine has kept
        patch.object(kept_nulls.KeptNull, "keep", lambda one, result: result.save(one.shipped)),
    ):
        for command in COMMANDS:
            say(command)
            nulls.untrained_results(*needed(command))
            used |= {one.shipped.name for one in kept(command)}
    for folder in SHIPPED.iterdir():
        if folder.name not in used:
            shutil.rmtree(folder)
    say(f"{len(used)} results in {SHIPPED}")


if __name__ == "__main__":
    main()
