"""What `analyze` and `measure` share: from options to a folder with results and a page.

Everything that can be refused is refused in this order: words, folder, task, prompts; only then the
model is loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

import icl_mech as icl
from icl_mech.cli.console import say, say_json
from icl_mech.cli.described import described
from icl_mech.cli.inputs import (
    Prompts,
    built_prompts,
    check_model,
    loaded_model,
    loaded_task,
    loaded_tokenizer,
    run_options,
)
from icl_mech.cli.interrupted import interruptible
from icl_mech.cli.options import (
    ModelOptions,
    OutputOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
)
from icl_mech.cli.texts import built_texts
from icl_mech.results import INDEX, PAGE, Folder, claimed, paths_of
from icl_mech.studies.made import by_command

_NOTHING = (
    "Nothing was written; the same command begins anew. With --resume --out FOLDER finished results "
    "are kept."
)

Work = Callable[[Any, Prompts, dict[str, Any]], icl.Analysis]
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
        command: How it was called, for the page.
        texts: Any texts in the place of task and prompts.
    """

    model: ModelOptions
    task: TaskOptions
    prompts: PromptOptions
    run: RunOptions
    output: OutputOptions
    command: str
    texts: TextOptions = field(default_factory=TextOptions)

    def do(self, work: Work, *, pair: bool, name: str, parts: Sequence[str]) -> None:
        """Measure, write, and print what came out.

        Args:
            work: What is measured.
            pair: It takes the pair of prompts with true and with false demonstrations.
            name: Of the folder in `runs/`, if none is given.
            parts: Names of results that may be written.

        Raises:
            IclMechError: anything that is refused.
        """
        check_model(self.model)
        options = run_options(self.run, quiet=self.output.quiet)
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
            # Entering it proves, before minutes of work, that it can be written.
            analysis = self._analysis(work, options, pair)
            analysis.save_into(place, page=True)
        self._tell(analysis, place.path)

    def _resumed(self, work: Work, options: dict[str, Any], pair: bool) -> None:
        if self.output.out is None or self.output.overwrite:
            raise typer.BadParameter(
                "it needs --out, the folder to go on in, and no --overwrite.",
                param_hint="--resume",
            )
        with Folder(self.output.out, beside=True, files=[INDEX, PAGE]):
            pass  # it can be written
        kept = (
            f"Finished results are kept in {self.output.out}; the same command goes on with them."
        )
        with interruptible(kept):
            analysis = self._analysis(work, {**options, "out": self.output.out}, pair)
            analysis.to_html(self.output.out / PAGE)
        self._tell(analysis, self.output.out)

    def _analysis(self, work: Work, options: dict[str, Any], pair: bool) -> icl.Analysis:
        quiet = self.output.quiet
        if self.texts.texts is not None:
            built_texts(loaded_tokenizer(self.model, quiet=quiet), self.texts)
            model = loaded_model(self.model, quiet=quiet)
            with by_command(self.command):
                return work(model, built_texts(model, self.texts), options)
        task = loaded_task(self.task)
        # The tokenizer is there at once; what the prompts are refused for need not wait.
        built_prompts(task, loaded_tokenizer(self.model, quiet=quiet), self.prompts, pair=pair)
        model = loaded_model(self.model, quiet=quiet)
        prompts = built_prompts(task, model, self.prompts, pair=pair)
        with by_command(self.command):
            return work(model, prompts, options)

    def _tell(self, analysis: icl.Analysis, folder: Path) -> None:
        page = folder / PAGE
        if self.output.json:
            about = {"folder": str(folder), "page": str(page), "command": self.command}
            say_json({**described(analysis), **about})
        elif self.output.quiet:
            say(str(folder))
        else:
            say(analysis.summary())
            say(f"Results: {folder}")
            say(f"Page: {page}")
