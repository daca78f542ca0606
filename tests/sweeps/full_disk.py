"""A sweep on disks that are too small: `python -m tests.sweeps.full_disk` (needs the right to mount).

For each size one line: what the sweep said, what was left, and whether it went on when there was space.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from icl_mech.errors import IclMechError
from icl_mech.sweeps.item import LIST
from tests.sweeps.killed import run
from tests.sweeps.kills import compare, finished

SIZES = ("16k", "32k", "48k", "64k", "96k", "128k", "192k", "256k", "384k", "512k")


def mounted(place, size, *options):
    """A file system of so many bytes."""
    subprocess.run(
        ["mount", *options, "-t", "tmpfs", "-o", f"{'remount,' if options else ''}size={size}", "tmpfs", str(place)],
        check=True,
    )  # fmt: skip


def main():
    for how in ({}, {"workers": 2}):
        for size in SIZES:
            place = Path(tempfile.mkdtemp())
            mounted(place, size)
            folder = place / "s"
            try:
                try:
                    run(folder, **how)
                    told = "finished"
                except IclMechError as error:
                    told = f"{type(error).__name__}: {str(error).replace(str(place), '...')[:110]}"
                except BaseException as error:  # noqa: BLE001 - what is looked for
                    told = f"RAW {type(error).__name__}: {str(error)[:90]}"
                before = finished(folder) if (folder / LIST).is_file() else {}
                staged = [path.name for path in folder.rglob(".*") if path.is_file()]
                mounted(place, "64m", "-i")
                run(folder, **how)
                after = finished(folder)
                same = all(after[key] == files for key, files in before.items())
                compare(folder)
                sys.stdout.write(
                    f"{size:>5}, {how.get('workers', 'no')} workers: {told}; {len(before)} items kept, "
                    f"{len(staged)} files half-written; resumed: {len(after)} done, kept ones "
                    f"{'as they were' if same else 'CHANGED'}\n"
                )
                sys.stdout.flush()
            finally:
                subprocess.run(["umount", "-l", str(place)], check=False)
                place.rmdir()


if __name__ == "__main__":
    main()
