"""Options shared by commands, one dataclass for each panel of the help, and commands built from them.

Types list the allowed values, so that a wrong one is rejected before anything is loaded.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from icl_mech.corruption import LabelSetting
from icl_mech.model_sources import known_models
from icl_mech.tasks import known_tasks
from icl_mech.tasks.parts import Overlap
from icl_mech.tasks.rows import LabelsAs

Command = Callable[..., None]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def grouped(function: Command) -> Command:
    """The function as typer reads it, with every dataclass parameter expanded into its fields.

    `def show(source: Source, json: bool = False)` becomes a command with the fields of `Source` as
    options, in their order, and `--json`. A parameter `context` receives typer's context of the call.
    """
    groups: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}
    # From a class: for a function with default None, Python 3.10 would hide annotations inside an Optional.
    bare = type("Hints", (), {"__annotations__": function.__annotations__})
    hints = get_type_hints(bare, vars(sys.modules[function.__module__]), include_extras=True)
    if "context" in hints:
        # typer knows it by this type, but hands over an object of another class with its methods.
        hints["context"] = typer.Context
    for name, parameter in inspect.signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            parameters[name] = parameter.replace(annotation=hints[name], kind=_KEYWORD)
            continue
        groups[name] = hints[name]
        parameters |= options_of(hints[name])

    def command(**given: Any) -> None:
        chosen = {
            name: kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            for name, kind in groups.items()
        }
        function(**chosen, **given)

    return as_command(command, function.__name__, function.__doc__ or "", parameters)


def options_of(group: Any) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass as keyword parameters."""
    hints = get_type_hints(group, include_extras=True)
    return {
        item.name: inspect.Parameter(
            item.name,
            _KEYWORD,
            default=inspect.Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(group)
    }


def as_command(
    function: Command, name: str, doc: str, parameters: Mapping[str, inspect.Parameter]
) -> Command:
    """The function with name, help and parameters set at run time."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = inspect.cleandoc(doc)
    function.__annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}
    function.__dict__["__signature__"] = inspect.Signature([*parameters.values()])
    return function


Dtype = Literal["float32", "bfloat16", "float16", "float64"]
Quantization = Literal["8bit", "4bit"]
Demonstrations = Literal["shared", "per_prompt"]
WordScore = Literal["first", "sum", "mean"]
Unit = Literal["sentences", "lines", "paragraphs", "steps", "turns", "items"]
"""Values as in `icl_mech.prompts`, which is not imported just to print help."""


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """Known models that begin with this text, for completion."""
    return [(m.name, m.parameters) for m in known_models() if m.name.startswith(incomplete)]


def study_names(incomplete: str) -> list[str]:
    """Known studies that begin with this text, for completion."""
    from icl_mech.studies.study import known_studies

    return [name for name in known_studies() if name.startswith(incomplete)]


def task_names(incomplete: str) -> list[tuple[str, str]]:
    """Known tasks that begin with this text, for completion."""
    return [(t.name, t.note) for t in known_tasks() if t.name.startswith(incomplete)]


def _option(panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **more)


_MODEL, _DATA, _PROMPTS = "Model", "Task", "Prompts"
_TEXTS, _STUDY = "Arbitrary texts", "Study"
_OWN, _RUN, _OUT = "Your own data", "How to run", "Output"


@dataclass(frozen=True)
class _WhichModel:
    model: Annotated[
        str,
        _option(
            _MODEL, help="Known name, hub id, folder or .gguf file.", autocompletion=model_names
        ),
    ] = "smollm2-135m"


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded; all are arguments of `load_model`."""

    device: Annotated[
        str | None, _option(_MODEL, help="cpu, cuda, cuda:1, ...; default: a GPU if available.")
    ] = None
    dtype: Annotated[
        Dtype | None, _option(_MODEL, help="Number format of the weights; default float32.")
    ] = None
    device_map: Annotated[
        str | None,
        _option(
            _MODEL,
            help="Instead of --device: auto, balanced, sequential, modules with their devices "
            "(model.embed_tokens=0,model.layers.0=disk,...), or a .json file with these.",
        ),
    ] = None
    max_memory: Annotated[
        str | None,
        _option(_MODEL, help="Memory limits with --device-map auto: 0=20GB,1=20GB,cpu=64GB."),
    ] = None
    revision: Annotated[str | None, _option(_MODEL, help="Branch, tag or commit of a hub id.")] = (
        None
    )
    quantization: Annotated[
        Quantization | None, _option(_MODEL, help="Quantise the weights with bitsandbytes.")
    ] = None


@dataclass(frozen=True)
class ModelOptions(LoadOptions, _WhichModel):
    """Which model, and how it is loaded."""


@dataclass(frozen=True)
class TaskOptions:
    """Which task, and the layout of user data."""

    task: Annotated[
        str,
        _option(
            _DATA,
            help="Known task, data file (CSV, JSON, Parquet, Arrow; may be compressed) or "
            "folder, or owner/name on the hub.",
            autocompletion=task_names,
        ),
    ] = "reviews"
    prompt_format: Annotated[
        int | None,
        _option(_DATA, min=0, help="Number of the prompt format, for tasks with several."),
    ] = None
    template: Annotated[
        str | None,
        _option(
            _OWN,
            help=r"'Review: {text}\nSentiment: {label}', or the name of a task.",
            autocompletion=task_names,
        ),
    ] = None
    label_words: Annotated[
        str | None, _option(_OWN, help="Label words in class order, separated by commas.")
    ] = None
    label_map: Annotated[
        str | None,
        _option(
            _OWN, help="Label word for each value of the label column: pos=Positive,neg=Negative"
        ),
    ] = None
    labels_as: Annotated[
        LabelsAs | None,
        _option(_OWN, help="What the label column contains, if the label words are numbers."),
    ] = None
    text_column: Annotated[str, _option(_OWN, help="Column of the text.")] = "text"
    text2_column: Annotated[
        str | None, _option(_OWN, help="Column of the second text, for templates with {text2}.")
    ] = None
    label_column: Annotated[str, _option(_OWN, help="Column of the label.")] = "label"
    answers: Annotated[
        str | None,
        _option(
            _OWN,
            help="Column of free-form answers, instead of labels; bars separate several "
            "accepted answers: Kyiv|Kiev. 'choices[answer]': a column of choices, and "
            "the column that says which one is correct.",
        ),
    ] = None
    other_answers: Annotated[
        str | None,
        _option(
            _OWN, help="Column with the answers of another relation, which --labels other displays."
        ),
    ] = None
    rationale: Annotated[
        str | None,
        _option(
            _OWN,
            help="Column of the reasons for each answer, for templates with {rationale}.",
            show_default="rationale",
        ),
    ] = None
    test_path: Annotated[
        str | None, _option(_OWN, help="A second file, with the test examples.")
    ] = None
    test_fraction: Annotated[
        float,
        _option(_OWN, help="Fraction of each class held out for testing, for data without splits."),
    ] = 0.5
    train_split: Annotated[
        str | None,
        _option(_OWN, help="For data with splits: the split that demonstrations come from."),
    ] = None
    test_split: Annotated[
        str | None, _option(_OWN, help="For data with splits: the split that queries come from.")
    ] = None
    config: Annotated[str | None, _option(_OWN, help="Configuration of a data set on the hub.")] = (
        None
    )
    overlap: Annotated[
        Overlap,
        _option(_OWN, help="What to do with texts that occur in both training and test data."),
    ] = "avoid"


@dataclass(frozen=True)
class TextOptions:
    """Texts in place of a task."""

    texts: Annotated[
        Path | None,
        _option(
            _TEXTS,
            help="Texts instead of a task: .txt (texts divided by lines of ---), .json or .jsonl.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    spans: Annotated[Unit, _option(_TEXTS, help="Spans that each text is split into.")] = (
        "sentences"
    )


Number = Annotated[int, _option(_PROMPTS, "--n", "-n", min=1, help="Number of prompts.")]


@dataclass(frozen=True)
class PromptOptions:
    """How prompts are built."""

    shots: Annotated[
        int | None,
        _option(
            _PROMPTS,
            min=0,
            help="Demonstrations per class; with free-form answers, in total.",
            show_default="1",
        ),
    ] = None
    total: Annotated[
        str | None,
        _option(
            _PROMPTS,
            metavar="N|max",
            help="Instead of --shots: total number of demonstrations, the class of each drawn "
            "independently; max: as many as fit the model's context.",
        ),
    ] = None
    n: Number = 50
    seed: Annotated[
        int, _option(_PROMPTS, min=0, help="Seed of texts, demonstrations and random controls.")
    ] = 0
    demonstrations: Annotated[
        Demonstrations | None,
        _option(
            _PROMPTS,
            help="The same in all prompts, or drawn for each; default: per_prompt if only "
            "flow is measured, if true and false demonstrations are compared or if "
            "--total is given, otherwise shared.",
        ),
    ] = None
    labels: Annotated[
        LabelSetting | None,
        _option(
            _PROMPTS,
            help="Labels of the demonstrations; if true and false demonstrations are "
            "compared, the labels of the false ones (default permuted).",
        ),
    ] = None
    false_share: Annotated[
        float | None,
        _option(
            _PROMPTS,
            min=0.0,
            max=1.0,
            help="Probability that a demonstration displays the false label of --labels "
            "instead of its true one; default: always.",
        ),
    ] = None
    balanced: Annotated[
        bool, _option(_PROMPTS, help="Draw equally many queries of each class.")
    ] = True
    score: Annotated[
        WordScore | None,
        _option(
            _PROMPTS,
            help="Score of label words with several tokens: log P of the first token, summed "
            "over all tokens, or averaged over them; default: first if all first tokens "
            "differ, otherwise sum.",
        ),
    ] = None
    chat: Annotated[
        bool, _option(_PROMPTS, help="Write demonstrations as turns of the model's chat template.")
    ] = False
    system: Annotated[str | None, _option(_PROMPTS, help="With --chat: the system message.")] = None
    prefill: Annotated[str, _option(_PROMPTS, help="With --chat: text before the answer.")] = ""
    template_kwargs: Annotated[
        str | None,
        _option(
            _PROMPTS, help="""With --chat: options of its template: '{"enable_thinking": false}'."""
        ),
    ] = None
    today: Annotated[
        str | None,
        _option(
            _PROMPTS, help="With --chat: the date that its template writes, such as 2026-01-01."
        ),
    ] = None


@dataclass(frozen=True)
class RunOptions:
    """How it is computed; only `interventions` changes what is measured."""

    batch_size: Annotated[
        int | None,
        _option(_RUN, min=1, help="Maximum number of prompts per batch; default: as many as fit."),
    ] = None
    memory: Annotated[
        str | None,
        _option(_RUN, help="Memory budget such as 8GB, which determines the batch size."),
    ] = None
    interventions: Annotated[
        Path | None,
        _option(
            _RUN,
            help="JSON file with a list of interventions as returned by Intervention.to_dict().",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    intervention: Annotated[
        list[str] | None,
        _option(
            _RUN,
            help="A custom intervention, my_module:MyIntervention; may be given several times.",
        ),
    ] = None


@dataclass(frozen=True)
class OwnOptions:
    """Additional measurements."""

    measurement: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_STUDY,
            help="An additional custom measurement, my_module:MyMeasurement; may be given "
            "several times.",
        ),
    ] = None


DryRun = Annotated[
    bool,
    _option(
        _RUN,
        "--dry-run",
        help="Run nothing; report what it would cost and whether it fits into memory.",
    ),
]


@dataclass(frozen=True)
class OutputOptions:
    """Where results go, and what is printed."""

    out: Annotated[
        Path | None,
        _option(
            _OUT, help="New folder for results and HTML report (default: runs/NAME, -2, -3, ...)."
        ),
    ] = None
    overwrite: Annotated[
        bool,
        _option(
            _OUT, "--overwrite", help="Replace earlier results in the folder; your own files stay."
        ),
    ] = False
    resume: Annotated[
        bool,
        _option(
            _OUT,
            "--resume",
            help="Save each result in --out as soon as it is finished, and continue from "
            "those already there: for long runs that may be interrupted.",
        ),
    ] = False
    dry_run: DryRun = False
    json: Annotated[bool, _option(_OUT, "--json", help="Print results as JSON.")] = False
    quiet: Annotated[
        bool, _option(_OUT, "--quiet", "-q", help="No progress; print only the folder.")
    ] = False


AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
OverwritePage = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace any existing file; without it, only an unedited report is replaced.",
    ),
]
