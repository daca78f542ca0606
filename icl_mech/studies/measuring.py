"""`measure`: any measurements of one model on one set of prompts, as one `Analysis` that records how it was made."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

import torch

from icl_mech.checking import shown
from icl_mech.engine import Overall, Path
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.provenance import now
from icl_mech.measurements.running import Prompts, check_data
from icl_mech.models import LanguageModel, adapt, exclusive, known_models
from icl_mech.models.rehearsal import stage
from icl_mech.prompts import PromptBatch, build_prompts
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.results import INDEX, PROMPTS, Folder, list_results
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.forecast import plannable
from icl_mech.tasks import known_tasks


@plannable
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
    plan: bool = False,
) -> Analysis:
    """Make several measurements together: `measure(model, prompts, Flow(), Extraction(), Mine(k=3))`.

    All errors are raised before anything runs, and passes that several measurements need over the
    same prompts and interventions are made once.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        data: Prompts, or the pair (true, false) of `build_prompt_pairs`.
        *measurements: The measurements, see `icl_mech.measurements`.
        interventions: Applied in every pass, before those of the measurement.
        batch_size: Maximum number of prompts per batch.
        memory: Budget such as `"8GB"`: sets batch size and recomputation.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show progress bars; None: in a terminal or notebook.
        out: Folder that saves every result as soon as it is finished: the same call resumes a
            stopped one. Results are recognised by model, prompts and variants.
        wait: While another thread runs this model: True waits, False raises at once, a number
            waits at most that many seconds.
        plan: Run nothing; return the `Forecast` of rows, time, memory and disk instead.

    Raises:
        RunError: no measurements, or a folder that holds results of another run.
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    making = Making(call_line(measure, locals()))
    if not measurements:
        raise RunError(
            "No measurements were given; give at least one, such as icl_mech.measurements.Flow()."
        )
    check_values(measurements)
    check_data(data)
    options = Options(interventions, batch_size, memory, path, progress)
    adapted = adapt(model)
    bench = Bench(adapted, options, prepared_folder(out))
    with Overall("measuring", progress):
        bench.measure(data, *measurements)
    return analysis_of(bench, data, making)


def check_values(measurements: Sequence[AnyMeasurement[Any, Any]]) -> None:
    """Reject anything that is not a list of measurements.

    Raises:
        RunError: names the first value that is not a measurement.
    """
    if not isinstance(measurements, list | tuple):
        raise RunError(
            f"measurements={shown(measurements)} is not a list; give a list of measurements, such as [Flow()]."
        )
    for measurement in measurements:
        if not isinstance(measurement, AnyMeasurement):
            name = f"{measurement.__name__}()" if isinstance(measurement, type) else "Flow()"
            raise RunError(
                f"{shown(measurement)} is not a measurement; give instances such as {name}, not classes or "
                "names."
            )


# --- how an analysis was made: date, call or command, device, seconds ---

_COMMAND: ContextVar[str] = ContextVar("command", default="")

QUIET = ("out", "progress", "wait")
"""Options that do not affect the numbers."""


@contextmanager
def by_command(command: str) -> Iterator[None]:
    """Context in which every analysis records this command line."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_noted() -> str:
    """The command line recorded in this context, "" if there is none."""
    return _COMMAND.get()


@dataclass(frozen=True)
class Making:
    """A running call.

    Attributes:
        call: The Python line.
        date: When it began.
        start: Monotonic clock at that time, in seconds.
    """

    call: str
    date: str = field(default_factory=now)
    start: float = field(default_factory=time.monotonic)

    def done(self, model: LanguageModel, data: Prompts, *, resumed: int = 0) -> dict[str, Any]:
        """The record that an analysis keeps of the call.

        Args:
            model: The measured model.
            data: Its prompts.
            resumed: Number of results that an earlier, stopped call had finished.

        Returns:
            `date`, `call`, `setup` (the lines before it that make model and prompts, if
            known), `command` ("" without one), `device`, `seconds` and, if there are any,
            `resumed`.
        """
        made: dict[str, Any] = {
            "date": self.date,
            "call": self.call,
            "setup": [*model_line(model), *_prompts_line(model, data)],
            "command": _COMMAND.get(),
            "device": device_name(model.device),
            "seconds": round(time.monotonic() - self.start, 2),
        }
        return {**made, "resumed": resumed} if resumed else made


def analysis_of(
    bench: Bench, data: Prompts, making: Making, about: Mapping[str, Any] | None = None
) -> Analysis:
    """The results on the bench as one `Analysis`, also saved as files if there is a folder."""
    prompts = data if isinstance(data, tuple) else (data,)
    made = {**making.done(bench.model, data, resumed=bench.resumed), **(about or {})}
    analysis = Analysis(bench.results, _title(bench.model, data), tuple(bench.notes), prompts, made)
    if bench.out is not None and stage() is None:
        with Folder(bench.out, beside=True, files=[PROMPTS, INDEX]) as place:
            list_results(place, bench.results, analysis.about())
    return analysis


def _title(model: LanguageModel, data: Prompts) -> str:
    """Model, task and number of prompts."""
    prompts = data[0] if isinstance(data, tuple) else data
    task = prompts.source.get("task", {}).get("name", "prompts")
    return f"{model.info.name} on {task} ({len(prompts)} prompts)"


def call_line(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call as one line of Python, with the options that differ from their defaults.

    Args:
        function: The function that was called.
        given: Its arguments by name; arguments without a default are written as their names.
    """
    parts: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        value = given[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts += map(written, value)
        elif parameter.default is parameter.empty:
            parts.append("prompts" if name == "data" else name)
        elif name not in QUIET and not _equal(value, parameter.default):
            parts.append(f"{name}={written(value)}")
    return f"{function.__name__}({', '.join(parts)})"


def device_name(device: torch.device) -> str:
    """A device with the name of its hardware, if torch knows it."""
    if device.type == "cuda" and torch.cuda.is_available():
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _equal(value: object, default: object) -> bool:
    if isinstance(value, Sequence) and isinstance(default, Sequence) and not value:
        return not default
    return type(value) is type(default) and bool(value == default)


def written(value: object, named: Mapping[type, str] = MappingProxyType({})) -> str:
    """A value as a Python expression; of dataclasses such as measurements the options that differ from defaults.

    Args:
        value: The value.
        named: Names of variables that stand for values of a type.
    """
    if type(value) in named:
        return named[type(value)]
    if isinstance(value, str):
        return f'"{value}"' if value.isprintable() and not set('"\\') & set(value) else repr(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(written(part, named) for part in value)
        return f"[{inner}]" if isinstance(value, list) or len(value) != 1 else f"({inner},)"
    if not is_dataclass(value) or isinstance(value, type):
        return shown(value)
    options = []
    for item in fields(value):
        option = getattr(value, item.name)
        default = item.default_factory() if callable(item.default_factory) else item.default
        if item.init and not _equal(option, default):
            options.append(f"{item.name}={written(option, named)}")
    return f"{type(value).__name__}({', '.join(options)})"


def model_line(model: LanguageModel) -> list[str]:
    """The line that loads the model; empty unless `load_model` knows its name, so that the weights are the same."""
    info = model.info
    names = {known.hub_id: known.name for known in known_models()}
    names |= {name: name for name in names.values()}
    if info.name not in names or not info.library.endswith("TransformerBridge"):
        return []
    precise = "" if info.dtype == "float32" else f', dtype="{info.dtype}"'
    return [f'model = load_model("{names[info.name]}"{precise})']


def _prompts_line(model: LanguageModel, data: Prompts) -> list[str]:
    """The line that builds the prompts of a built-in task; empty for other prompts, whose origin is not recorded."""
    true, *false = data if isinstance(data, tuple) else (data,)
    source = true.source
    line = _task(source.get("task", {}))
    whole = all(batch.source.get("n") == len(batch) for batch in (true, *false))
    drawn = {"shots", "total"} & {*source} and source.get("queries") != "given"
    if not line or not whole or not drawn:
        return []
    known = inspect.signature(build_prompts).parameters.values()
    usual_way = "shared" if "shots" in source else "per_prompt"
    defaults = {parameter.name: parameter.default for parameter in known} | {
        "demonstrations": usual_way
    }
    # The number alone would be enough, but "max" says how it was chosen.
    source = {**source, **({"total": "max"} if "total_bound" in source else {})}
    for name in ("shots", "total", "n", "seed", "labels", "demonstrations", "balanced", "split"):
        always = name in ("shots", "total", "n", "seed")
        if name in source and (always or source[name] != defaults[name]):
            line += f", {name}={written(source[name])}"
    if true.score != "first":
        line += f', score="{true.score}"'
    if chat := source.get("chat"):
        line += ", chat=True"
        for name in ("system", "prefill", "template_kwargs", "today"):
            line += f", {name}={chat[name]!r}" if chat[name] else ""
    usual = model.tokenizer is not None and bool(TextTokenizer(model.tokenizer).start_tokens(None))
    line += "" if source.get("bos", usual) == usual else f", bos={source['bos']}"
    if not false:
        return [f"prompts = build_prompts({line}{_share(true)})"]
    false_labels = false[0].source.get("labels", "permuted")
    line += "" if false_labels == "permuted" else f', false_labels="{false_labels}"'
    line += _share(false[0])
    return [f"prompts = build_prompt_pairs({line})"]


def _share(prompts: PromptBatch) -> str:
    share = prompts.source.get("false_share")
    return "" if share is None else f", false_share={share}"


def _task(described: Mapping[str, Any]) -> str:
    """The first two arguments, if the task is a built-in one as `load_task` returns it."""
    known = next((task for task in known_tasks() if task.name == described.get("name")), None)
    origin = "icl_mech offline data"
    if known is not None and known.hub is not None:
        origin = "" if known.undivided else f"hub {known.hub.path}"
    if known is None or not origin or described.get("source", "").split(";")[0] != origin:
        return ""
    for number, form in enumerate(known.formats):
        same = form.template.pattern == described.get("template")
        same = same and form.template.separator == described.get("separator")
        same = same and form.template.narrative == described.get("narrative")
        if same and list(form.labels) == list(described.get("labels", [])):
            name = written(described["name"])
            return f"{name if not number else f'load_task({name}, prompt_format={number})'}, model"
    return ""
