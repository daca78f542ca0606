"""The built-in tasks, and `load_task`, which also takes local files and folders.

Templates and label words of the label-words tasks: Wang et al. 2023, *Label Words are
Anchors*, appendix A; of `unnatural`: Halawi et al. 2023, *Overthinking the Truth*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icl_mech import demo
from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.files import read_rows, split_examples, to_examples
from icl_mech.tasks.types import Example, Task, Template


@dataclass(frozen=True)
class HubSource:
    """Where a public data set lies on the Hugging Face hub, and what its columns are called."""

    path: str
    text: str
    label: str
    train: str = "train"
    test: str = "test"
    revision: str | None = None


@dataclass(frozen=True)
class KnownTask:
    """A task that can be loaded by name; offline ones carry their data in the package."""

    name: str
    template: Template
    labels: tuple[str, ...]
    note: str
    hub: HubSource | None = None

    @property
    def offline(self) -> bool:
        """True if the data comes with the package."""
        return self.hub is None


_REVIEW = Template("Review: {text}\nSentiment:{label}")
_ARTICLE = Template("Article: {text}\nAnswer:{label}")
_QUESTION = Template("Question: {text}\nAnswer Type:{label}")
_DIALOGUE = Template("Dialogue: {text}\nEmotion:{label}")
_OBJECT = Template(
    "{text}:{label}.",
    separator="\n\n",
    narrative=(
        "Consider the categories plant/vegetable, sport, and animal. "
        "Classify each object in its category."
    ),
)
_SENTIMENTS = ("Negative", "Positive")
_TOPICS = ("World", "Sports", "Business", "Technology")
_ANSWER_TYPES = ("Abbreviation", "Entity", "Description", "Person", "Location", "Number")
_CONVERTED = "refs/convert/parquet"

_KNOWN = (
    KnownTask("reviews", _REVIEW, _SENTIMENTS, "sentiment of short reviews, like SST-2"),
    KnownTask("headlines", _ARTICLE, _TOPICS, "topic of news items, like AG News"),
    KnownTask("questions", _QUESTION, _ANSWER_TYPES, "type of a question's answer, like TREC"),
    KnownTask("unnatural", _OBJECT, ("animal", "plant/vegetable", "sport"), "category of an object"),
    KnownTask(
        "sst2", _REVIEW, _SENTIMENTS, "SST-2 movie reviews",
        HubSource("stanfordnlp/sst2", "sentence", "label", test="validation"),
    ),
    KnownTask(
        "agnews", _ARTICLE, _TOPICS, "AG News topics",
        HubSource("fancyzhx/ag_news", "text", "label"),
    ),
    KnownTask(
        "trec", _QUESTION, _ANSWER_TYPES, "TREC coarse answer types",
        HubSource("CogComp/trec", "text", "coarse_label", revision=_CONVERTED),
    ),
    KnownTask(
        "emo", _DIALOGUE, ("Others", "Happy", "Sad", "Angry"), "EmoContext dialogue emotions",
        HubSource("SemEvalWorkshop/emo", "text", "label", revision=_CONVERTED),
    ),
)  # fmt: skip


def known_tasks() -> tuple[KnownTask, ...]:
    """All tasks `load_task` knows by name, offline ones first."""
    return _KNOWN


def load_task(
    name_or_path: str | Path,
    *,
    template: Template | str | None = None,
    labels: Sequence[str] | None = None,
    separator: str | None = None,
    narrative: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    text2_column: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float = 0.5,
    seed: int = 0,
) -> Task:
    r"""A task by name, or from local files.

    Args:
        name_or_path: A built-in name (see `known_tasks`); a CSV, TSV or JSONL file; or a
            folder that holds `train.*` and `test.*`.
        template: For files: a `Template`, a pattern such as
            `"Review: {text}\nSentiment:{label}"`, or the name of a built-in task whose
            template and labels are used.
        labels: Label words in class order; for files needed unless `template` names a task.
        separator: Between demonstrations, if `template` is a pattern (default newline).
        narrative: Opens the prompt, if `template` is a pattern.
        text_column: Column of the text.
        label_column: Column of the label: class index or label word.
        text2_column: Column of the second text (templates with `{text2}`).
        test_path: A second file that holds the test examples.
        test_fraction: Share of each class kept for testing when there is one file only.
        seed: Of that split.

    Raises:
        TaskError: unknown name (near matches are listed), missing column, unknown label,
            empty text, hub unreachable.
    """
    path = Path(name_or_path)
    known = {task.name: task for task in _KNOWN}
    if str(name_or_path) in known:
        task = _load_known(known[str(name_or_path)])
        return _adjust(task, template, labels, separator, narrative)
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise TaskError(f"No file or folder {str(name_or_path)!r}; check the path.")
        raise TaskError(f"Unknown task {str(name_or_path)!r}. {near_matches(str(path), known)}")
    template, labels = _template_and_labels(template, labels, separator, narrative)
    if template.is_pair and text2_column is None:
        text2_column = "text2"

    def examples(file: Path) -> tuple[Example, ...]:
        return to_examples(
            read_rows(file), labels, origin=str(file),
            text_column=text_column, label_column=label_column, text2_column=text2_column,
        )  # fmt: skip

    if path.is_dir():
        train, test = (examples(_split_file(path, split)) for split in ("train", "test"))
    elif test_path is not None:
        train, test = examples(path), examples(Path(test_path))
    else:
        train, test = split_examples(
            examples(path), len(labels), test_fraction=test_fraction, seed=seed
        )
    return Task(path.stem, template, tuple(labels), train, test, source=f"file {path.name}")


def _load_known(known: KnownTask) -> Task:
    if known.hub is not None:
        train, test = (
            _hub_examples(known, known.hub, split) for split in (known.hub.train, known.hub.test)
        )
        return Task(known.name, known.template, known.labels, train, test, f"hub {known.hub.path}")
    folder = demo.folder(known.name)
    train, test = (
        to_examples(
            read_rows(folder / f"{split}.jsonl"), known.labels, origin=f"{known.name} {split}"
        )
        for split in ("train", "test")
    )
    return Task(known.name, known.template, known.labels, train, test, "icl_mech offline data")


def _hub_examples(known: KnownTask, hub: HubSource, split: str) -> tuple[Example, ...]:
    import datasets

    try:
        rows = datasets.load_dataset(hub.path, split=split, revision=hub.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        offline = ", ".join(task.name for task in _KNOWN if task.offline)
        raise TaskError(
            f"Task {known.name!r} needs the data set {hub.path!r} from the Hugging Face hub, which "
            f"could not be loaded ({type(error).__name__}). Go online, give a local file "
            f"(load_task('my.csv', template={known.name!r})), or use an offline task: {offline}."
        ) from error
    return to_examples(
        list(rows), known.labels, origin=f"{hub.path} {split}",
        text_column=hub.text, label_column=hub.label,
    )  # fmt: skip


def _template_and_labels(
    template: Template | str | None,
    labels: Sequence[str] | None,
    separator: str | None,
    narrative: str | None,
) -> tuple[Template, tuple[str, ...]]:
    known = {task.name: task for task in _KNOWN}
    if isinstance(template, str) and template in known:
        labels = labels if labels is not None else known[template].labels
        template = known[template].template
    if template is None or labels is None:
        raise TaskError(
            "A task from files needs template= (for example 'Review: {text}\\nSentiment:{label}', or "
            "the name of a built-in task) and labels= (label words in class order)."
        )
    if isinstance(template, str):
        template = Template(template)
    return _with_layout(template, separator, narrative), tuple(label.strip() for label in labels)


def _with_layout(template: Template, separator: str | None, narrative: str | None) -> Template:
    return Template(
        template.pattern,
        template.separator if separator is None else separator,
        template.narrative if narrative is None else narrative,
    )


def _adjust(
    task: Task,
    template: Template | str | None,
    labels: Sequence[str] | None,
    separator: str | None,
    narrative: str | None,
) -> Task:
    if template is None and labels is None and separator is None and narrative is None:
        return task
    if labels is not None and len(labels) != len(task.labels):
        raise TaskError(
            f"Task {task.name!r} has {len(task.labels)} classes ({', '.join(task.labels)}); "
            f"labels= names {len(labels)}."
        )
    chosen, words = _template_and_labels(
        template or task.template, labels or task.labels, separator, narrative
    )
    return Task(task.name, chosen, words, task.train, task.test, task.source)


def _split_file(folder: Path, split: str) -> Path:
    for suffix in (".jsonl", ".csv", ".tsv", ".json"):
        if (folder / f"{split}{suffix}").is_file():
            return folder / f"{split}{suffix}"
    raise TaskError(
        f"Folder {str(folder)!r} has no {split}.jsonl, {split}.csv or {split}.tsv; "
        "a task folder holds train.* and test.*."
    )
