"""Results: labelled samples with provenance, and their files."""

from icl_mech.results.base import Result, Samples
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.files import (
    FORMAT,
    PAGE,
    PROMPTS,
    check_names,
    given_path,
    jsonable,
    sealed_page,
)
from icl_mech.results.folders import Folder, claimed, is_vacant
from icl_mech.results.prompts import basis
from icl_mech.results.quantities import Quantity, function_of_means, quantity
from icl_mech.results.sets import INDEX, About, list_results, paths_of, read_results, write_results

__all__ = [
    "FORMAT",
    "INDEX",
    "PAGE",
    "PROMPTS",
    "About",
    "Definition",
    "Figure",
    "Folder",
    "Quantity",
    "Result",
    "Samples",
    "basis",
    "check_names",
    "claimed",
    "function_of_means",
    "given_path",
    "is_vacant",
    "jsonable",
    "list_results",
    "paths_of",
    "quantity",
    "read_results",
    "sealed_page",
    "write_results",
]
