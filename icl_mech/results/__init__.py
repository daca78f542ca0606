"""Results: labelled values with provenance, and their files."""

from icl_mech.results.base import Result, load_result, write_result
from icl_mech.results.storage import FORMAT, atomic_folder, jsonable, read_json

__all__ = [
    "FORMAT",
    "Result",
    "atomic_folder",
    "jsonable",
    "load_result",
    "read_json",
    "write_result",
]
