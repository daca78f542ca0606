"""`measure`: any measurements of one model on one set of prompts, as one `Analysis`."""

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from icl_mech.checking import shown
from icl_mech.engine import Overall, Path
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.running import Prompts, check_data
from icl_mech.models import LanguageModel, adapt, exclusive
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.made import Making, call_line


@exclusive
def measure(
    model: Any,
    data: Prompts,
    *measurements: AnyMeasurement[Any, Any],
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
    out: str | FilePath | None = None,
    wait: bool | int | float = True,
) -> Analysis:
    """Measurements side by side: `measure(model, prompts, Flow(), Extraction(), Mine(k=3))`.

    All refusals come before anything runs, and passes that several measurements need over the
    same prompts and interventions are made once.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        data: Prompts, or the pair (true, false) of `build_prompt_pairs`.
        *measurements: What to measure, see `icl_mech.measurements`.
        interventions: Made in every pass, before those of a measurement itself.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`: sets batch size and recomputation.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show progress bars; None: if someone may be watching.
        out: Folder that keeps every finished result at once: the same call goes on where a
            stopped one was. Results are recognised by model, prompts and variants.
        wait: While another thread runs this model: True waits, False refuses at once, a number
            waits at most so many seconds.

    Raises:
        RunError: no measurements, or a folder that holds results of something else.
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    making = Making(call_line(measure, locals()))
    if not measurements:
        raise RunError(
            "Nothing to measure; give measurements such as icl_mech.measurements.Flow()."
        )
    check_values(measurements)
    check_data(data)
    options = Options(interventions, batch_size, memory, path, progress)
    adapted = adapt(model)
    bench = Bench(adapted, options, prepared_folder(out))
    with Overall("measuring", progress):
        bench.measure(data, *measurements)
    return bench.analysis(title(adapted, data), data, making)


def check_values(measurements: Sequence[AnyMeasurement[Any, Any]]) -> None:
    """Refuse what is not a list of measurements.

    Raises:
        RunError: names the first that is none.
    """
    if not isinstance(measurements, list | tuple):
        raise RunError(
            f"measurements={shown(measurements)}; give a list of them, for one [Flow()]."
        )
    for given in measurements:
        if not isinstance(given, AnyMeasurement):
            name = f"{given.__name__}()" if isinstance(given, type) else "Flow()"
            raise RunError(
                f"{shown(given)} is not a measurement; give values such as {name}, not classes or "
                "names."
            )


def title(model: LanguageModel, data: Prompts) -> str:
    """Model, task and number of prompts."""
    prompts = data[0] if isinstance(data, tuple) else data
    task = prompts.source.get("task", {}).get("name", "prompts")
    return f"{model.info.name} on {task} ({len(prompts)} prompts)"
