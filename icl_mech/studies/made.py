"""How an analysis was made: when, by which call or command, on which device, in how many seconds."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch

from icl_mech.checking import shown
from icl_mech.measurements.provenance import now
from icl_mech.measurements.running import Prompts
from icl_mech.models import LanguageModel, known_models
from icl_mech.prompts import PromptBatch, build_prompts
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import known_tasks

_COMMAND: ContextVar[str] = ContextVar("command", default="")

QUIET = ("out", "progress", "wait")
"""Options that change nothing in the numbers."""


@contextmanager
def by_command(command: str) -> Iterator[None]:
    """Context in which every analysis notes this command line as what made it."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_noted() -> str:
    """The command line that is noted in this context, "" if there is none."""
    return _COMMAND.get()


@dataclass(frozen=True)
class Making:
    """A call under way.

    Attributes:
        call: The Python line.
        date: When it began.
        start: The clock then, in seconds.
    """

    call: str
    date: str = field(default_factory=now)
    start: float = field(default_factory=time.monotonic)

    def done(self, model: LanguageModel, data: Prompts, *, resumed: int = 0) -> dict[str, Any]:
        """What an analysis keeps of it.

        Args:
            model: What was measured.
            data: Its prompts.
            resumed: Number of results that an earlier, stopped call had finished.

        Returns:
            `date`, `call`, `setup` (the lines before it that make model and prompts, where they
            are known), `command` ("" without one), `device`, `seconds` and, if there are any,
            `resumed`.
        """
        made: dict[str, Any] = {
            "date": self.date,
            "call": self.call,
            "setup": [*_model_line(model), *_prompts_line(model, data)],
            "command": _COMMAND.get(),
            "device": device_name(model.device),
            "seconds": round(time.monotonic() - self.start, 2),
        }
        return {**made, "resumed": resumed} if resumed else made


def call_line(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call as one line of Python, with the options that are not the default ones.

    Args:
        function: What was called.
        given: Its arguments by name; those without a default are written as their names.
    """
    parts: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        value = given[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts += map(_written, value)
        elif parameter.default is parameter.empty:
            parts.append("prompts" if name == "data" else name)
        elif name not in QUIET and not _equal(value, parameter.default):
            parts.append(f"{name}={_written(value)}")
    return f"{function.__name__}({', '.join(parts)})"


def device_name(device: torch.device) -> str:
    """A device with the name of its hardware where torch knows it."""
    if device.type == "cuda" and torch.cuda.is_available():
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _equal(value: Any, default: Any) -> bool:
    if isinstance(value, Sequence) and isinstance(default, Sequence) and not value:
        return not default
    return type(value) is type(default) and bool(value == default)


def _written(value: Any) -> str:
    """A value as Python writes it; of measurements and the like what is not the default."""
    if isinstance(value, str):
        return f'"{value}"' if value.isprintable() and not set('"\\') & set(value) else repr(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_written, value))
        return f"[{inner}]" if isinstance(value, list) or len(value) != 1 else f"({inner},)"
    if not is_dataclass(value) or isinstance(value, type):
        return shown(value)
    options = []
    for item in fields(value):
        own = getattr(value, item.name)
        default = item.default_factory() if callable(item.default_factory) else item.default
        if item.init and not _equal(own, default):
            options.append(f"{item.name}={_written(own)}")
    return f"{type(value).__name__}({', '.join(options)})"


def _model_line(model: LanguageModel) -> list[str]:
    """Only names that `load_model` knows give the same weights everywhere."""
    info = model.info
    names = {known.hub_id: known.name for known in known_models()}
    names |= {name: name for name in names.values()}
    if info.name not in names or not info.library.endswith("TransformerBridge"):
        return []
    precise = "" if info.dtype == "float32" else f', dtype="{info.dtype}"'
    return [f'model = load_model("{names[info.name]}"{precise})']


def _prompts_line(model: LanguageModel, data: Prompts) -> list[str]:
    """The line that builds the prompts of a built-in task; others cannot be known from here."""
    true, *false = data if isinstance(data, tuple) else (data,)
    source = true.source
    line = _task(source.get("task", {}))
    whole = all(batch.source.get("n") == len(batch) for batch in (true, *false))
    if not line or not whole or "shots" not in source:
        return []
    defaults = inspect.signature(build_prompts).parameters
    for name in ("shots", "n", "seed", "labels", "demonstrations", "balanced", "split"):
        always = name in ("shots", "n", "seed")
        if name in source and (always or source[name] != defaults[name].default):
            line += f", {name}={_written(source[name])}"
    usual = model.tokenizer is not None and bool(PieceTokenizer(model.tokenizer).start_tokens(None))
    line += "" if source.get("bos", usual) == usual else f", bos={source['bos']}"
    if not false:
        return [f"prompts = build_prompts({line}{_share(true)})"]
    kind = false[0].source.get("labels", "permuted")
    line += "" if kind == "permuted" else f', false_labels="{kind}"'
    line += _share(false[0])
    return [f"prompts = build_prompt_pairs({line})"]


def _share(prompts: PromptBatch) -> str:
    share = prompts.source.get("false_share")
    return "" if share is None else f", false_share={share}"


def _task(described: Mapping[str, Any]) -> str:
    """The first two arguments, if the task is a built-in one as `load_task` gives it."""
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
            name = _written(described["name"])
            return f"{name if not number else f'load_task({name}, prompt_format={number})'}, model"
    return ""
