"""`act`: the edits a user can make to an experiment; pure functions, without model or browser."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icl_mech.errors import RunError, near_matches
from icl_mech.explorer.changes import KINDS, OF_DEMONSTRATIONS, OF_PROMPTS, OF_TEXTS, Change
from icl_mech.explorer.experiment import Demo, Experiment, Query
from icl_mech.explorer.free_text import Texts
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.models import ModelInfo
from icl_mech.tasks import Task
from icl_mech.tasks.types import text_fault

LONGEST = 8_000
"""Maximum number of characters of a typed text."""

MOST = 64
"""Maximum number of demonstrations, and of answers per demonstration."""

FACTORS = (1e-3, 1e3)
"""Smallest and largest factor of a re-weighting of attention."""

FACTOR = 2.0
"""Default factor."""


@dataclass(frozen=True)
class Stage:
    """What actions can draw on.

    Attributes:
        task: The task, which supplies new demonstrations; or free texts.
        info: Facts about the model.
        queries: The set of queries.
        first: Returns the first token of a free-form answer.
        shared: The queries had these demonstrations before they were opened here.
        lens: Fitted lens through which layers are read; None: the logit lens.
    """

    task: Task | Texts
    info: ModelInfo
    queries: tuple[Query, ...]
    first: Callable[[str], object] = lambda word: word
    shared: bool = True
    lens: FittedLens | None = None

    @property
    def of_texts(self) -> bool:
        """True for free texts."""
        return isinstance(self.task, Texts)

    @property
    def ranged(self) -> tuple[str, ...]:
        """The kinds of changes in a range of layers."""
        return OF_TEXTS if self.of_texts else OF_PROMPTS

    def check_answers(self) -> None:
        """Reject free texts.

        Raises:
            RunError: there are no right answers.
        """
        if self.of_texts:
            raise RunError(
                "Texts have no right answers to count over the set; code(every=True) returns lines that measure "
                "the next token of every text."
            )

    @property
    def relation(self) -> bool:
        """True if the queries also have answers of another relation."""
        return any(len(query.words) > 1 for query in self.queries)

    def fits(self, words: Sequence[str], others: Iterable[str]) -> bool:
        """True if the first tokens of the words differ from each other and from those of other words."""
        taken = {self.first(word): word for word in others}
        by_token = {self.first(word): word for word in words}
        return len(by_token) == len(words) and all(
            taken.get(t, by_token[t]) == by_token[t] for t in by_token
        )


Action = Mapping[str, Any]
Done = tuple[Experiment, str]
"""The experiment after an action, and a note about it."""


def act(experiment: Experiment, action: Action, stage: Stage) -> Done:
    """The experiment after an action.

    Args:
        experiment: The experiment before it.
        action: `do` and its arguments; see `ACTIONS`.
        stage: Task, model and queries it can draw on.

    Returns:
        The new experiment, and a sentence if the action also dropped something, else "".

    Raises:
        RunError: the action is impossible; the message says why.
    """
    do = action.get("do")
    if not isinstance(do, str) or do not in ACTIONS:
        raise RunError(f"There is no action {do!r}. {near_matches(str(do), [*ACTIONS])}")
    return ACTIONS[do](experiment, action, stage)


def _whole(action: Action, name: str, count: int, what: str) -> int:
    """The action's value of this name, an integer from 0 to `count - 1`.

    Raises:
        RunError: it is not; the message quotes the value.
    """
    value = action.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise RunError(
            f"{name}={value!r} is not a valid {what} number; there are {count}, counted from 0."
        )
    return value


def _text(action: Action, name: str = "text") -> str:
    text = action.get(name)
    if not isinstance(text, str) or not text.strip():
        raise RunError(f"The {name} is empty; enter one.")
    if fault := text_fault(text):
        raise RunError(f"The {name} {fault}.")
    if len(text) > LONGEST:
        raise RunError(f"The {name} has {len(text)} characters; at most {LONGEST} can be typed in.")
    return text.strip()


def _layers(action: Action, stage: Stage) -> tuple[int, int]:
    ends = sorted(_whole(action, end, stage.info.n_layers, "layer") for end in ("from", "to"))
    return ends[0], ends[1]


def _factor(action: Action) -> float:
    factor = action.get("factor", FACTOR)
    low, high = FACTORS
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not low <= factor <= high:
        raise RunError(f"factor={factor!r} is not valid; give a number from {low:g} to {high:g}.")
    return float(factor)


def _with_demo(experiment: Experiment, number: int, demo: Demo) -> Experiment:
    demos = list(experiment.demos)
    demos[number] = demo
    return replace(experiment, demos=tuple(demos))


def _rearranged(
    experiment: Experiment, demos: Sequence[Demo], moved: Mapping[int, int | None]
) -> Done:
    """Replace the demonstrations; a change moves with its demonstration, or is dropped with it.

    Args:
        experiment: The experiment before.
        demos: The new demonstrations.
        moved: New number of each old demonstration; None if it was removed.
    """
    new = {number: moved.get(number, number) for number in range(len(experiment.demos))}
    changes = [
        change if change.demo is None else replace(change, demo=new[change.demo])
        for change in experiment.changes
        if (demos or change.what not in OF_DEMONSTRATIONS)
        and (change.demo is None or new[change.demo] is not None)
    ]
    dropped = len(experiment.changes) - len(changes)
    of = "this demonstration" if demos else "demonstrations"
    note = f"Also removed: {dropped} change{'s' * (dropped > 1)} of {of}." if dropped else ""
    return replace(experiment, demos=tuple(demos), changes=tuple(changes)), note


def _flip(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "demo", len(experiment.demos), "demonstration")
    demo = experiment.demos[number]
    count = len(demo.words) or len(stage.task.labels)
    if action.get("to") is None:
        shown = (demo.shown + 1) % count
    else:
        shown = _whole(action, "to", count, "answer" if demo.words else "class")
    return _with_demo(experiment, number, replace(demo, shown=shown)), ""


def _answer(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "demo", len(experiment.demos), "demonstration")
    if not stage.task.is_open:
        raise RunError(
            f"Task {stage.task.name!r} has classes, so there is no answer to type; flip the label."
        )
    demo, word = experiment.demos[number], _text(action, "answer")
    words = demo.words if word in demo.words else (*demo.words, word)
    if len(words) > MOST:
        raise RunError(f"The demonstration has {MOST} answers already; choose one of them.")
    return _with_demo(experiment, number, replace(demo, words=words, shown=words.index(word))), ""


def _flip_all(experiment: Experiment, action: Action, stage: Stage) -> Done:
    opposite = experiment.opposite(len(stage.task.labels))
    return replace(experiment, demos=opposite.demos), ""


def _edit(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "demo", len(experiment.demos), "demonstration")
    demo = replace(experiment.demos[number], text=_text(action))
    if demo == experiment.demos[number]:
        return experiment, ""
    changes = tuple(c for c in experiment.changes if c.what != "token" or c.demo != number)
    dropped = len(changes) < len(experiment.changes)
    note = "Isolated tokens of the old text are no longer isolated." if dropped else ""
    return replace(_with_demo(experiment, number, demo), changes=changes), note


def _drop(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "demo", len(experiment.demos), "demonstration")
    demos = [demo for index, demo in enumerate(experiment.demos) if index != number]
    moved = {index: index - 1 for index in range(number + 1, len(experiment.demos))}
    return _rearranged(experiment, demos, {**moved, number: None})


def _move(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "demo", len(experiment.demos), "demonstration")
    step = action.get("by")
    if type(step) is not int or step not in (-1, 1):
        raise RunError(f"by={step!r} is not valid; a demonstration moves by 1 or -1.")
    neighbour = number + step
    if not 0 <= neighbour < len(experiment.demos):
        return experiment, ""
    demos = list(experiment.demos)
    demos[number], demos[neighbour] = demos[neighbour], demos[number]
    return _rearranged(experiment, demos, {number: neighbour, neighbour: number})


def _add(experiment: Experiment, action: Action, stage: Stage) -> Done:
    task, demos = stage.task, experiment.demos
    if isinstance(task, Texts):
        raise RunError("Texts have no demonstrations; edit the text instead.")
    if len(demos) >= MOST:
        raise RunError(f"There are {MOST} demonstrations already; drop one first.")
    used = {key for demo in demos for key in demo.example.keys}
    used |= {key for query in (*stage.queries, experiment.query) for key in query.example.keys}
    if task.is_open:
        return _add_open(experiment, stage, used), ""
    if action.get("label") is None:
        counts = [sum(demo.true == label for demo in demos) for label in range(len(task.labels))]
        label = counts.index(min(counts))
    else:
        label = _whole(action, "label", len(task.labels), "class")
    fresh = (
        example for example in task.by_class("train")[label] if not used.intersection(example.keys)
    )
    example = next(fresh, None)
    if example is None:
        raise RunError(f"The task has no unused example of {task.labels[label]!r} left.")
    added = Demo(example.text, label, label, example.text2, rationale=example.rationale)
    return replace(experiment, demos=(*demos, added)), ""


def _add_open(experiment: Experiment, stage: Stage, used: set[str]) -> Experiment:
    """Add the first example whose answers differ in their first token from all that are shown or asked for."""
    queries = (*stage.queries, experiment.query)
    shown = [*experiment.choices, *(word for demo in experiment.demos for word in demo.words)]
    shown += [word for query in queries for word in query.words]
    also = {stage.first(word) for query in queries for word in query.also}
    for example in stage.task.train:
        right = example.answers[0]
        false = example.other if stage.relation else next((w for w in shown if w != right), None)
        words = (right,) if false is None else (right, false)
        fresh = not used.intersection(example.keys) and not also & {*map(stage.first, words)}
        if fresh and stage.fits(words, shown):
            added = Demo(example.text, 0, 0, example.text2, words, example.rationale)
            return replace(experiment, demos=(*experiment.demos, added))
    raise RunError(
        "The task has no unused example left whose answer differs from all others in its first token."
    )


def _asked(experiment: Experiment, query: Query) -> Done:
    asked = experiment.asking(query)
    dropped = len(asked.changes) < len(experiment.changes)
    if dropped and any(change.what in OF_TEXTS for change in experiment.changes):
        return asked, "Tokens and spans of the old text are no longer changed."
    return asked, "Isolated tokens of the old query are no longer isolated." if dropped else ""


def _query(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = action.get("number")
    if isinstance(number, bool) or not isinstance(number, int):
        raise RunError(
            f"number={number!r} is not a query number; there are {len(stage.queries)} queries."
        )
    return _asked(experiment, stage.queries[number % len(stage.queries)])


def _ask(experiment: Experiment, action: Action, stage: Stage) -> Done:
    if stage.task.is_open:
        query = Query(_text(action), 0, None, experiment.query.text2, (_text(action, "answer"),))
        return _asked(experiment, query)
    text = _text(action)
    if stage.of_texts:  # a space or line break at its end matters to what follows
        return _asked(experiment, Query(action["text"], 0))
    answer = _whole(action, "answer", len(stage.task.labels), "class")
    return _asked(experiment, replace(experiment.query, text=text, answer=answer, number=None))


def _range(experiment: Experiment, action: Action, stage: Stage) -> Done:
    what = action.get("what")
    if not isinstance(what, str) or what not in stage.ranged:
        near = near_matches(str(what), [*stage.ranged])
        raise RunError(f"There is no kind of change {what!r}. {near}")
    if what in OF_DEMONSTRATIONS and not experiment.demos:
        raise RunError("There is no demonstration that this could change; add one first.")
    demo = token = None
    needs = KINDS[what].needs
    if needs == "demo" or (needs == "token" and action.get("demo") is not None):
        count = LONGEST if stage.of_texts else len(experiment.demos)
        demo = _whole(action, "demo", count, "span" if stage.of_texts else "demonstration")
    if needs == "token":
        token = _whole(action, "token", LONGEST, "token")
    factor = _factor(action) if needs == "factor" else 1.0
    if needs == "factor" and factor == 1:
        raise RunError("A factor of 1 changes nothing; give another one.")
    made = Change(what, _layers(action, stage), demo, token, factor=factor)
    others = [change for change in experiment.changes if change.place != made.place]
    return replace(experiment, changes=(*others, made)), ""


def _changed(experiment: Experiment, number: int, *made: Change) -> Done:
    before, after = experiment.changes[:number], experiment.changes[number + 1 :]
    return replace(experiment, changes=(*before, *made, *after)), ""


def _stretch(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "change", len(experiment.changes), "change")
    change = experiment.changes[number]
    if change.what == "heads":
        raise RunError(
            "Heads are chosen one by one, not by a range of layers; choose them in the map of heads."
        )
    return _changed(experiment, number, replace(change, layers=_layers(action, stage)))


def _scale(experiment: Experiment, action: Action, stage: Stage) -> Done:
    number = _whole(action, "change", len(experiment.changes), "change")
    change, factor = experiment.changes[number], _factor(action)
    if change.what != "reweight":
        raise RunError(f"{change.words()!r} has no factor; only a re-weighting has one.")
    return _changed(experiment, number, *([] if factor == 1 else [replace(change, factor=factor)]))


def _remove(experiment: Experiment, action: Action, stage: Stage) -> Done:
    return _changed(experiment, _whole(action, "change", len(experiment.changes), "change"))


def _head(experiment: Experiment, action: Action, stage: Stage) -> Done:
    return _zeroed(experiment, {_pair(action, stage)})


def _heads(experiment: Experiment, action: Action, stage: Stage) -> Done:
    """Zero a group of heads; if all of them are zeroed already, none of them."""
    pairs = action.get("heads")
    if not isinstance(pairs, list) or not pairs:
        raise RunError(f"heads={pairs!r} is not valid; give a list of [layer, head] pairs.")
    group = set()
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RunError(f"heads={pairs!r} is not valid; give a list of [layer, head] pairs.")
        group.add(_pair({"layer": pair[0], "head": pair[1]}, stage))
    zeroed = {head for change in experiment.changes for head in change.heads}
    return _zeroed(experiment, group if group <= zeroed else group - zeroed)


def _pair(action: Action, stage: Stage) -> tuple[int, int]:
    layer = _whole(action, "layer", stage.info.n_layers, "layer")
    return layer, _whole(action, "head", stage.info.n_heads, "head")


def _zeroed(experiment: Experiment, turned: set[tuple[int, int]]) -> Done:
    """Zero these heads, except for those that are zeroed already, which are restored."""
    old = [change.what for change in experiment.changes]
    number = old.index("heads") if "heads" in old else len(old)
    heads = set(experiment.changes[number].heads) if number < len(old) else set()
    heads ^= turned
    made = [Change("heads", heads=tuple(sorted(heads)))] if heads else []
    return _changed(experiment, number, *made)


ACTIONS: dict[str, Callable[[Experiment, Action, Stage], Done]] = {
    "flip": _flip,
    "flip_all": _flip_all,
    "answer": _answer,
    "edit": _edit,
    "drop": _drop,
    "move": _move,
    "add": _add,
    "query": _query,
    "ask": _ask,
    "range": _range,
    "stretch": _stretch,
    "scale": _scale,
    "remove": _remove,
    "head": _head,
    "heads": _heads,
}
