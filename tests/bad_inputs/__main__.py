"""Prints every bad input with the message it gets, as a Markdown table."""

import sys
import tempfile
from pathlib import Path

from tests.bad_inputs.case import Bench, all_cases

for name, case in all_cases().items():
    with tempfile.TemporaryDirectory() as folder:
        try:
            case.call(Bench(Path(folder)))
            message = "ACCEPTED"
        except Exception as error:  # noqa: BLE001 - listing what comes out
            message = f"{type(error).__name__}: {error}".replace(folder, "FOLDER")
    cell = " ".join(message.split()).replace("|", "\\|")
    sys.stdout.write(f"| {name} | {cell} |\n")
