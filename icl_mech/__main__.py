"""`python -m icl_mech`: the command line of `icl_mech.cli`."""

from icl_mech.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
