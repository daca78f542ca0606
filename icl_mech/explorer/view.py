"""`explore`: an `Explorer` of a model and a task - a widget in Jupyter, a page from `icl-mech explore`, values in Python."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any

from icl_mech._files import replace_file
from icl_mech.errors import IclMechError, PromptError, RunError
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.experiment import Demo, Experiment, Query
from icl_mech.explorer.free_text import Texts
from icl_mech.explorer.history import History
from icl_mech.explorer.over_all import OverAll, over_all
from icl_mech.explorer.pace import fastest
from icl_mech.explorer.session import Session
from icl_mech.explorer.sharing import check, numbered, source
from icl_mech.explorer.widget import bundle
from icl_mech.interventions import Intervention
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs, build_prompts
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.studies.measuring import model_line, written
from icl_mech.tasks import Example, Task, as_task, known_tasks, load_task

HISTORY = "history.json"
"""File name in the folder an explorer is saved to."""

QUERIES = 24
"""Default number of queries of a task."""

FIRST = "Each of the prompts has demonstrations of its own; here those of the first stand before all queries."
"""Note on prompts with `demonstrations="per_prompt"`."""

SHOTS = 4
"""Default number of demonstrations of a task with free-form answers."""


class Explorer:
    """An interactive experiment, driven by a page or from Python; both see the same state.

    Attributes:
        session: Actions, history and figures.
    """

    def __init__(self, session: Session) -> None:
        """Wrap a session."""
        self.session = session

    def __repr__(self) -> str:
        """Model, task, and the experiment on the screen."""
        stage, history = self.session.asker.stage, self.session.history
        return f"<Explorer of {stage.info.name} on {stage.task.name}: {history.now.title(history.start)}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The widget; if it cannot be drawn, a static picture and a note on what is missing."""
        return bundle(self.session)

    @property
    def experiment(self) -> Experiment:
        """The experiment on the screen."""
        return self.session.history.now

    @property
    def prompts(self) -> PromptBatch:
        """The experiment's prompt."""
        return self.session.asker.prompts(self.experiment)

    @property
    def changes(self) -> list[Intervention]:
        """The experiment's changes as interventions, for any measurement."""
        return self.session.asker.changes(self.experiment, self.prompts)

    def do(self, action: str, **more: Any) -> "Explorer":
        """Perform an action of the page, such as `do("flip", demo=0)`.

        Args:
            action: Name of the action, see `icl_mech.explorer.actions.ACTIONS`; also `undo`, `redo`, `reset`, `keep`.
            **more: Arguments of the action.

        Raises:
            IclMechError: the action is impossible.
        """
        self.session.do({"do": action, **more})
        return self

    def flip(self, demo: int, to: int | None = None) -> "Explorer":
        """Change a demonstration's label to the next class (or the next of its answers), or to number `to`."""
        return self.do("flip", demo=demo, to=to)

    def answer(self, demo: int, answer: str) -> "Explorer":
        """Set the free-form answer that a demonstration displays to any word."""
        return self.do("answer", demo=demo, answer=answer)

    def isolate(self, layers: Sequence[int]) -> "Explorer":
        """Isolate label words from earlier tokens, in consecutive layers."""
        return self.do("range", what="isolate", **{"from": min(layers), "to": max(layers)})

    def zero_head(self, layer: int, head: int) -> "Explorer":
        """Set a head to zero at the target, or undo that."""
        return self.do("head", layer=layer, head=head)

    def undo(self) -> "Explorer":
        """Go one step back."""
        return self.do("undo")

    def figures(self, part: str = "now") -> dict[str, Any]:
        """Numbers of the page: `now`, `cal`, `pair`, `flow`, `heads labels`, `heads texts`, `heads matching`, `null` (zeroed
        heads beside random ones) or `rows 7` (what heads attend to from token 7), see `icl_mech.explorer.asking`.
        """
        self.session.asker.check_current()
        return self.session.asker.ask(part, self.experiment)

    def over_all(self) -> OverAll:
        """The present state compared with the reference, over all queries; both are an `Analysis`."""
        before, now = self.session.history.compared, self.experiment
        result = over_all(self.session.asker, before, now)
        return self.session.counted(result, before, now)

    def code(self, *, every: bool = False) -> str:
        """Lines of Python that give the numbers on the screen, or (`every`) those over all queries."""
        return self.session.code(every=every)

    def finding(self) -> str:
        """Lines of Python that test the change from the reference: over all queries and fresh ones, beside its null."""
        return self.session.finding()

    def save(self, folder: str | Path) -> None:
        """Keep history and kept states; `explore(..., history=folder)` continues from there.

        Raises:
            RunError: the folder cannot be written to.
        """
        _write(Path(expanduser(folder)) / HISTORY, self.session)

    def share(self) -> str:
        """The state on the screen as a line of text, which `open` and `explore(..., state=)` read."""
        return self.session.shared().to_text(self.session.asker.stage)

    def save_state(self, file: str | Path) -> None:
        """Write the state on the screen, with its reference, to a JSON file.

        Raises:
            RunError: the file cannot be written.
        """
        content = self.session.shared().to_dict(self.session.asker.stage)
        text = json.dumps(content, indent=1, ensure_ascii=False)
        replace_file(Path(expanduser(file)), text.encode(), RunError)

    def save_page(self, file: str | Path) -> None:
        """Write the present state, the start and the kept states as one HTML page that needs no model.

        Raises:
            RunError: the file cannot be written.
        """
        self.session.asker.check_current()
        replace_file(Path(expanduser(file)), self.session.page().encode(), RunError)

    def open(self, state: str | Path | Mapping[str, object]) -> "Explorer":
        """Make a shared state the present one, as one step that can be undone.

        Args:
            state: A line of text from `share`, a link, a file, or its content.

        Raises:
            IclMechError: it is damaged, or belongs to another task or model; nothing changes.
        """
        return self.do("open", state=source(state))

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
    state: str | Path | Mapping[str, object] | None = None,
    threads: int | None = None,
) -> Explorer:
    """Change a prompt or a layer by hand, and see what it does.

    In a notebook the value is a widget; elsewhere `icl-mech explore` opens the same page, and every action can be
    called from Python (`view.flip(0)`, `view.isolate(range(5))`, `view.figures()`).

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: A task with classes or free-form answers, or prompts of one (`build_prompts`); if each has its own
            demonstrations, those of the first stand before all queries. Or free texts (`texts`), which are read
            towards their next token.
        task: The task of given prompts, if it is not a built-in one.
        n: Number of queries of a task (default 24).
        shots: Demonstrations per class of a task (default 1); for free-form answers, in total (default 4).
        seed: Seed with which its texts are drawn.
        history: Folder written by `Explorer.save`, to continue from.
        state: Shared state to open, see `Explorer.open`.
        threads: Number of torch threads; None: as many as are fastest in a few passes at the start.

    Raises:
        PromptError: the prompts are chats with demonstrations, or cannot be built again from their task or text.
        RunError: the folder holds a history, or `state` is a state, of another model or task.
    """
    adapted = adapt(model)
    if isinstance(prompts, PromptBatch) and prompts.answer_kind == "vocabulary":
        asker, start = _read_towards_next(adapted, prompts)
    elif isinstance(prompts, PromptBatch):
        asker, start = _asked(adapted, _task_of(prompts, task), prompts)
    else:
        resolved = as_task(prompts)
        asker, start = _asked(adapted, resolved, _drawn(resolved, model, shots, n or QUERIES, seed))
    past = History([start]) if history is None else _read(Path(expanduser(history)), asker.stage)
    known = [line.replace("load_model", "icl.load_model") for line in model_line(adapted)]
    lines = (*known, f"model = ...  # {adapted.info.name}")[0], _task_line(asker.stage.task)
    if threads is None:
        threads = fastest(adapted, asker, start)
    session = Session(asker, past, lines=lines, threads=threads)
    session.note = "" if asker.stage.shared else FIRST
    view = Explorer(session)
    if state is None:
        return view
    try:
        return view.open(state)
    except IclMechError:
        view.close()
        raise


def _read_towards_next(model: LanguageModel, batch: PromptBatch) -> tuple[Asker, Experiment]:
    """The asker for free texts, and the first one as an experiment."""
    queries = tuple(Query(prompt.text, 0, number) for number, prompt in enumerate(batch))
    return Asker(model, Stage(Texts(batch, model), model.info, queries)), Experiment((), queries[0])


def _asked(model: LanguageModel, task: Task, batch: PromptBatch) -> tuple[Asker, Experiment]:
    """The asker for prompts of a task, and the first prompt as an experiment."""
    start, queries, shared = _first(task, batch, model.tokenizer)
    reader = TextTokenizer(model.tokenizer)
    stage = Stage(task, model.info, queries, partial(_first_token, reader), shared)
    if task.is_open:
        start, queries = _open(start, stage, model)
    if "chat" in batch.source:
        raise PromptError(
            "These prompts are chats, whose turns the explorer cannot edit. Build them without chat=True, or "
            "with a template of chat_template(model)."
        )
    built = History([start]).now.prompts(task, model, queries)
    if "first" not in (batch.score, built.score) or batch.score != built.score:
        raise PromptError(
            f"The label words of these prompts are scored as whole words ({max(batch.score, built.score)}), but the explorer "
            "compares their first tokens. Give labels that begin with different tokens, or use predict."
        )
    compared = zip(built, batch, strict=True) if shared else [(built[0], batch[0])]
    if any(prompt.tokens != given.tokens for prompt, given in compared):
        raise PromptError(
            f"These prompts differ from those that task {task.name!r} builds from their texts, so they cannot be "
            "edited; give the task with the template they were built with (task=...)."
        )
    return Asker(model, replace(stage, queries=queries)), start


def _first_token(reader: TextTokenizer, word: str) -> int | None:
    """The first token of a word after a colon and a space; None if it has none."""
    read = reader.encode(f"a: {word}", [(3, 3 + len(word))])
    tokens = zip(read.ids, read.offsets, strict=True)
    return next((token for token, (_, stop) in tokens if stop > 3), None)


def _drawn(task: Task, model: object, shots: int | None, n: int, seed: int) -> PromptBatch:
    """Prompts with true demonstrations; for free-form answers, those for which false ones can be built too."""
    if not task.is_open:
        return build_prompts(task, model, shots=1 if shots is None else shots, n=n, seed=seed)
    options: dict[str, Any] = {"shots": SHOTS if shots is None else shots, "n": n, "seed": seed}
    if all(example.other is not None for example in (*task.train, *task.test)):
        return build_prompt_pairs(task, model, false_labels="other", **options)[0]
    return build_prompts(task, model, **options)


def _open(
    start: Experiment, stage: Stage, model: LanguageModel
) -> tuple[Experiment, tuple[Query, ...]]:
    """Add a false answer to each demonstration.

    It is the answer of the other relation if every text has one and all words begin with different tokens; else the
    answer of the next demonstration that has a different one, or of a training example.
    """
    task, queries = stage.task, stage.queries
    assert isinstance(task, Task)
    known = {example.keys: example for example in (*task.train, *task.test)}
    examples = [known.get(demo.example.keys, demo.example) for demo in start.demos]
    asked = [known.get(query.example.keys, query.example) for query in queries]
    if all(example.other is not None for example in (*examples, *asked)):
        asks = [
            replace(q, words=(q.words[0], str(e.other)))
            for q, e in zip(queries, asked, strict=True)
        ]
        experiment = _with_false(
            start, examples, [str(example.other) for example in examples], asks[0]
        )
        with suppress(PromptError):
            History([experiment]).now.prompts(task, model, asks)
            return experiment, tuple(asks)
    right = [example.answers[0] for example in examples]
    scored = [*right, *(word for query in queries for word in (*query.words, *query.also))]
    spare = [
        example.answers[0] for example in task.train if stage.fits(example.answers[:1], scored)
    ]
    false = [
        next((answer for answer in (*right[i + 1 :], *right[:i], *spare) if answer != word), word)
        for i, word in enumerate(right)
    ]
    return _with_false(start, examples, false, queries[0]), queries


def _with_false(
    start: Experiment, examples: Sequence[Example], false: Sequence[str], query: Query
) -> Experiment:
    """Demonstrations with their correct answer, a false one, and the one they display."""
    demos = []
    for demo, example, wrong in zip(start.demos, examples, false, strict=True):
        words = tuple(dict.fromkeys((example.answers[0], wrong, *demo.words)))
        demos.append(replace(demo, words=words, shown=words.index(demo.words[0])))
    return replace(start, demos=tuple(demos), query=query)


def _task_of(prompts: PromptBatch, task: Task | str | None) -> Task:
    """The task the prompts were built from.

    Raises:
        PromptError: it is not known.
    """
    name = prompts.source.get("task", {}).get("name")
    if task is None and name not in {known.name for known in known_tasks()}:
        raise PromptError(f"The task {name!r} is not a built-in one; give it with task=.")
    return load_task(str(name)) if task is None else as_task(task)


def _first(
    task: Task, prompts: PromptBatch, tokenizer: object
) -> tuple[Experiment, tuple[Query, ...], bool]:
    """The first prompt as an experiment, all queries, and whether they share its demonstrations."""
    known = {example.keys: example for example in (*task.train, *task.test)}
    asked = [prompt.examples(tokenizer) for prompt in prompts]
    demos = []
    for example in asked[0][0]:
        true = known.get(example.keys, example).label
        demos.append(
            Demo(
                example.text, example.label, true, example.text2, example.answers, example.rationale
            )
        )
    shared = all(shown == asked[0][0] for shown, _ in asked)
    taken = {key for example in asked[0][0] for key in example.keys if not shared}
    queries = [
        Query(q.text, q.label, number, q.text2, q.answers[:1], q.answers[1:], q.rationale)
        for number, q in enumerate(q for _, q in asked if not taken.intersection(q.keys))
    ]
    return Experiment(tuple(demos), queries[0]), tuple(queries), shared


def _task_line(task: Task | Texts) -> str:
    if isinstance(task, Texts):
        return "texts = ...  # icl.texts(...)"
    named = task.name in {known.name for known in known_tasks()}
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
        RunError: there is none, it cannot be read, or it belongs to another task or model.
    """
    file = folder / HISTORY
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {str(error).removesuffix('.')}.") from None
    made_of = {"task": stage.task.name, "model": stage.info.name}
    if not isinstance(saved, dict) or any(saved.get(key) != name for key, name in made_of.items()):
        raise RunError(
            f"{file} is not a history of {stage.info.name!r} on {stage.task.name!r}; give the folder of one."
        )
    history = History.from_dict(saved)

    def read(experiment: Experiment) -> Experiment:
        check(experiment, stage, file)
        return replace(experiment, query=numbered(experiment.query, stage))

    history.past, history.future = [*map(read, history.past)], [*map(read, history.future)]
    history.named = [(name, read(experiment)) for name, experiment in history.named]
    return history
