"""`Session`: takes actions and sends figures; one worker measures the newest state for all pages.

Messages are plain values (`docs/explorer.md` has the table). A transport is a function that takes them: a comm, a
websocket, a list in a test. Every action starts a new *generation*: its state is sent at once, parts follow, what is
on show first, and parts of an older generation are never sent. `look` tells what is on show; it starts none.
"""

import atexit
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from icl_mech.errors import IclMechError, RunError
from icl_mech.explorer import heads
from icl_mech.explorer.actions import ACTIONS, act
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.board import Lenses, StoppedError, answered
from icl_mech.explorer.changes import extents
from icl_mech.explorer.code import code, finding
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.history import History
from icl_mech.explorer.over_all import OverAll, over_all
from icl_mech.explorer.pace import pace
from icl_mech.explorer.saved_page import saved_page
from icl_mech.explorer.sharing import Shared
from icl_mech.explorer.telling import described

VERSION = 1
"""Version of the protocol."""

LONGEST = 100_000
"""Maximum number of characters of a message from the page."""

SETS = 32
"""Maximum number of cached results over all queries."""

Message = dict[str, Any]
Send = Callable[[Message], None]
Part = tuple[str, str, Experiment]
"""Its name on the page, the requested part, and the experiment."""


class Session:
    """One history, its figures, and the pages that show them."""

    def __init__(
        self,
        asker: Asker,
        history: History,
        *,
        lines: tuple[str, str],
        threads: int | None = None,
        saved: Callable[[History], None] = lambda history: None,
    ) -> None:
        """Start the worker.

        Args:
            asker: Answers about experiments.
            history: The history to start from.
            lines: Python lines that make the model and the task.
            threads: Number of torch threads while the worker runs; None: as many as the process has.
            saved: Called with the history after every action.
        """
        self.asker, self.history, self.lines = asker, history, lines
        self.threads, self.saved = threads, saved
        self.generation, self.note = 0, ""
        self.look: Mapping[str, Any] = {}
        self.attended: tuple[int, int] | None = None
        self.wanted: tuple[Experiment, Experiment] | None = None
        self.sets: OrderedDict[tuple[object, ...], OverAll] = OrderedDict()
        self.errands: list[Callable[[Callable[[], bool]], None]] = []
        self.widget: Any = None
        self._listeners: list[Send] = []
        self._change = threading.Condition(threading.RLock())
        self._open, self._asked, self._seen, self._greeted = True, 0, 0, 0
        self._told: tuple[int, set[Part]] = 0, set()
        self._dragged: tuple[object, int] | None = None
        asker.pinned.add(history.start)
        self._thread = threading.Thread(target=self._work, name="icl-mech explore", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch when Python exits crashes the process

    # --- listeners ---

    def join(self, send: Send) -> None:
        """Send it every message from now on; it gets the state when it sends `hello`."""
        with self._change:
            self._listeners.append(send)

    def leave(self, send: Send) -> None:
        """Send it no more messages."""
        with self._change:
            self._listeners = [listener for listener in self._listeners if listener is not send]

    def close(self) -> None:
        """Stop the worker."""
        with self._change:
            self._open = False
            self._change.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.close)

    def _tell(self, message: Message, only: Send | None = None) -> None:
        for send in [only] if only is not None else list(self._listeners):
            with suppress(Exception):  # a closed page must not keep others waiting
                send(message)

    # --- actions ---

    def do(self, message: object, send: Send | None = None) -> None:
        """Perform an action; an impossible one changes nothing, and is reported to the page.

        Args:
            message: An action.
            send: The page that sent it; None: there is no page to report to, so errors are raised.

        Raises:
            IclMechError: the action is impossible, and `send` is None.
        """
        with self._change:
            try:
                self._do(message, send)
            except IclMechError as error:
                if send is None:
                    raise
                self._tell({"kind": "error", "gen": self.generation, "text": str(error)}, send)

    def _do(self, message: object, send: Send | None) -> None:
        if not isinstance(message, Mapping) or not isinstance(message.get("do"), str):
            raise RunError("A message must be an object with do: the name of an action.")
        do, history = message["do"], self.history
        look = message.get("look")
        # A page that joins or reconnects does not change what others show; it says later what it shows.
        if isinstance(look, Mapping) and not (do == "hello" and self.look):
            self.look = look
        if do == "look":
            self._wake()
            return
        if do in _ANSWERED:
            self._tell(_ANSWERED[do](self, message), send)
            return
        if do == "hello" and message.get("version", VERSION) != VERSION:
            raise RunError(
                f"This page uses protocol version {message.get('version')}, but the server uses version "
                f"{VERSION}; reload the page."
            )
        before, note = (history.compared, history.now), ""
        if do in ACTIONS:
            experiment, note = act(history.now, self._placed(message), self.asker.stage)
            self._check(history.scored(experiment, experiment))
            self._push(experiment, message)
        elif do in _OF_HISTORY:
            self._turn(_OF_HISTORY[do], message)
        elif do in ("over_all", "stop"):
            self.wanted = self._pair() if do == "over_all" else None
        elif do == "save_page":
            self.errands.append(partial(self._save_page, send))
        elif do == "attend":
            self.attended = None if message.get("layer") is None else self._head(message)
            if self.attended and self.look.get("mode") == "roles":
                self.look = {**self.look, "mode": "into"}
        elif do != "hello":
            raise RunError(f"There is no action {do!r}.")
        if do not in ACTIONS:
            self._dragged = None
        if do not in ("attend", "hello") and self.look.get("mode") == "roles":
            self.attended = None
        if (history.compared, history.now) != before:
            self.note, self.wanted = note, None
        self.generation += 1
        self._tell(self.state(message.get("seq", 0)))
        if do == "open":
            self._tell({"kind": "look", "look": dict(self.look)}, send)
        self._wake()
        self.saved(history)

    def _push(self, experiment: Experiment, message: Mapping[str, Any]) -> None:
        """Make it the next step; all positions of a bar that is being dragged are one step."""
        history, bar = self.history, (message.get("change"), len(self.history.past))
        over = message.get("over") is True and self._dragged == bar
        history.push(experiment, over=over)
        moved = len(history.past) > bar[1] - over
        dragging = message["do"] == "stretch" and moved
        self._dragged = (bar[0], len(history.past)) if dragging else None

    def _wake(self) -> None:
        self._asked += 1
        self._change.notify_all()

    def _turn(
        self, to: Callable[["Session", Mapping[str, Any]], None], message: Mapping[str, Any]
    ) -> None:
        """Undo, redo, keep and the like; restore the history if the new state has no valid prompt."""
        history = self.history
        was = [*history.past], [*history.future], [*history.named], history.reference
        turned = dict(history.turned)
        try:
            to(self, message)
            self._check(history.now)
        except IclMechError:
            history.past, history.future, history.named, history.reference = was
            history.turned = turned
            raise

    def _pair(self) -> tuple[Experiment, Experiment]:
        """The two experiments to compare over all queries.

        Raises:
            RunError: there is only one query, which gives no interval; or texts have no right answers.
        """
        self.asker.stage.check_answers()
        if len(self.asker.stage.queries) < 2:
            raise RunError(
                "There is only one query, which gives no interval; open the explorer with more (n=24)."
            )
        return self.history.compared, self.history.now

    def _placed(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The message with its token named by demonstration and offset, as in a change, not by position."""
        token = message.get("token")
        if "demo" in message or not isinstance(token, int) or isinstance(token, bool):
            return message
        *demos, query = extents(self.asker.prompts(self.history.now)[0])
        for number, tokens in enumerate([*demos, query]):
            if token in tokens:
                demo = number if number < len(demos) else None
                return {**message, "demo": demo, "token": tokens.index(token)}
        raise RunError(
            f"Token {token} belongs to neither a demonstration nor the query; choose one that does."
        )

    def _check(self, experiment: Experiment) -> None:
        """Reject an experiment that has no prompt, before anything changes."""
        prompt = self.asker.prompts(experiment)[0]
        for change in experiment.changes:
            if change.token is not None:
                change.position(prompt)
            if change.what == "position" and change.token == 0:
                raise RunError(
                    "The first token has none before it to be isolated from; choose a later one."
                )
            if change.what == "span" and (change.demo or 0) >= len(prompt.units):
                raise RunError(
                    f"Span {(change.demo or 0) + 1} does not end before the target, so it cannot be hidden from it; "
                    f"spans 1 to {len(prompt.units)} can."
                )

    def _head(self, message: Mapping[str, Any]) -> tuple[int, int]:
        act(self.history.now, {**message, "do": "head"}, self.asker.stage)
        return message["layer"], message["head"]

    def _number(self, message: Mapping[str, Any]) -> int:
        index, count = message.get("index"), len(self.history.named)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise RunError(
                f"index={index!r} is not a kept state; there are {count}, counted from 0."
            )
        return index

    def _keep(self, message: Mapping[str, Any]) -> None:
        name = message.get("name")
        if name is not None and not (isinstance(name, str) and 0 < len(name.strip()) <= 40):
            raise RunError("The name of a kept state must have 1 to 40 characters.")
        self.history.keep(name.strip() if name else None)

    def _refer(self, message: Mapping[str, Any]) -> None:
        self.history.reference = None if message.get("index") is None else self._number(message)

    def shared(self) -> Shared:
        """The present state, its reference and what is on show."""
        attended = [*self.attended] if self.attended else None
        return Shared.of(self.history, {"attend": attended, **self.look})

    def page(self, stop: Callable[[], bool] = lambda: False) -> str:
        """The kept states as one HTML page; `stop` is asked before each part whether to stop (`StoppedError`)."""
        look, lines, written = self.look, self.lines, self._written
        return saved_page(
            self.asker, self.history, look=look, lines=lines, written=written, stop=stop
        )

    def _open_state(self, message: Mapping[str, Any]) -> None:
        shared = Shared.read(message.get("state"), self.asker.stage)
        self.history.open(shared.now, shared.reference)
        self._check(self.history.scored(self.history.against))
        head = shared.look.get("attend")
        self.look = {**self.look, **shared.look}
        self.attended = (head[0], head[1]) if head else None

    def code(self, *, every: bool = False) -> str:
        """Lines of Python that give the numbers on the screen."""
        return self._code(self.history, every=every)

    def _code(self, history: History, *, every: bool = False) -> str:
        asker, now = self.asker, history.now
        queries = asker.stage.queries if every else None
        prompts = now.prompts(asker.stage.task, asker.model, queries)
        model, task = self.lines
        return code(now, asker.stage, prompts, model=model, task=task, look=self.look, every=every)

    def finding(self, history: History | None = None) -> str:
        """Lines of Python that test the change from the reference over all queries and fresh ones."""
        asker, own = self.asker, history or self.history
        asker.stage.check_answers()
        if own.compared == own.now:
            raise RunError("There is no change to test: this state is the one it is compared with.")
        return finding(own.compared, own.now, asker.stage, asker.model, lines=self.lines)

    def _written(self, history: History) -> dict[str, str]:
        """Everything a saved page can show as code of a state."""
        scripts = {"code": partial(self._code, history), "finding": partial(self.finding, history)}
        written = {}
        for name, script in scripts.items():
            with suppress(IclMechError):
                written[name] = script()
        return written

    def state(self, seq: object = 0) -> Message:
        """The message every page draws first."""
        counts = {"gen": self.generation, "seq": seq, "note": self.note}
        return {
            "kind": "state",
            "version": VERSION,
            **counts,
            **described(self.asker, self.history),
        }

    # --- the worker ---

    def plan(self) -> list[Part]:
        """The parts to measure for the present experiment: what is on show first."""
        history, look = self.history, self.look
        now, reference, stage = history.now, history.compared, self.asker.stage
        kept = [
            (f"kept{i}", history.beside(experiment))
            for i, (_, experiment) in enumerate(history.named)
        ]
        parts = [("now", "now", now), ("ref", "now", reference)]
        if self.attended is not None:
            parts.append(("attention", "attention {} {}".format(*self.attended), now))
        parts += self._heads_on_show()
        parts.append(("flow", "flow", now))
        parts += [(name, "now", experiment) for name, experiment in kept]
        if (
            look.get("calibrated") and stage.task.labels
        ):  # no content-free query asks for an open answer
            parts += [("cal", "cal", now), ("refcal", "cal", reference)]
            parts += [(f"{name}cal", "cal", experiment) for name, experiment in kept]
        if look.get("pair", True) and not stage.of_texts:
            parts.append(("pair", "pair", now.relabelled(0, len(stage.task.labels))))
        parts.append(("refflow", "flow", reference))
        parts += self._heads_in_reserve()
        if stage.of_texts:
            return parts
        if look.get("board"):
            parts.append(("board", "board", now))
        return [*parts, ("prior", "prior", now)] if look.get("prior") else parts

    def _heads_on_show(self) -> list[Part]:
        """The value of every head in the mode of the map."""
        mode, history = self.look.get("heads"), self.history
        # Prefix matching concerns the model alone: always asked of one experiment, it is measured once.
        on = history.past[0] if mode == "matching" else history.now
        measured = mode in heads.MEASURED and not (
            self.asker.stage.of_texts and mode in heads.ROLES
        )
        return [("heads", f"heads {mode}", on)] if measured else []

    def _heads_in_reserve(self) -> list[Part]:
        """Random heads zeroed instead, and what all heads attend to once the pointer has been among them."""
        now, parts = self.history.now, []
        prompt = self.asker.prompts(now)[0]
        if heads.zeroed(now) and prompt.labels:
            parts.append(("null", "null", now))
        if self.look.get("rows"):
            token = self.look.get("token")
            within = type(token) is int and 0 <= token < len(prompt)
            parts.append(("rows", f"rows {token if within else prompt.target}", now))
        return parts

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._asked != self._seen or not self._open)
                if not self._open:
                    return
                self._seen, seen = self._asked, self.generation
                told = self._told[1] if self._told[0] == seen else set()
                self._told = seen, told
                parts = [part for part in self.plan() if part not in told]
            try:
                with pace(self.threads):
                    self.asker.check_current()
                    wanted = self.wanted
                    if self._parts(seen, parts, told) and wanted is not None:
                        self._over_all(wanted)
                    self._run_errand(seen)
            except Exception as error:
                if isinstance(error, RuntimeError) and "shutdown" in str(error):
                    return  # Python is exiting and has closed its thread pools
                # Nothing else would report it: the page would wait forever.
                logging.getLogger(__name__).exception("a part could not be measured")
                text = f"{type(error).__name__}: {error}"
                self._say(seen, {"kind": "error", "gen": seen, "text": text})
            with self._change:
                if not self._newer():
                    self._say(seen, {"kind": "busy", "part": None})

    def _newer(self) -> bool:
        """True if something else was asked for than what is being measured."""
        return self._asked != self._seen or not self._open

    def _run_errand(self, seen: int) -> None:
        """Do what takes longer than a part; a newer generation comes first, and then the rest of it."""
        while self.errands and not self._newer():
            errand = self.errands.pop(0)
            try:
                errand(lambda: seen != self.generation or not self._open)
            except StoppedError:
                self.errands.insert(0, errand)
                return

    def _save_page(self, send: Send | None, stop: Callable[[], bool]) -> None:
        self._tell({"kind": "busy", "part": "page"})
        name, text = f"{self.asker.stage.task.name}.html", self.page(stop)
        self._tell({"kind": "file", "name": name, "text": text}, send)

    def _say(self, generation: int, message: Message) -> bool:
        """Send a message unless there is a newer generation; True if sent."""
        with self._change:
            if generation != self.generation or not self._open:
                return False
            self._tell(message)
            return True

    def _parts(self, seen: int, parts: list[Part], told: set[Part]) -> bool:
        """Measure and send the parts; False as soon as something else is asked for."""
        for part in parts:
            name, what, experiment = part
            if self._newer():
                return False
            if not self.asker.has(what, experiment):
                self._say(seen, {"kind": "busy", "part": name})
            try:
                if what in ("board", "prior"):
                    self._board(seen, experiment, shown=what == "board")
                if what != "board":
                    figures = self.asker.ask(what, experiment)
                    self._say(seen, {"kind": "part", "gen": seen, "part": name, "data": figures})
            except StoppedError:
                return False
            except IclMechError as error:  # other parts may still be possible
                self._say(seen, {"kind": "error", "gen": seen, "text": str(error)})
            told.add(part)
        return not self._newer()

    def _board(self, seen: int, now: Experiment, *, shown: bool) -> None:
        """Measure all queries; if shown, send them batch by batch beside those of the reference.

        Raises:
            StoppedError: something else was asked for.
        """
        board, queries, before = self.asker.board, self.asker.stage.queries, self.history.compared
        if not shown:
            board.lenses(now, stop=self._newer)
            return
        sides, sent = {"before": board.known(before), "now": board.known(now)}, set[int]()

        def send(more: Lenses, **end: Any) -> None:
            due = [n for n in sorted(more) if n not in sent and all(n in s for s in sides.values())]
            sent.update(due)
            rows = [
                {"q": n}
                | {name: answered(side[n], queries[n].answer) for name, side in sides.items()}
                for n in due
            ]
            if rows or end:
                self._say(
                    seen, {"kind": "board", "gen": seen, "rows": rows, "of": len(queries), **end}
                )

        for experiment in (before, now):
            board.lenses(experiment, send, self._newer)
        with self._change:
            if self._newer():
                raise StoppedError
            send({}, done=True, tried=[*self._count(before, now)])

    def _count(self, before: Experiment, now: Experiment) -> tuple[int, int]:
        """Number of this change among those tried on these queries, and how many there are."""
        with self._change:
            number, tried = self.history.count(before, now, self.asker.stage.queries)
            self.saved(self.history)
        return number, tried

    def _over_all(self, wanted: tuple[Experiment, Experiment]) -> None:
        """Measure both over all queries; continues while pages connect and disconnect, until it is stopped."""
        before, now = wanted
        sides = before.demos, before.changes, now.demos, now.changes
        key = (self.asker.epoch, *sides, now.choices)

        def say(message: Message) -> None:
            with self._change:
                if self._open:
                    self._tell({**message, "gen": self.generation})

        def stop() -> bool:
            self._greet()
            return not self._open or self.wanted is not wanted

        def tell(share: float, words: str) -> None:
            say({"kind": "progress", "share": share, "words": words})

        try:
            if key not in self.sets:
                tell(0.0, "")
                self.sets[key] = over_all(self.asker, before, now, tell, stop)
            result, here = self.sets[key], self._here(before, now)
            warning = self.counted(result, before, now).counted
            data = {**result.figures(), "sentence": result.sentence(here), "warning": warning}
            with self._change:
                if self.wanted is wanted:
                    say({"kind": "set", "data": data})
        except StoppedError:
            say({"kind": "progress", "share": None, "words": ""})
        except IclMechError as error:
            say({"kind": "progress", "share": None, "words": ""})
            say({"kind": "error", "text": str(error)})
        finally:
            with self._change:
                self.wanted = None if self.wanted is wanted else self.wanted
            while len(self.sets) > SETS:
                self.sets.popitem(last=False)

    def counted(self, found: OverAll, before: Experiment, now: Experiment) -> OverAll:
        """The result with its number among the changes tried on these queries."""
        number, tried = self._count(before, now)
        return replace(found, number=number, tried=tried)

    def _greet(self) -> None:
        """Send the cached parts to a page that joined during a long measurement."""
        with self._change:
            if self.generation in (self._told[0], self._greeted):
                return
            self._greeted = seen = self.generation
        for message in self.heard()[1:]:
            self._say(seen, message)

    def heard(self) -> list[Message]:
        """The present state and what is cached of its parts, for a page that cannot ask yet."""
        with self._change:
            state, parts = self.state(), self.plan()
        part = {"kind": "part", "gen": state["gen"]}
        return [
            state,
            *(
                {**part, "part": name, "data": self.asker.ask(what, experiment)}
                for name, what, experiment in parts
                if self.asker.has(what, experiment)
            ),
        ]

    def _here(self, before: Experiment, now: Experiment) -> float:
        """The difference in the true answer's probability in the present prompt."""
        answer = now.query.answer
        earlier, later = (
            self.asker.ask("now", experiment)["probs"][answer] for experiment in (before, now)
        )
        return float(later - earlier)


def _restore(session: Session, message: Mapping[str, Any]) -> None:
    kept = session.history.named[session._number(message)][1]
    session.history.push(kept)


_ANSWERED: dict[str, Callable[[Session, Mapping[str, Any]], Message]] = {
    "code": lambda session, message: {
        "kind": "code",
        "code": session.code(every=bool(message.get("all"))),
    },
    "finding": lambda session, message: {
        "kind": "code",
        "title": "As a finding",
        "code": session.finding(),
    },
    "share": lambda session, message: session.shared().message(session.asker.stage),
}
"""Questions, which change nothing and are answered to the page that asked."""

_OF_HISTORY: dict[str, Callable[[Session, Mapping[str, Any]], None]] = {
    "undo": lambda session, message: session.history.undo(),
    "redo": lambda session, message: session.history.redo(),
    "reset": lambda session, message: session.history.push(session.history.start),
    "open": lambda session, message: session._open_state(message),
    "keep": lambda session, message: session._keep(message),
    "restore": _restore,
    "forget": lambda session, message: session.history.forget(session._number(message)),
    "reference": lambda session, message: session._refer(message),
}
