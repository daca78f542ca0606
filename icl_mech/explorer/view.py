"""`explore`: an `Explorer` of a model and a task - a widget in Jupyter, a page from `icl-mech explore`, values in Python."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any

from icl_mech._files import replace_file
from icl_mech.errors import PromptError, RunError
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.changes import KINDS
from icl_mech.explorer.experiment import Demo, Experiment, Query
from icl_mech.explorer.history import History
from icl_mech.explorer.over_all import OverAll, over_all
from icl_mech.explorer.pace import fastest
from icl_mech.explorer.session import Session
from icl_mech.explorer.widget import bundle
from icl_mech.interventions import Intervention
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs, build_prompts
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.studies.measuring import model_line, written
from icl_mech.tasks import Example, Task, as_task, known_tasks, load_task

HISTORY = "history.json"
"""File of a folder to which an explorer is saved."""

QUERIES = 24
"""Of a task that is given by name."""

SHOTS = 4
"""Demonstrations with open answers, of a task that is given by name."""


class Explorer:
    """What is explored, driven by a page or from Python; both see the same.

    Attributes:
        session: Actions, history and figures.
    """

    def __init__(self, session: Session) -> None:
        """Of a session."""
        self.session = session

    def __repr__(self) -> str:
        """Model, task, and what is on the screen."""
        stage, history = self.session.asker.stage, self.session.history
        return f"<Explorer of {stage.info.name} on {stage.task.name}: {history.now.title(history.start)}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The widget; a still picture with what is missing where it cannot be drawn."""
        return bundle(self.session)

    @property
    def experiment(self) -> Experiment:
        """What is on the screen."""
        return self.session.history.now

    @property
    def prompts(self) -> PromptBatch:
        """Its prompt."""
        return self.session.asker.prompts(self.experiment)

    @property
    def changes(self) -> list[Intervention]:
        """Its changes as interventions, for any measurement."""
        return self.session.asker.changes(self.experiment, self.prompts)

    def do(self, action: str, **more: Any) -> "Explorer":
        """An action of the page, such as `do("flip", demo=0)`.

        Args:
            action: Its name, see `icl_mech.explorer.actions.ACTIONS`; also `undo`, `redo`, `reset`, `keep`.
            **more: What it needs.

        Raises:
            IclMechError: it cannot be.
        """
        self.session.do({"do": action, **more})
        return self

    def flip(self, demo: int, to: int | None = None) -> "Explorer":
        """The next class for a demonstration's label (or the next of its answers), or number `to`."""
        return self.do("flip", demo=demo, to=to)

    def answer(self, demo: int, answer: str) -> "Explorer":
        """A word of one's own as the open answer that a demonstration displays."""
        return self.do("answer", demo=demo, answer=answer)

    def isolate(self, layers: Sequence[int]) -> "Explorer":
        """Cut label words off from what stands before them, in consecutive layers."""
        return self.do("range", what="isolate", **{"from": min(layers), "to": max(layers)})

    def zero_head(self, layer: int, head: int) -> "Explorer":
        """Set a head to zero at the target, or no longer."""
        return self.do("head", layer=layer, head=head)

    def undo(self) -> "Explorer":
        """One step back."""
        return self.do("undo")

    def figures(self, part: str = "now") -> dict[str, Any]:
        """Numbers of the page: `now`, `cal`, `pair` or `flow`, see `icl_mech.explorer.asking`."""
        self.session.asker.check_current()
        return self.session.asker.ask(part, self.experiment)

    def over_all(self) -> OverAll:
        """The present state beside the reference, over all queries; both are an `Analysis`."""
        before, now = self.session.history.compared, self.experiment
        found = over_all(self.session.asker, before, now)
        return self.session.counted(found, before, now)

    def code(self, *, every: bool = False) -> str:
        """Lines of Python that give the numbers on the screen, or (`every`) those over all queries."""
        return self.session.code(every=every)

    def save(self, folder: str | Path) -> None:
        """Keep history and kept states; `explore(..., history=folder)` goes on from there.

        Raises:
            RunError: the folder cannot be written to.
        """
        _write(Path(expanduser(folder)) / HISTORY, self.session)

    def close(self) -> None:
        """Stop the worker; the history stays."""
        self.session.close()


def explore(
    model: object,
    prompts: PromptBatch | Task | str,
    *,
    task: Task | str | None = None,
    n: int | None = None,
    shots: int | None = None,
    seed: int = 0,
    history: str | Path | None = None,
    threads: int | None = None,
) -> Explorer:
    """Change a prompt or a layer by hand, and see what it does.

    In a notebook the value is a widget; elsewhere `icl-mech explore` opens the same page, and every action can be
    called from Python (`view.flip(0)`, `view.isolate(range(5))`, `view.figures()`).

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: A task with classes or open answers, or prompts of one that share their demonstrations
            (`build_prompts`).
        task: The task of given prompts, if it is not a built-in one.
        n: Number of queries of a task (default 24).
        shots: Demonstrations per class of a task (default 1); of open answers in all (default 4).
        seed: Of its texts.
        history: Folder of `Explorer.save`, to go on from there.
        threads: Of torch; None: as many as were fastest in a few passes when it is opened.

    Raises:
        PromptError: texts, or prompts with demonstrations of their own.
        RunError: a folder that holds another history.
    """
    if isinstance(prompts, PromptBatch):
        own, batch = _task_of(prompts, task), prompts
    else:
        own = as_task(prompts)
        batch = _drawn(own, model, shots, n or QUERIES, seed)
    adapted = adapt(model)
    asker, start = _asked(adapted, own, batch)
    past = History([start]) if history is None else _read(Path(expanduser(history)), asker.stage)
    known = [line.replace("load_model", "icl.load_model") for line in model_line(adapted)]
    lines = (*known, f"model = ...  # {adapted.info.name}")[0], _task_line(own)
    if threads is None:
        threads = fastest(adapted, asker, start)
    return Explorer(Session(asker, past, lines=lines, threads=threads))


def _asked(model: LanguageModel, task: Task, batch: PromptBatch) -> tuple[Asker, Experiment]:
    """What answers about prompts of a task, and the first of them as an experiment."""
    start, queries = _first(task, batch, model.tokenizer)
    reader = TextTokenizer(model.tokenizer)
    stage = Stage(task, model.info, queries, partial(_first_token, reader))
    if task.is_open:
        start, queries = _open(start, stage, model)
    if "chat" in batch.source:
        raise PromptError(
            "These prompts are chats, whose turns the explorer does not write. Build them without chat=True, or "
            "with a template of chat_template(model)."
        )
    built = History([start]).now.prompts(task, model, queries)
    if "first" not in (batch.score, built.score) or batch.score != built.score:
        raise PromptError(
            f"The label words of these prompts are scored whole ({max(batch.score, built.score)}), and the explorer "
            "compares their first tokens. Give labels that begin with different tokens, or measure with predict."
        )
    if any(own.tokens != given.tokens for own, given in zip(built, batch, strict=True)):
        raise PromptError(
            f"These prompts are not what task {task.name!r} writes for their texts, so they cannot be changed "
            "by hand; give the task with its template (task=...)."
        )
    return Asker(model, replace(stage, queries=queries)), start


def _first_token(reader: TextTokenizer, word: str) -> int | None:
    """The first token of a word behind a sign and a blank; None if it has none."""
    read = reader.encode(f"a: {word}", [(3, 3 + len(word))])
    found = zip(read.ids, read.offsets, strict=True)
    return next((token for token, (_, stop) in found if stop > 3), None)


def _drawn(task: Task, model: object, shots: int | None, n: int, seed: int) -> PromptBatch:
    """Prompts with true demonstrations; of open answers those whose false ones fit beside them."""
    if not task.is_open:
        return build_prompts(task, model, shots=1 if shots is None else shots, n=n, seed=seed)
    options: dict[str, Any] = {"shots": SHOTS if shots is None else shots, "n": n, "seed": seed}
    if all(example.other is not None for example in (*task.train, *task.test)):
        return build_prompt_pairs(task, model, false_labels="other", **options)[0]
    return build_prompts(task, model, **options)


def _open(
    start: Experiment, stage: Stage, model: LanguageModel
) -> tuple[Experiment, tuple[Query, ...]]:
    """With a false answer for each demonstration.

    That of the other relation where every text has one and all words begin with tokens of their own; else the
    answer of the next demonstration that has another one, or of a training example.
    """
    task, queries = stage.task, stage.queries
    known = {own.keys: own for own in (*task.train, *task.test)}
    found = [known.get(own.example.keys, own.example) for own in start.demos]
    asked = [known.get(own.example.keys, own.example) for own in queries]
    if all(example.other is not None for example in (*found, *asked)):
        asks = [
            replace(q, words=(q.words[0], str(e.other)))
            for q, e in zip(queries, asked, strict=True)
        ]
        own = _with_false(start, found, [str(example.other) for example in found], asks[0])
        with suppress(PromptError):
            History([own]).now.prompts(task, model, asks)
            return own, tuple(asks)
    right = [example.answers[0] for example in found]
    scored = [*right, *(word for query in queries for word in (*query.words, *query.also))]
    spare = [own.answers[0] for own in task.train if stage.fits(own.answers[:1], scored)]
    false = [
        next((own for own in (*right[i + 1 :], *right[:i], *spare) if own != word), word)
        for i, word in enumerate(right)
    ]
    return _with_false(start, found, false, queries[0]), queries


def _with_false(
    start: Experiment, found: Sequence[Example], false: Sequence[str], query: Query
) -> Experiment:
    """Demonstrations with their own answer, a false one, and what they display."""
    demos = []
    for demo, example, other in zip(start.demos, found, false, strict=True):
        words = tuple(dict.fromkeys((example.answers[0], other, *demo.words)))
        demos.append(replace(demo, words=words, shown=words.index(demo.words[0])))
    return replace(start, demos=tuple(demos), query=query)


def _task_of(prompts: PromptBatch, task: Task | str | None) -> Task:
    """The task prompts were built of.

    Raises:
        PromptError: it is not known, or cannot be explored.
    """
    if prompts.answer_kind == "vocabulary":
        raise PromptError(
            f"The answers of these prompts are scored against the {prompts.answer_kind}; the explorer changes "
            "demonstrations. Take prompts of a task with label words or open answers."
        )
    check_demonstrations(prompts, "The explorer")
    if any(own.label_positions != prompts[0].label_positions for own in prompts):
        raise PromptError(
            "These prompts have demonstrations of their own; the explorer asks many queries after the same "
            'ones. Build them with demonstrations="shared".'
        )
    name = prompts.source.get("task", {}).get("name")
    if task is None and name not in {own.name for own in known_tasks()}:
        raise PromptError(f"The task {name!r} is not a built-in one; give it with task=.")
    return load_task(str(name)) if task is None else as_task(task)


def _first(
    task: Task, prompts: PromptBatch, tokenizer: object
) -> tuple[Experiment, tuple[Query, ...]]:
    """The first prompt as an experiment, and all queries."""
    known = {own.keys: own for own in (*task.train, *task.test)}
    asked = [prompt.examples(tokenizer) for prompt in prompts]
    demos = []
    for found in asked[0][0]:
        true = known.get(found.keys, found).label
        demos.append(Demo(found.text, found.label, true, found.text2, found.answers))
    queries = [
        Query(q.text, q.label, number, q.text2, q.answers[:1], q.answers[1:])
        for number, (_, q) in enumerate(asked)
    ]
    return Experiment(tuple(demos), queries[0]), tuple(queries)


def _task_line(task: Task) -> str:
    named = task.name in {own.name for own in known_tasks()}
    named = named and load_task(task.name).describe() == task.describe()
    return f"task = icl.load_task({written(task.name)})" if named else f"task = ...  # {task!r}"


def _write(file: Path, session: Session) -> None:
    stage = session.asker.stage
    content = {
        "format": "icl_mech explorer 1",
        "model": stage.info.name,
        "task": stage.task.name,
        **session.history.to_dict(),
    }
    replace_file(file, json.dumps(content, indent=1).encode(), RunError)


def _read(folder: Path, stage: Stage) -> History:
    """A saved history.

    Raises:
        RunError: there is none, it cannot be read, or it is of another task or model.
    """
    file = folder / HISTORY
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}.") from None
    made_of = {"task": stage.task.name, "model": stage.info.name}
    if not isinstance(saved, dict) or any(saved.get(own) != name for own, name in made_of.items()):
        raise RunError(f"{file} is no history of {stage.info.name!r} on {stage.task.name!r}.")
    found = History.from_dict(saved)
    for own in (*found.past, *found.future, *(own for _, own in found.named)):
        _check(own, stage, file)
    return found


def _check(own: Experiment, stage: Stage, file: Path) -> None:
    """Refuse what no action makes."""
    names, info = stage.task.labels, stage.info
    labels = [(own.query.answer, own.query.words)]
    labels += [(c, demo.words) for demo in own.demos for c in (demo.shown, demo.true)]
    fits = [
        bool(own.demos),
        len(own.query.words) <= 2,
        not any(d.true for d in own.demos if d.words),
    ]
    fits += [bool(str(text).strip()) for text in (own.query.text, *(d.text for d in own.demos))]
    fits += [type(c) is int and c in range(len(words or names)) for c, words in labels]
    fits += [bool(words) == stage.task.is_open for _, words in labels]
    fits += [bool(word.strip()) for _, words in labels for word in (*words, *own.query.also)]
    for change in own.changes:
        layers = [*change.layers, *(pair[0] for pair in change.heads)]
        fits += [change.what in KINDS, len(change.layers) == 2]
        fits += [type(x) is int and x in range(info.n_layers) for x in layers]
        fits += [pair[1] in range(info.n_heads) for pair in change.heads]
        fits += [change.demo in (None, *range(len(own.demos)))]
        fits += [change.token in (None, *range(info.n_ctx)), change.factor > 0]
    if not all(fits):
        raise RunError(
            f"{file} holds texts, classes, layers, heads or changes that there are none of in {info.name!r} on "
            f"{stage.task.name!r}."
        )
