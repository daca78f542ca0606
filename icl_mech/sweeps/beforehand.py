"""What runs would reject, found before anything is computed: their prompts are built, and nothing is run."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements.base import Options
from icl_mech.measurements.running import Item as Measured
from icl_mech.measurements.running import Prompts
from icl_mech.models import adapt
from icl_mech.models.rehearsal import Stage, rehearsing
from icl_mech.studies import Analysis
from icl_mech.studies.study import OF_MEASUREMENTS
from icl_mech.sweeps.running import sweep
from icl_mech.sweeps.work import Job, loaded, prompts_of, run_item

PROMPTS = 256
"""Runs with more prompts are checked on this many others, whose lengths say nothing about theirs."""


def jobs_of(models: object, given: Mapping[str, Any]) -> list[Job]:
    """The runs that `sweep` would execute with these arguments.

    Raises:
        IclMechError: the errors that `sweep` raises before anything runs.
    """
    stage = Stage(planning=True)
    with rehearsing(stage):
        sweep(models, **given)
    return stage.items


def refusal(job: Job, least: int = PROMPTS) -> str:
    """Why a run would be rejected, as far as its prompts show it; empty if it would not be, or if that is not known.

    Args:
        job: The run.
        least: Minimum number of prompts that the run needs.
    """
    part = _shorter(job, max(least, PROMPTS))
    try:
        model = loaded(job.model, job.device, job.dtype)
        data = prompts_of(part, model)
    except PromptError as error:
        return str(error) if part.item.n == job.item.n else ""
    except IclMechError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - the run meets it, too, and keeps it
        return ""
    return _checked(part, model, data)


def _checked(job: Job, model: object, data: Prompts) -> str:
    try:
        if job.item.study == OF_MEASUREMENTS:
            texts: dict[tuple[int, ...], Any] = {}
            for measurement in job.measurements:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the run gives them
                    Measured.checked(measurement, adapt(model), data, Options(), texts)
    except IclMechError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - the run meets it, too, and keeps it
        return ""
    return ""


def rehearsed(job: Job, least: int) -> Analysis | str:
    """The results of a run as far as they are known before it, filled with noise; or why it would be rejected.

    Errors after the first pass may depend on the noise, so they are left to the run.
    """
    stage = Stage()
    with rehearsing(stage):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run_item(_shorter(job, least), None)
        except IclMechError as error:
            ran = any(ledger.calls for ledger in stage.ledgers.values())
            return "" if ran else str(error)
        except Exception:  # noqa: BLE001 - the run meets it, too, and keeps it
            return ""


def _shorter(job: Job, n: int) -> Job:
    return replace(job, item=replace(job.item, n=min(job.item.n, n)))
