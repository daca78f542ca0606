"""Sentences of studies: blocks of `icl_mech/words/STUDY.jinja`, rendered with the facts of one run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from icl_mech.results import Result
from icl_mech.results.words import Words as File
from icl_mech.studies.claim import Run, Words
from icl_mech.studies.judge import Verdict
from icl_mech.studies.study import Headline

Facts = Mapping[str, Any]


def sentences(
    file: str, block: str, facts: Callable[[Run], Facts | None]
) -> Callable[[Run], Words | None]:
    """The sentences of a claim about a run: `block` is the finding, `block_brief` the same in one line if it exists.

    Args:
        file: The text file, without `.jinja`.
        block: Its block for this claim.
        facts: The values that the block names; None if nothing in the run bears on the claim.
    """

    def words(run: Run) -> Words | None:
        known, text = facts(run), File(file)
        if known is None:
            return None
        return Words(text.say(block, **known), text.optional(f"{block}_brief", **known))

    return words


def headline(
    file: str, facts: Callable[[Mapping[str, Result], Sequence[Verdict]], Facts]
) -> Headline:
    """Question and answer for a study's page: the blocks `headline_question` and `headline_answer`.

    Args:
        file: The text file, without `.jinja`.
        facts: The values that the answer names, from results and verdicts; `model` and `task` are added.
    """

    def heading(
        results: Mapping[str, Result], verdicts: Sequence[Verdict], model: str, task: str
    ) -> tuple[str, str]:
        known = {"model": model, "task": task, **facts(results, verdicts)}
        question, answer = (
            File(file).say(f"headline_{part}", **known) for part in ("question", "answer")
        )
        return question, answer

    return heading
