"""`icl-mech measure NAME`: a single measurement, with its variants as options.

One command for each measurement of `icl_mech.measurements`, made from its dataclass.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

import icl_mech as icl
from icl_mech import measurements
from icl_mech.cli.console import in_options
from icl_mech.cli.inputs import Prompts, loaded_lens, own_measurements
from icl_mech.cli.job import Job, command_line
from icl_mech.cli.options import (
    Command,
    ModelOptions,
    OutputOptions,
    OwnOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
    as_command,
    grouped,
    options_of,
)
from icl_mech.cli.variants import Variant, variants_of
from icl_mech.measurements import AnyMeasurement, PairMeasurement
from icl_mech.names import KEYS, is_kind

GROUPS = (
    OwnOptions,
    ModelOptions,
    TaskOptions,
    TextOptions,
    PromptOptions,
    RunOptions,
    OutputOptions,
)
"""Options of all measurements."""

Kind = type[AnyMeasurement[Any, Any]]


def measurable() -> dict[str, tuple[Kind, list[Variant]]]:
    """Measurements with a command, by name, with their variants."""
    taken = {name for group in GROUPS for name in options_of(group)}
    commands: dict[str, tuple[Kind, list[Variant]]] = {}
    for name in measurements.__all__:
        kind = getattr(measurements, name)
        if not is_kind(kind, AnyMeasurement):
            continue
        variants = None if inspect.isabstract(kind) else variants_of(kind, taken)
        if variants is not None:
            commands[kind.name.replace("_", "-")] = (kind, variants)
    return dict(sorted(commands.items()))


def measure_commands(examples: Callable[..., str]) -> typer.Typer:
    """The group of commands below `icl-mech measure`."""
    group = typer.Typer(rich_markup_mode="rich")
    for name, (kind, variants) in measurable().items():
        words = [
            f"icl-mech measure {name} --task headlines",
            *(f"{variant.option} {variant.example()}" for variant in variants if variant.needed),
        ]
        command = measuring(name, kind, variants)
        group.command(name, epilog=examples(" ".join(words)))(command)
        for old in (old for old, now in KEYS.items() if now == kind.name):
            group.command(old.replace("_", "-"), hidden=True)(command)
    example = "icl-mech measure own --measurement my_module:MyMeasurement --task headlines"
    group.command("own", epilog=examples(example))(own)
    return group


@grouped
def own(
    context: Any,
    besides: OwnOptions,
    model: ModelOptions,
    task: TaskOptions,
    texts: TextOptions,
    prompts: PromptOptions,
    run: RunOptions,
    output: OutputOptions,
) -> None:
    """Run your own measurements, each given with --measurement."""
    chosen = own_measurements(besides)
    if not chosen:
        raise typer.BadParameter(
            "give at least one, such as my_module:MyMeasurement.", param_hint="--measurement"
        )
    job = Job(model, task, prompts, run, output, command_line(context), texts)
    _measured(job, lambda loaded: chosen, chosen, {}, "own")


def measuring(name: str, kind: Kind, variants: list[Variant]) -> Command:
    """The command of one measurement."""

    @grouped
    def shared(
        context: Any,
        besides: OwnOptions,
        model: ModelOptions,
        task: TaskOptions,
        texts: TextOptions,
        prompts: PromptOptions,
        run: RunOptions,
        output: OutputOptions,
        own: Annotated[Any, "values of the variants"],
    ) -> None:
        words = {variant.field: variant.option for variant in variants}
        more = own_measurements(besides)
        published = {field: place for field, place in own.items() if isinstance(place, Path)}
        with in_options(words):
            ready = [] if published else [kind(**own)]

        def chosen(loaded: object) -> list[AnyMeasurement[Any, Any]]:
            lenses = {field: loaded_lens(place, loaded) for field, place in published.items()}
            return [*(ready or [kind(**own | lenses)]), *more]

        job = Job(model, task, prompts, run, output, command_line(context), texts)
        _measured(job, chosen, [kind, *more], words, name)

    def command(**given: Any) -> None:
        values = {
            variant.field: variant.value(text)
            for variant in variants
            if (text := given.pop(variant.parameter.name)) != variant.parameter.default
        }
        if any(item.name == "seed" for item in fields(kind)):
            values["seed"] = given["seed"]
        shared(**given, own=values)

    parameters = {variant.parameter.name: variant.parameter for variant in variants}
    parameters |= inspect.signature(shared).parameters
    del parameters["own"]
    return as_command(command, name, summary_of(kind), parameters)


def _measured(
    job: Job,
    chosen: Callable[[object], list[AnyMeasurement[Any, Any]]],
    kinds: Sequence[AnyMeasurement[Any, Any] | Kind],
    words: dict[str, str],
    name: str,
) -> None:
    """Run the measurements for the loaded model; errors name the options that variants came from."""

    def work(loaded: Any, built: Prompts, options: dict[str, Any]) -> icl.Analysis:
        with in_options(words):
            return icl.measure(loaded, built, *chosen(loaded), **options)

    sides = (
        isinstance(kind, PairMeasurement)
        or is_kind(kind, PairMeasurement)
        or getattr(kind, "side", None)
        for kind in kinds
    )
    job.do(work, pair=any(sides), name=name, parts=[kind.name for kind in kinds])


def summary_of(kind: Kind) -> str:
    """The first paragraph of a measurement's docstring."""
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("`", "")
