"""`python -m icl_mech`: the command line of `icl_mech.cli`."""

import sys

from icl_mech.names import versions


def main() -> None:
    """Run the command line; `--version` imports nothing that only commands need."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"{versions()}\n")
        return
    from icl_mech.cli import main as run

    run()


if __name__ == "__main__":
    main()
