"""What `analyze` and `measure` share: from options to a folder with results and an HTML report.

Errors are raised in this order: options, folder, task, prompts; only then is the model loaded.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os.path import exists
from pathlib import Path
from typing import Any

import typer

import icl_mech as icl
from icl_mech.cli.console import interruptible, say, say_forecast, say_json
from icl_mech.cli.inputs import (
    Prompts,
    built_prompts,
    built_texts,
    check_model,
    loaded_model,
    loaded_task,
    loaded_tokenizer,
    run_options,
)
from icl_mech.cli.options import (
    ModelOptions,
    OutputOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
)

_NOTHING = (
    "Nothing was written; run the same command to start again. With --resume --out FOLDER, "
    "finished results are kept."
)

Work = Callable[[Any, Prompts, dict[str, Any]], "icl.Analysis"]
"""Measures a model on prompts; the options of `icl_mech.measure` come last."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        model: Which model.
        task: Which task.
        prompts: How prompts are built.
        run: How it is computed.
        output: Where results go.
        command: The command line, for the report.
        texts: Texts in place of task and prompts.
    """

    model: ModelOptions
    task: TaskOptions
    prompts: PromptOptions
    run: RunOptions
    output: OutputOptions
    command: str
    texts: TextOptions = field(default_factory=TextOptions)

    def do(self, work: Work, *, pair: bool, name: str, parts: Sequence[str]) -> None:
        """Measure, write, and print the results.

        Args:
            work: The measurement.
            pair: True if it takes the pair of prompts with true and with false demonstrations.
            name: Name of the folder in `runs/`, if none is given.
            parts: Names of results that may be written.

        Raises:
            IclMechError: an input is rejected.
        """
        from icl_mech.results import claimed, paths_of

        check_model(self.model)
        options = run_options(self.run, quiet=self.output.quiet)
        if self.output.dry_run:
            from icl_mech.studies.forecast import forecast

            kept = self.output.out if self.output.resume else None
            cost = forecast(self._analysis, work, {**options, "out": kept}, pair)
            say_forecast(cost, json=self.output.json)
            return
        if self.output.resume:
            self._resumed(work, options, pair)
            return
        files = paths_of(parts, page=True)
        with (
            interruptible(_NOTHING),
            claimed(
                self.output.out, f"runs/{name}", overwrite=self.output.overwrite, files=files
            ) as place,
        ):
            # Entering it shows, before minutes of work, that it is writable.
            analysis = self._analysis(work, options, pair)
            analysis.save_into(place, page=True)
        self._tell(analysis, place.path)

    def _resumed(self, work: Work, options: dict[str, Any], pair: bool) -> None:
        from icl_mech.results import INDEX, PAGE, Folder

        if self.output.out is None or self.output.overwrite:
            raise typer.BadParameter(
                "it needs --out, the folder to continue in, and excludes --overwrite.",
                param_hint="--resume",
            )
        with Folder(self.output.out, beside=True, files=[INDEX, PAGE]):
            pass  # it can be written
        kept = f"Finished results are kept in {self.output.out}; run the same command to continue."
        with interruptible(kept):
            analysis = self._analysis(work, {**options, "out": self.output.out}, pair)
            analysis.to_html(self.output.out / PAGE)
        self._tell(analysis, self.output.out)

    def _analysis(self, work: Work, options: dict[str, Any], pair: bool) -> "icl.Analysis":
        from icl_mech.studies.measuring import by_command

        quiet = self.output.quiet
        if self.texts.texts is not None:
            built_texts(loaded_tokenizer(self.model, quiet=quiet), self.texts)
            model = loaded_model(self.model, quiet=quiet)
            with by_command(self.command):
                return work(model, built_texts(model, self.texts), options)
        task = loaded_task(self.task)
        # The tokenizer loads at once, so errors in prompts need not wait for the model. Only the model
        # knows how many demonstrations fit.
        fitted = self.prompts.total == "max" and self.prompts.shots is None
        tried = replace(self.prompts, total="1") if fitted else self.prompts
        built_prompts(task, loaded_tokenizer(self.model, quiet=quiet), tried, pair=pair)
        model = loaded_model(self.model, quiet=quiet)
        prompts = built_prompts(task, model, self.prompts, pair=pair)
        with by_command(self.command):
            return work(model, prompts, options)

    def _tell(self, analysis: "icl.Analysis", folder: Path) -> None:
        from icl_mech.results import PAGE
        from icl_mech.studies.analysis import described, in_lines

        page = folder / PAGE
        if self.output.json:
            about = {"folder": str(folder), "page": str(page), "command": self.command}
            say_json({**described(analysis), **about})
        elif self.output.quiet:
            say(str(folder))
        else:
            say(in_lines(analysis))
            say(f"Results: {folder}")
            say(f"Page: {page}")


# --- the command, for the report ---

ABOUT_OUTPUT = frozenset({"dry_run", "out", "overwrite", "resume", "again", "json", "quiet"})
"""Options that change where results go, not what they are."""


def command_line(context: Any) -> str:
    """The typed command, ready to copy: options that are not at their defaults, quoted."""
    names: list[str] = []
    above: Any = context
    while above is not None and above.parent is not None:
        names.insert(0, str(above.info_name))
        above = above.parent
    words = ["icl-mech", *names]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in ABOUT_OUTPUT or value is None or value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words += map(without_place, value if isinstance(value, list | tuple) else [value])
            continue
        option = max(parameter.opts, key=len)
        if isinstance(value, bool):
            words.append(option if value else max(parameter.secondary_opts, key=len))
        else:
            several = value if isinstance(value, list | tuple) else [value]
            words += [word for entry in several for word in (option, without_place(entry))]
    return shlex.join(words)


def without_place(value: object) -> str:
    """A value of the command; a path is shortened so as not to reveal where on this machine it lies.

    Reports that are shared print the command: a file or folder is named relative to the working directory,
    or by its last part alone.
    """
    text = str(value)
    path = Path(text)
    if not (path.is_absolute() and exists(path)):
        return text
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name
