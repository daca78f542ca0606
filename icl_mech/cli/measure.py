"""`icl-mech measure NAME`: a single measurement, its variants as options.

One command for each measurement of `icl_mech.measurements`, made from its dataclass.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

import icl_mech as icl
from icl_mech import measurements
from icl_mech.cli.command_line import command_line
from icl_mech.cli.grouping import Command, as_command, grouped, options_of
from icl_mech.cli.inputs import Prompts
from icl_mech.cli.job import Job
from icl_mech.cli.options import (
    ModelOptions,
    OutputOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
)
from icl_mech.cli.variants import Variant, variants_of
from icl_mech.cli.wording import in_options
from icl_mech.measurements import AnyMeasurement, PairMeasurement

GROUPS = (ModelOptions, TaskOptions, TextOptions, PromptOptions, RunOptions, OutputOptions)
"""Options of all measurements."""

Kind = type[AnyMeasurement[Any, Any]]


def measurable() -> dict[str, tuple[Kind, list[Variant]]]:
    """Measurements with a command, by name, with their variants."""
    taken = {name for group in GROUPS for name in options_of(group)}
    found: dict[str, tuple[Kind, list[Variant]]] = {}
    for name in measurements.__all__:
        kind = getattr(measurements, name)
        if not inspect.isclass(kind) or not issubclass(kind, AnyMeasurement):
            continue
        variants = None if inspect.isabstract(kind) else variants_of(kind, taken)
        if variants is not None:
            found[kind.name.replace("_", "-")] = (kind, variants)
    return dict(sorted(found.items()))


def measure_commands(examples: Callable[..., str]) -> typer.Typer:
    """The group of commands below `icl-mech measure`."""
    group = typer.Typer(
        help="Measure one thing; write result and page into a folder.",
        no_args_is_help=True,
        rich_markup_mode="rich",
    )
    for name, (kind, variants) in measurable().items():
        words = [
            f"icl-mech measure {name} --task headlines",
            *(f"{own.option} {own.example()}" for own in variants if own.needed),
        ]
        command = measuring(name, kind, variants)
        group.command(name, epilog=examples(" ".join(words)))(command)
    return group


def measuring(name: str, kind: Kind, variants: list[Variant]) -> Command:
    """The command of one measurement."""

    @grouped
    def shared(
        context: Any,
        model: ModelOptions,
        task: TaskOptions,
        texts: TextOptions,
        prompts: PromptOptions,
        run: RunOptions,
        output: OutputOptions,
        own: Annotated[Any, "values of the variants"],
    ) -> None:
        words = {variant.field: variant.option for variant in variants}
        with in_options(words):
            measurement = kind(**own)

        def work(loaded: Any, built: Prompts, options: dict[str, Any]) -> icl.Analysis:
            with in_options(words):
                return icl.measure(loaded, built, measurement, **options)

        job = Job(model, task, prompts, run, output, command_line(context), texts)
        pair = issubclass(kind, PairMeasurement) or getattr(kind, "side", None) is not None
        job.do(work, pair=pair, name=name, parts=[kind.name])

    def command(**given: Any) -> None:
        own = {
            variant.field: variant.value(text)
            for variant in variants
            if (text := given.pop(variant.parameter.name)) != variant.parameter.default
        }
        if any(item.name == "seed" for item in fields(kind)):
            own["seed"] = given["seed"]
        shared(**given, own=own)

    parameters = {variant.parameter.name: variant.parameter for variant in variants}
    parameters |= inspect.signature(shared).parameters
    del parameters["own"]
    return as_command(command, name, summary_of(kind), parameters)


def summary_of(kind: Kind) -> str:
    """The first sentence of its docstring."""
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("`", "")
