r"""The options of several commands, a dataclass for each panel of the help.

What a word may be stands in the type, so that a wrong one is refused before anything is loaded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from icl_mech.corruption import LabelSetting
from icl_mech.models import known_models
from icl_mech.prompts.build import Demonstrations
from icl_mech.prompts.splitting import Unit
from icl_mech.tasks import known_tasks
from icl_mech.tasks.label_column import LabelsAs
from icl_mech.tasks.parts import Overlap

Dtype = Literal["float32", "bfloat16", "float16", "float64"]


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """Known models that begin so, for completion."""
    return [(m.name, m.parameters) for m in known_models() if m.name.startswith(incomplete)]


def task_names(incomplete: str) -> list[tuple[str, str]]:
    """Known tasks that begin so, for completion."""
    return [(t.name, t.note) for t in known_tasks() if t.name.startswith(incomplete)]


def _option(panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **more)


_MODEL, _DATA, _PROMPTS = "Model", "Task", "Prompts"
_TEXTS = "Any texts"
_OWN, _RUN, _OUT = "Your own data", "How to run", "What is written"


@dataclass(frozen=True)
class ModelOptions:
    """Which model, and where it is."""

    model: Annotated[
        str,
        _option(
            _MODEL,
            help="Known name, hub id, folder or .gguf file.",
            autocompletion=model_names,
        ),
    ] = "smollm2-135m"
    device: Annotated[
        str | None, _option(_MODEL, help="cpu, cuda, cuda:1, ...; default: a GPU if there is one.")
    ] = None
    dtype: Annotated[
        Dtype | None, _option(_MODEL, help="Number format of the weights; default float32.")
    ] = None


@dataclass(frozen=True)
class TaskOptions:
    """Which task, and what is said of one's own data."""

    task: Annotated[
        str,
        _option(
            _DATA,
            help="Known task, CSV/TSV/JSONL file or folder, or owner/name on the hub.",
            autocompletion=task_names,
        ),
    ] = "reviews"
    prompt_format: Annotated[
        int | None, _option(_DATA, min=0, help="For tasks with several formats: its number.")
    ] = None
    template: Annotated[
        str | None,
        _option(
            _OWN,
            help=r"'Review: {text}\nSentiment:{label}', or the name of a task.",
            autocompletion=task_names,
        ),
    ] = None
    label_words: Annotated[
        str | None, _option(_OWN, help="In class order, separated by commas.")
    ] = None
    label_map: Annotated[
        str | None,
        _option(_OWN, help="Label words of the column's values: pos=Positive,neg=Negative"),
    ] = None
    labels_as: Annotated[
        LabelsAs | None, _option(_OWN, help="What the column holds, if label words are numbers.")
    ] = None
    text_column: Annotated[str, _option(_OWN, help="Column of the text.")] = "text"
    text2_column: Annotated[
        str | None, _option(_OWN, help="Column of the second text, for templates with {text2}.")
    ] = None
    label_column: Annotated[str, _option(_OWN, help="Column of the label.")] = "label"
    test_path: Annotated[
        str | None, _option(_OWN, help="A second file, which holds the test examples.")
    ] = None
    test_fraction: Annotated[
        float, _option(_OWN, help="Share of each class kept for testing, of data in one part.")
    ] = 0.5
    train_split: Annotated[str | None, _option(_OWN, help="Of data of the hub.")] = None
    test_split: Annotated[str | None, _option(_OWN, help="Of data of the hub.")] = None
    config: Annotated[str | None, _option(_OWN, help="Of data of the hub.")] = None
    overlap: Annotated[
        Overlap, _option(_OWN, help="What to do with texts that training and test share.")
    ] = "avoid"


@dataclass(frozen=True)
class TextOptions:
    """Any texts in the place of a task."""

    texts: Annotated[
        Path | None,
        _option(
            _TEXTS,
            help="Texts instead of a task: .txt (texts divided by lines of ---), .json or .jsonl.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    spans: Annotated[Unit, _option(_TEXTS, help="What each text is cut into.")] = "sentences"


Number = Annotated[int, _option(_PROMPTS, "--n", "-n", min=1, help="Prompts.")]


@dataclass(frozen=True)
class PromptOptions:
    """How prompts are built."""

    shots: Annotated[int, _option(_PROMPTS, min=0, help="Demonstrations per class.")] = 1
    n: Number = 50
    seed: Annotated[
        int, _option(_PROMPTS, min=0, help="Seed of texts, demonstrations and random controls.")
    ] = 0
    demonstrations: Annotated[
        Demonstrations | None,
        _option(
            _PROMPTS,
            help="The same in all prompts, or drawn for each; default: per_prompt where nothing but "
            "flow is measured or true and false demonstrations are compared, else shared.",
        ),
    ] = None
    labels: Annotated[
        LabelSetting | None,
        _option(
            _PROMPTS,
            help="Labels of the demonstrations; where true and false ones are compared, those of "
            "the false ones (default permuted).",
        ),
    ] = None
    false_share: Annotated[
        float | None,
        _option(
            _PROMPTS,
            min=0.0,
            max=1.0,
            help="With which probability each demonstration displays the false label of --labels, "
            "instead of its true one; default: always.",
        ),
    ] = None
    balanced: Annotated[
        bool, _option(_PROMPTS, help="Queries with equally many answers of each class.")
    ] = True


@dataclass(frozen=True)
class RunOptions:
    """How it is computed; none of these changes what is measured but `interventions`."""

    batch_size: Annotated[
        int | None, _option(_RUN, min=1, help="Prompts per batch at most; default: what fits.")
    ] = None
    memory: Annotated[
        str | None, _option(_RUN, help="Budget such as 8GB, from which batches follow.")
    ] = None
    interventions: Annotated[
        Path | None,
        _option(
            _RUN,
            help="JSON file: a list of interventions as Intervention.to_dict() gives them.",
            exists=True,
            dir_okay=False,
        ),
    ] = None


@dataclass(frozen=True)
class OutputOptions:
    """Where results go, and what is said."""

    out: Annotated[
        Path | None,
        _option(_OUT, help="New folder for results and page (default: runs/NAME, -2, -3, ...)."),
    ] = None
    overwrite: Annotated[
        bool,
        _option(
            _OUT,
            "--overwrite",
            help="Replace what was saved in the folder before; files of your own stay.",
        ),
    ] = False
    resume: Annotated[
        bool,
        _option(
            _OUT,
            "--resume",
            help="Keep every finished result in --out at once, and go on with those that are "
            "there: for long runs that may be interrupted.",
        ),
    ] = False
    json: Annotated[bool, _option(_OUT, "--json", help="Print results as JSON.")] = False
    quiet: Annotated[
        bool,
        _option(_OUT, "--quiet", "-q", help="No progress; print the folder and nothing else."),
    ] = False


AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
OverwritePage = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace any file; without it only a page that nobody edited is replaced.",
    ),
]
