"""A state as a line of text and as a file: written compactly, and read strictly, since it may come from anyone."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from os.path import expanduser
from pathlib import Path
from typing import Any

from icl_mech.errors import RunError
from icl_mech.explorer.actions import MOST, Stage, act
from icl_mech.explorer.changes import Change
from icl_mech.explorer.experiment import Demo, Experiment, Query
from icl_mech.explorer.free_text import Texts
from icl_mech.explorer.history import History
from icl_mech.tasks.types import text_fault

FORMAT = "icl_mech explorer state 1"
"""Name and version of the format."""

MARK = "icl1."
"""First characters of a state as a line of text; the rest is compressed JSON in URL-safe letters."""

LARGEST = 1_000_000
"""Maximum number of bytes of a state as JSON."""

MOST_DEMOS = 1_000
"""Maximum number of demonstrations: prompts that an explorer is opened with may have more than can be added in it."""

Check = Callable[[object, str], Any]
"""Returns a value that is read, or raises an error that names its place."""


@dataclass(frozen=True)
class Shared:
    """A state that can be opened.

    Attributes:
        now: The experiment.
        reference: The experiment it is compared with.
        look: What is on show: layer, token and the like; empty if no page said so.
    """

    now: Experiment
    reference: Experiment
    look: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History, look: Mapping[str, Any]) -> "Shared":
        """The present state of a history."""
        return cls(history.past[-1], history.against, look)

    def message(self, stage: Stage) -> dict[str, Any]:
        """The state for a page: as a line of text, and as the content of a file."""
        name, content = stage.task.name, self.to_dict(stage)
        return {"kind": "shared", "link": self.to_text(stage), "name": name, "content": content}

    def to_dict(self, stage: Stage) -> dict[str, Any]:
        """The state as saved in a file."""
        return {
            "format": FORMAT,
            **_made_for(stage),
            "now": _written(self.now),
            "reference": _written(self.reference),
            "look": _seen(self.look, stage),
        }

    def to_text(self, stage: Stage) -> str:
        """The state as one line of letters, digits, `-`, `_` and a dot."""
        return MARK + letters(json.dumps(self.to_dict(stage), ensure_ascii=False))

    @classmethod
    def read(cls, saved: object, stage: Stage) -> "Shared":
        """Read a state.

        Args:
            saved: A line of text, an address that ends in one, the text of a file, or its content.
            stage: Task, model and queries on which it is opened.

        Raises:
            RunError: it is damaged, contains what no action can produce, or belongs to another task or model.
        """
        content = _unpacked(saved) if isinstance(saved, str) else saved
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise RunError(
                "This is not a state that an explorer shared; give the line of text, the link or the file of one."
            )
        _check_stage(content, stage)
        parts: dict[str, Check] = {
            "now": lambda own, where: _experiment(own, where, stage),
            "reference": lambda own, where: _experiment(own, where, stage),
            "look": lambda own, where: _members(own, where, {}, _looks(stage)),
        }
        named = {"format", *_made_for(stage)}
        inner = {key: own for key, own in content.items() if key not in named}
        return cls(**_members(inner, "The state", parts))


def check(experiment: Experiment, stage: Stage, file: object) -> None:
    """Reject an experiment that was read from a file, but that no action can produce.

    Raises:
        RunError: names the file, the value and what was expected.
    """
    try:
        made = _experiment(_written(experiment), "A state", stage)
        if (made.demos, made.changes) != (experiment.demos, experiment.changes):
            raise RunError("A change has a place or a factor that its kind does not have.")
    except RunError as error:
        raise RunError(
            f"{file} contains texts, classes, layers, heads or changes that do not exist in {stage.info.name!r} on "
            f"{stage.task.name!r}. {error}"
        ) from None


def source(state: str | Path | Mapping[str, object]) -> object:
    """The state that is meant: a line of text, a link, the content of a file, or the file itself.

    Raises:
        RunError: it is the path of a file that cannot be read.
    """
    if isinstance(state, Mapping) or (isinstance(state, str) and _is_text(state)):
        return state
    try:
        text = Path(expanduser(state)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(
            f"{_cut(str(state))} is neither a state, which begins with {MARK!r}, nor a file that can be read: "
            f"{str(error).removesuffix('.')}."
        ) from None
    return text


def _is_text(state: str) -> bool:
    return MARK in state or state.lstrip().startswith("{")


def letters(text: str) -> str:
    """A text, compressed, in URL-safe letters."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(text.encode()) + packer.flush()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _unpacked(text: str) -> object:
    """The content of a line, link or file."""
    found = None if text.lstrip().startswith("{") else re.search(r"icl1\.([\w-]*)", text, re.ASCII)
    try:
        if found:
            code = found[1]
            packed = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
            unpacker = zlib.decompressobj(wbits=-15)
            text = unpacker.decompress(packed, LARGEST + 1).decode()
            if not unpacker.eof and len(text.encode()) <= LARGEST:
                raise RunError("The state is incomplete: its end is missing. Copy it whole.")
        if len(text.encode()) > LARGEST:
            raise RunError(f"The state is too long: at most {LARGEST} bytes are read.")
        return json.loads(text)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise RunError(f"The state is damaged and cannot be read ({error}).") from None


def _made_for(stage: Stage) -> dict[str, Any]:
    """Model and task, as they stand in a file."""
    task = stage.task
    return {
        "model": stage.info.name,
        "task": task.name,
        "template": "" if isinstance(task, Texts) else task.template.pattern,
        "labels": [*task.labels],
    }


def _check_stage(content: Mapping[str, Any], stage: Stage) -> None:
    """Reject a state of another task or model."""
    made, here = {key: content.get(key) for key in _made_for(stage)}, _made_for(stage)
    if made == here:
        return
    names = made["model"], made["task"]
    if names == (here["model"], here["task"]):
        raise RunError(
            f"This state belongs to a task {here['task']!r} with another template or other labels: "
            f"{_cut(made['template'])} and {_cut(made['labels'])}, not {_cut(here['template'])} and "
            f"{_cut(here['labels'])}."
        )
    raise RunError(
        f"This is a state of {_cut(names[0])} on {_cut(names[1])}, but this explorer shows {here['model']!r} on "
        f"{here['task']!r}; open it in one of the former."
    )


# --- writing ---


def _written(experiment: Experiment) -> dict[str, Any]:
    """The experiment without what is at its default, and without the query's number, which depends on the set."""
    return {
        "demos": [_short(demo) for demo in experiment.demos],
        "query": _short(replace(experiment.query, number=None)),
        "changes": [_short(change) for change in experiment.changes],
    }


def _short(own: Demo | Query | Change) -> dict[str, Any]:
    usual = {each.name: each.default for each in fields(own)}
    return {name: value for name, value in asdict(own).items() if value != usual[name]}


def _seen(look: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    """What a page said is on show, as far as it can be."""
    checks, seen = _looks(stage), {}
    for name in checks.keys() & look.keys():
        with suppress(RunError):
            seen[name] = checks[name](look[name], name)
    return {name: seen[name] for name in checks if name in seen}


# --- reading ---


def _cut(value: object) -> str:
    shown = repr(value)
    return f"{shown[:57]}..." if len(shown) > 60 else shown


def _fault(where: str, value: object, expected: str) -> RunError:
    return RunError(f"{where} is {_cut(value)}; expected {expected}.")


def _members(
    value: object, where: str, needed: Mapping[str, Check], more: Mapping[str, Check] | None = None
) -> dict[str, Any]:
    """The members of an object, each checked."""
    if not isinstance(value, Mapping):
        raise _fault(where, value, "an object")
    checks = {**needed, **(more or {})}
    if missing := [name for name in needed if name not in value]:
        raise RunError(f"{where} has no {missing[0]!r}.")
    if unknown := [name for name in value if name not in checks]:
        raise RunError(f"{where} has a member {_cut(unknown[0])}, which does not exist.")
    return {name: checks[name](member, f"{where}: {name}") for name, member in value.items()}


def _list(check: Check, most: int) -> Check:
    def read(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > most:
            raise _fault(where, value, f"a list of at most {most}")
        return tuple(check(own, f"{where} {number + 1}") for number, own in enumerate(value))

    return read


def _whole(count: int) -> Check:
    def read(value: object, where: str) -> int:
        if type(value) is not int or not 0 <= value < count:
            raise _fault(where, value, f"an integer from 0 to {count - 1}")
        return value

    return read


def _one_of(*values: object) -> Check:
    def read(value: object, where: str) -> object:
        if not any(value is own or (isinstance(own, str) and value == own) for own in values):
            raise _fault(where, value, f"one of {', '.join(map(repr, values))}")
        return value

    return read


def _or_none(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _fault(where, value, "a text that is not empty")
    if fault := text_fault(value):
        raise RunError(f"{where} {fault}.")
    return value


def _looks(stage: Stage) -> dict[str, Check]:
    """What can be on show."""
    layer, head = _whole(stage.info.n_layers), _whole(stage.info.n_heads)
    flag = _one_of(True, False)

    def of_head(value: object, where: str) -> list[int]:
        if not isinstance(value, Sequence) or len(value) != 2:
            raise _fault(where, value, "a layer and a head")
        return [layer(value[0], where), head(value[1], where)]

    def named(value: object, where: str) -> str:
        text = _text(value, where)
        if len(text) > MOST:
            raise _fault(where, value, f"a name of at most {MOST} characters")
        return text

    return {
        "layer": _or_none(layer),
        "token": _or_none(_whole(stage.info.n_ctx)),
        "mode": _one_of("roles", "into", "out"),
        "attend": _or_none(of_head),
        "heads": _or_none(named),
        "calibrated": flag,
    }


def _experiment(saved: object, where: str, stage: Stage) -> Experiment:
    """An experiment that actions can produce; its changes are made by them."""
    parts: dict[str, Check] = {
        "demos": _list(lambda own, place: _demo(own, place, stage), MOST_DEMOS),
        "query": lambda own, place: _query(own, place, stage),
    }
    changes = {"changes": _list(_change, LARGEST)}
    found = _members(saved, where, parts, changes)
    experiment = Experiment(found["demos"], found["query"])
    for number, actions in enumerate(found.get("changes", ())):
        experiment = _acted(experiment, actions, f"{where}: changes {number + 1}", stage)
    return experiment


def _acted(
    experiment: Experiment, actions: Sequence[Mapping[str, Any]], where: str, stage: Stage
) -> Experiment:
    try:
        for action in actions:
            experiment, _ = act(experiment, action, stage)
    except RunError as error:
        raise RunError(f"{where}: {error}") from None
    return experiment


def _words(stage: Stage, most: int) -> dict[str, Check]:
    """The members of texts with free-form answers."""
    return {"words": _list(_text, most)} if stage.task.is_open else {}


def _demo(saved: object, where: str, stage: Stage) -> Demo:
    classes = _whole(len(stage.task.labels) or MOST)
    needed: dict[str, Check] = {"text": _text, "shown": classes, "true": classes}
    needed |= _words(stage, MOST)
    more = {"text2": _or_none(_text), "rationale": _or_none(_text)}
    demo = Demo(**_members(saved, where, needed, more))
    if demo.words:
        _whole(len(demo.words))(demo.shown, f"{where}: shown")
        _whole(1)(demo.true, f"{where}: true")
    _check_words(demo.words, where, stage)
    return demo


def _query(saved: object, where: str, stage: Stage) -> Query:
    """A query, with its number in the set if it is one of it."""
    needed: dict[str, Check] = {"text": _text, "answer": _whole(len(stage.task.labels) or 1)}
    needed |= _words(stage, 2)
    more = {"text2": _or_none(_text), "rationale": _or_none(_text)} | (
        {"also": _list(_text, LARGEST)} if needed.get("words") else {}
    )
    query = Query(**_members(saved, where, needed, more))
    _check_words(query.words, where, stage)
    return numbered(query, stage)


def numbered(query: Query, stage: Stage) -> Query:
    """The query with its number in the set; with none if it is not one of it."""
    bare = replace(query, number=None)
    return next((own for own in stage.queries if replace(own, number=None) == bare), bare)


def _check_words(words: tuple[str, ...], where: str, stage: Stage) -> None:
    if stage.task.is_open and (not words or len({*words}) < len(words)):
        raise _fault(f"{where}: words", [*words], "answers that differ")


def _change(saved: object, where: str) -> list[dict[str, Any]]:
    """The actions that make a change; they check its values."""

    def any_value(value: object, place: str) -> object:
        return value

    def pair(value: object, place: str) -> Sequence[object]:
        if not isinstance(value, Sequence) or len(value) != 2:
            raise _fault(place, value, "a pair of numbers")
        return value

    more: dict[str, Check] = dict.fromkeys(("demo", "token", "factor"), any_value)
    more |= {"layers": pair, "heads": _list(pair, LARGEST)}
    own = _members(saved, where, {"what": _text}, more)
    if own["what"] == "heads":
        if not own.get("heads"):
            raise RunError(f"{where} has no 'heads'.")
        return [{"do": "head", "layer": layer, "head": head} for layer, head in own["heads"]]
    first, last = own.pop("layers", (0, 0))
    return [{"do": "range", **own, "from": first, "to": last}]
