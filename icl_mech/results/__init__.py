"""Results: labelled samples with provenance, and their files."""

from icl_mech.results.base import Figure, Result
from icl_mech.results.files import FORMAT, atomic_folder, jsonable, read_json, write_text
from icl_mech.results.prompts import basis
from icl_mech.results.quantities import Quantity, function_of_means
from icl_mech.results.samples import Samples
from icl_mech.results.storage import load_result, write_result

__all__ = [
    "FORMAT",
    "Figure",
    "Quantity",
    "Result",
    "Samples",
    "atomic_folder",
    "basis",
    "function_of_means",
    "jsonable",
    "load_result",
    "read_json",
    "write_result",
    "write_text",
]
