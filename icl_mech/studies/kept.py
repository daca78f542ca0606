"""The prompts an analysis keeps: those its results are of, never another study's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_mech.errors import IclMechError, ResultError
from icl_mech.prompts import PromptBatch
from icl_mech.results import PROMPTS, Result

SIDES = ("prompts", "false_prompts")
"""Of the provenance of a result."""


class PromptSets(tuple[PromptBatch, ...]):
    """The prompts of a study: one batch, or true and false ones; a notebook shows their text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        names = ("True demonstrations", "False demonstrations") if len(self) > 1 else ("",)
        return "".join(
            (f"<h4>{name}</h4>" if name else "") + batch._repr_html_()
            for name, batch in zip(names, self, strict=False)
        )


def check_prompts(prompts: Any, results: Mapping[str, Result]) -> PromptSets:
    """The prompts, if the results can be of them.

    Results of other prompts may stand beside them, such as heads chosen on another task.

    Raises:
        ResultError: no batches, or none of the results that say what they are of is of these.
    """
    batches = (prompts,) if isinstance(prompts, PromptBatch) else prompts
    if not isinstance(batches, tuple | list) or len(batches) > len(SIDES):
        raise ResultError(
            f"prompts is a {type(prompts).__name__}; give a PromptBatch, or the pair (true, false)."
        )
    for batch in batches:
        if not isinstance(batch, PromptBatch):
            raise ResultError(
                f"prompts holds a {type(batch).__name__}; give a PromptBatch, or the pair "
                "(true, false)."
            )
    known = {
        result.provenance.get(side, {}).get("digest")
        for result in results.values()
        for side in SIDES
    } - {None}
    if batches and known and known.isdisjoint({batch.digest for batch in batches}):
        raise ResultError(
            "These prompts are not those of the results (other digests in their provenance). Give the "
            "prompts they were measured on, or leave prompts out."
        )
    return PromptSets(batches)


def batches_of(
    saved: Sequence[Mapping[str, Any]], results: Mapping[str, Result], folder: str | Path
) -> PromptSets:
    """Batches from what a folder holds of them.

    Raises:
        ResultError: they are damaged, or not those of the results.
    """
    try:
        return check_prompts(tuple(PromptBatch.from_dict(values) for values in saved), results)
    except IclMechError as error:
        raise ResultError(f"{Path(folder) / PROMPTS} is damaged: {error}") from error
