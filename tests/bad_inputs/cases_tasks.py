"""Bad tasks, files, frames and texts."""

from typing import Any

import pandas as pd

import icl_mech as icl
from icl_mech.errors import PromptError, TaskError
from icl_mech.tasks import Example, Template, known_task
from tests.bad_inputs.case import Bench, Case
from tests.engine.test_paths import TASK

PATTERN = "Review: {text}\nSentiment: {label}"
LABELS = ("Negative", "Positive")
FRAME = pd.DataFrame({"text": list("abcd"), "label": ["Negative", "Positive"] * 2})
TEXT = "Review: a\nSentiment: Positive\nReview: b\nSentiment:"


def file(content: str | bytes, name: str = "a.csv", **options: Any) -> Any:
    """Loads a file of that content."""

    def call(bench: Bench) -> object:
        path = bench.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return icl.load_task(path, **{"template": PATTERN, "labels": LABELS, **options})

    return call


def load(data: Any, **options: Any) -> Any:
    """Loads anything else."""
    return lambda _: icl.load_task(data, **{"template": PATTERN, "labels": LABELS, **options})


def task(**changes: Any) -> Any:
    """Makes a task."""
    parts = {
        "labels": LABELS,
        "train": (Example("a", 0),),
        "test": (),
        "template": Template(PATTERN),
    }

    def call(_: Bench) -> object:
        given = {**parts, **changes}
        return icl.Task("bad", **{k: v() if callable(v) else v for k, v in given.items()})

    return call


def build(**options: Any) -> Any:
    """Builds prompts."""
    return lambda b: icl.build_prompts(options.pop("task", TASK), b.model, **options)


def text(texts: Any = (TEXT,), labels: Any = LABELS, answers: Any = None, **options: Any) -> Any:
    """Prompts from texts."""
    return lambda b: icl.prompts_from_text(texts, labels, b.model, answers, **options)


def positions(**changes: Any) -> Any:
    """A prompt from positions."""
    given: dict[str, Any] = {"tokens": [1, 2, 3, 4], "label_positions": [1], "label_classes": [0]}
    given |= {"label_tokens": [2, 5], **changes}
    return lambda _: icl.Prompt.from_positions(given.pop("tokens"), **given)


STARS = "text,label\na,1\nb,2\nc,1\nd,2\n"

CASES = [
    # Files
    Case("a file that is not there", load("nowhere/a.csv"), TaskError, ("'nowhere/a.csv'",)),
    Case("a file of another kind", file("x", "a.xlsx"), TaskError, ("'.xlsx'", ".jsonl")),
    Case("an empty file", file(""), TaskError),
    Case("a file with columns only", file("text,label\n"), TaskError),
    Case("a file in Latin 1", file("text,label\ncafé,Positive".encode("latin-1")), TaskError,
         ("not UTF-8", "encoding=")),
    Case("a file in UTF-16 that does not say so", file("text,label\na,Positive".encode("utf-16-le")),
         TaskError, ("NUL", "UTF-16")),
    Case("a quote that is never closed", file('text,label\n"a,Positive\nb,Negative\n'), TaskError),
    Case("a row with a field too many", file("text,label\na, b,Positive\n"), TaskError,
         ("3 fields",)),
    Case("a row with a field too few", file("text,label\na\n"), TaskError, ("1 fields",)),
    Case("two columns of one name", file("text,label,text\na,Positive,b\n"), TaskError,
         ("2 columns named 'text'",)),
    Case("other columns", file("said,mood\na,Positive\n"), TaskError,
         ("'said', 'mood'", "text_column=")),
    Case("an empty text", file("text,label\n ,Positive\n"), TaskError, ("row 1",)),
    Case("an unknown label", file("text,label\na,Positiv\n"), TaskError,
         ("row 1", "'Positiv'", "'Positive'")),
    Case("a label that is missing", file('{"text": "a", "label": null}', "a.jsonl"), TaskError,
         ("row 1",)),
    Case("an index of no class", file("text,label\na,2\n"), TaskError, ("label 2", "0 to 1")),
    Case("labels that could be names or indices", file(STARS, labels=list("12345")), TaskError,
         ("1, 2", "labels_as='names'", "label_map=")),
    Case("NaN for a text", file('{"text": NaN, "label": 1}', "a.jsonl"), TaskError, ("line 1", "NaN")),
    Case("a list for a text", file('{"text": ["a"], "label": 1}', "a.jsonl"), TaskError,
         ("row 1",)),
    Case("a number for a text", file('{"text": 5, "label": 1}', "a.jsonl"), TaskError),
    Case("half of a surrogate pair", file('{"text": "a\\ud83d", "label": 1}', "a.jsonl"), TaskError,
         ("character 1",)),
    Case("a line that is no JSON", file("{'text': 'a'}", "a.jsonl"), TaskError, ("line 1",)),
    Case("one file for both parts", lambda b: file("text,label\na,0\nb,1\n", test_path=b.folder / "a.csv")(b), TaskError,
         ("overlap='keep'",)),
    Case("one text for all rows", file("text,label\na,0\na,1\n a ,0\n"), TaskError),
    Case("an unknown way with equal texts", file(STARS, overlap="drop"), TaskError, ("'drop'", "avoid")),
    Case("an unknown reading of labels", file(STARS, labels_as="name"), TaskError,
         ("'name'", "'names'")),
    # Frames and label maps
    Case("a list for data", load([1, 2]), TaskError, ("frame (pandas",)),
    Case("nothing for data", load(None), TaskError, ("NoneType", "frame (pandas")),
    Case("a frame without rows", load(FRAME.iloc[:0]), TaskError),
    Case("a frame with other columns", load(FRAME.rename(columns={"text": "said"})), TaskError,
         ("'text'", "'said', 'label'")),
    Case("a frame with a missing text", load(FRAME.assign(text=["a", None, "c", "d"])), TaskError,
         ("row 2",)),
    Case("a frame with numbers for texts", load(FRAME.assign(text=[1.5, 2, 3, 4])), TaskError,
         ("row 1", "1.5")),
    Case("a frame with a missing label", load(FRAME.assign(label=[0, 1, None, 1])), TaskError,
         ("row 3",)),
    Case("splits of other names", load({"fit": FRAME, "held": FRAME}), TaskError,
         ("'fit', 'held'", "train_split=")),
    Case("a path for a test part of a frame", load(FRAME, test_path="b.csv"), TaskError,
         ("test_path=",)),
    Case("a label map without a value", load(FRAME, label_map={"Negative": "Positive"}), TaskError,
         ("row 2", "'Positive'", "label_map=")),
    Case("a label map to no label word", load(FRAME, label_map={"Negative": "bad"}), TaskError,
         ("'bad'",)),
    Case("a label map that is a list", load(FRAME, label_map=["Negative"]), TaskError, ("{'neg'",)),
    Case("label words that are one string", load(FRAME, labels="Negative"), TaskError,
         ("'Negative'", "('Negative', 'Positive')")),
    Case("one label word twice", load(FRAME, labels=("Positive", "Positive ")), TaskError,
         ("'Positive' twice",)),
    Case("label words that are numbers", load(FRAME, labels=(0, 1)), TaskError),
    Case("a data set of the hub that is nowhere", load("no-such-owner/no-such-name"), TaskError,
         ("'no-such-owner/no-such-name'", "owner/name")),
    Case("a task of unknown name", lambda _: known_task("reviewz"), TaskError, ("'reviews'",)),
    # Templates and tasks in code
    Case("a template that is a number", lambda _: Template(7), TaskError, ("pattern",)),  # type: ignore[arg-type]
    Case("a separator that is None", lambda _: Template(PATTERN, None), TaskError, ("separator",)),  # type: ignore[arg-type]
    Case("a text behind the label", lambda _: Template("{label}: {text}"), TaskError),
    Case("a task with a pattern for a template", task(template=PATTERN), TaskError),
    Case("a task of texts without labels", task(train=["a"]), TaskError),
    Case("a task with a string for examples", task(train="abc"), TaskError, ("train",)),
    Case("an example with a number for a text", task(train=lambda: (Example(3, 0),)), TaskError,  # type: ignore[arg-type]
         ("example 0",)),
    Case("an example with a name for a label", task(train=lambda: (Example("a", "Negative"),)), TaskError,  # type: ignore[arg-type]
         ("'Negative'", "0 to 1")),
    Case("an example with a blank second text", task(train=(Example("a", 0, " "),)), TaskError,
         ("text2",)),
    # build_prompts
    Case("no task", build(task=None), TaskError, ("NoneType", "load_task")),
    Case("a list for a task", build(task=["a"]), TaskError, ("load_task",)),
    Case("a negative seed", build(seed=-1), PromptError, ("seed=-1",)),
    Case("a seed that is a text", build(seed="0"), PromptError, ("seed='0'",)),
    Case("a demonstration with an open answer in a task with classes",
         build(demonstrations=[Example("x", answers=("animal",))]), PromptError,
         ("demonstrations[0]", "0 to")),
    Case("a query with an open answer in a task with classes",
         build(queries=[Example("x", answers=("animal",))]), PromptError, ("queries[0]",)),
    Case("an open answer in a task with classes", task(train=(Example("a", answers=("Positive",)),)),
         TaskError, ("0 to 1",)),
    Case("a label map to one word", load(FRAME, labels=None, label_map={"Negative": "A", "Positive": "A"}),
         TaskError, ("label_map=", "only the label word 'A'",)),
    Case("no column of answers", load(FRAME, labels=None, answers="lable"), TaskError,
         ("'lable'", "answers=", "'label'")),
    Case("a list as data", load([1, 2], template=None, labels=None), TaskError,
         ("[1, 2]",)),
    Case("negative shots", build(shots=-1), PromptError, ("shots=-1",)),
    Case("half shots", build(shots=1.5), PromptError, ("shots=1.5",)),
    Case("shots that are a text", build(shots="2"), PromptError, ("shots='2'",)),
    Case("shots that are True", build(shots=True), PromptError, ("shots=True",)),
    Case("more shots than examples", build(shots=9), PromptError, ("shots=9", "'Negative'")),
    Case("no prompts", build(n=0), PromptError, ("n=0",)),
    Case("half a prompt", build(n=0.5), PromptError, ("n=0.5",)),
    Case("more prompts than examples", build(n=99), PromptError, ("n=99", "balanced=False")),
    Case("an unknown label setting", build(labels="permute"), PromptError, ("'permute'", "'permuted'")),
    Case("unknown demonstrations", build(demonstrations="each"), PromptError, ("'each'", "shared")),
    Case("an unknown split", build(split="validation"), PromptError, ("'validation'", "test")),
    Case("a text for a flag", build(balanced="no"), PromptError, ("balanced='no'", "False")),
    Case("a BOS that is a number", build(bos=2), PromptError, ("bos=2",)),
    Case("an unknown way with special tokens", build(special_tokens="control"), PromptError,
         ("'control'", "refuse")),
    Case("a name for a model", lambda _: icl.build_prompts(TASK, "gpt2"), PromptError,
         ("tokenizer",)),
    Case("labels of a pair", lambda b: icl.build_prompt_pairs(TASK, b.model, labels="random"), PromptError,
         ("false_labels=",)),
    Case("an unknown label setting of a pair",
         lambda b: icl.build_prompt_pairs(TASK, b.model, false_labels="wrong"), PromptError,  # type: ignore[arg-type]
         ("'wrong'", "permuted")),
    Case("an unknown option of a pair", lambda b: icl.build_prompt_pairs(TASK, b.model, shot=2),
         PromptError, ("'shot'", "'shots'")),
    # prompts_from_text
    Case("one text instead of a list", text(TEXT), PromptError, ("[text]",)),
    Case("no texts", text([]), PromptError),
    Case("a number among texts", text([TEXT, 3]), PromptError, ("Text 1",)),
    Case("nothing for texts", text(None), PromptError, ("NoneType",)),
    Case("an empty text among texts", text([TEXT, " "]), PromptError, ("Text 1",)),
    Case("half of a surrogate pair in a text", text(["a \ud83d:"]), PromptError),
    Case("label words in one string", text(labels="Positive"), PromptError, ("'Positive'",)),
    Case("an empty label word", text(labels=("Positive", " ")), PromptError),
    Case("a label word twice", text(labels=("Positive", "Positive")), PromptError),
    Case("label words of one first token", text(labels=("Positive", "Positive film", "no"), score="first"), PromptError),
    Case("one label word", text(labels=("Positive",)), PromptError),
    Case("an answer that is None", text(answers=[None]), PromptError, ("None", "text 0")),
    Case("an answer that is True", text(answers=[True]), PromptError, ("True", "text 0")),
    Case("answers that are one word", text(answers="Positive"), PromptError, ("'Positive'",)),
    Case("an answer of no class", text(answers=[7]), PromptError, ("answer 7", "2 classes")),
    Case("nothing before a label word", text(before=""), PromptError, ("before=",)),
    Case("special tokens in a finished text", text([f"<|endoftext|>{TEXT}"]), PromptError,
         ("<|endoftext|>", "'control'")),
    # from_positions and batches
    Case("tokens that are a text", positions(tokens="abcd"), PromptError, ("tokens='abcd'",)),
    Case("tokens that are fractions", positions(tokens=[1.5, 2, 3, 4]), PromptError, ("tokens=", "1.5",)),
    Case("a negative token", positions(tokens=[-1, 2, 3, 4]), PromptError, ("-1", "start at 0")),
    Case("no tokens", positions(tokens=[], label_positions=[], label_classes=[]), PromptError,
         ("0 tokens",)),
    Case("a position outside", positions(label_positions=[9]), PromptError, ("4 tokens",)),
    Case("a fraction for a position", positions(label_positions=[0.5]), PromptError, ("0.5",)),
    Case("a length of nothing", positions(label_lengths=[0]), PromptError),
    Case("a word for a class", positions(label_classes=["a"]), PromptError, ("label_classes=", "'a'",)),
    Case("a target that is a text", positions(target="last"), PromptError, ("target='last'",)),
    Case("label tokens of two axes", positions(label_tokens=[[2], [5]]), PromptError,
         ("label_tokens=",)),
    Case("texts for prompts", lambda _: icl.PromptBatch(("a",)), PromptError, ("Prompt 0",)),  # type: ignore[arg-type]
    Case("a batch without prompts", lambda _: icl.PromptBatch(()), PromptError),
    Case("chat turns without a chat template", lambda b: icl.chat_template(b.model), PromptError,
         ("Template",)),
]  # fmt: skip
