"""`Session`: actions in, figures out; one worker measures what is newest, whoever looks at it.

Messages are plain values (`docs/explorer.md` has the table). A transport is a function that takes them: a comm, a
websocket, a list in a test. Every action makes a new *generation*: its state is told at once, parts follow in
order of worth, and those of an older one are never sent.
"""

import atexit
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from icl_mech.errors import IclMechError, RunError
from icl_mech.explorer.actions import ACTIONS, act
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.changes import extents
from icl_mech.explorer.code import code
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.history import History
from icl_mech.explorer.over_all import OverAll, StoppedError, over_all
from icl_mech.explorer.pace import pace
from icl_mech.explorer.telling import described

VERSION = 1
"""Of the protocol."""

LONGEST = 20_000
"""Characters of a message from the page."""

SETS = 32
"""Results over all queries that are kept."""

Message = dict[str, Any]
Send = Callable[[Message], None]
Part = tuple[str, str, Experiment]
"""Its name on the page, what is asked, and of which experiment."""


class Session:
    """One history, its figures, and those who look at them."""

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
            history: Where to begin.
            lines: Python lines that make the model and the task.
            threads: Of torch while the worker runs; None: as many as the process has.
            saved: Called with the history after every action.
        """
        self.asker, self.history, self.lines = asker, history, lines
        self.threads, self.saved = threads, saved
        self.generation, self.note = 0, ""
        self.look: Mapping[str, Any] = {}
        self.attended: tuple[int, int] | None = None
        self.wanted: tuple[Experiment, Experiment] | None = None
        self.sets: OrderedDict[tuple[object, ...], OverAll] = OrderedDict()
        self.widget: Any = None
        self._listeners: list[Send] = []
        self._change = threading.Condition(threading.RLock())
        self._open, self._seen, self._greeted = True, 0, 0
        asker.pinned.add(history.start)
        self._thread = threading.Thread(target=self._work, name="icl-mech explore", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch when Python ends takes the process down

    # --- those who look ---

    def join(self, send: Send) -> None:
        """Tell it everything from now on; it hears the state when it says `hello`."""
        with self._change:
            self._listeners.append(send)

    def leave(self, send: Send) -> None:
        """Tell it nothing more."""
        with self._change:
            self._listeners = [own for own in self._listeners if own is not send]

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
            with suppress(Exception):  # a page that is gone must not keep others waiting
                send(message)

    # --- actions ---

    def do(self, message: object, send: Send | None = None) -> None:
        """Do what a page asks for; what cannot be is told to it, and changes nothing.

        Args:
            message: An action.
            send: Who asks; None: nobody who could be told, so that errors are raised.

        Raises:
            IclMechError: without `send`, an action that cannot be.
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
            raise RunError("A message is an object with do: the name of an action.")
        do, history = message["do"], self.history
        look = message.get("look")
        self.look = look if isinstance(look, Mapping) else self.look
        if do == "code":
            text = self.code(every=bool(message.get("all")))
            self._tell({"kind": "code", "code": text}, send)
            return
        if do == "hello" and message.get("version", VERSION) != VERSION:
            raise RunError(
                f"This page speaks version {message.get('version')} of the protocol, Python version "
                f"{VERSION}; reload the page."
            )
        before, note = (history.compared, history.now), ""
        if do in ACTIONS:
            found, note = act(history.now, self._placed(message), self.asker.stage)
            self._check(history.scored(found, found))
            history.push(found)
        elif do in _OF_HISTORY:
            self._turn(_OF_HISTORY[do], message)
        elif do in ("over_all", "stop"):
            self.wanted = self._pair() if do == "over_all" else None
        elif do == "attend":
            self.attended = self._head(message)
        elif do != "hello":
            raise RunError(f"There is no action {do!r}.")
        if (history.compared, history.now) != before:
            self.note, self.wanted = note, None
        self.generation += 1
        self._tell(self.state(message.get("seq", 0)))
        self._change.notify_all()
        self.saved(history)

    def _turn(
        self, to: Callable[["Session", Mapping[str, Any]], None], message: Mapping[str, Any]
    ) -> None:
        """Undo, redo, keep and the like; as before where what stands side by side cannot."""
        own = self.history
        was = [*own.past], [*own.future], [*own.named], own.reference
        try:
            to(self, message)
            self._check(own.now)
        except IclMechError:
            own.past, own.future, own.named, own.reference = was
            raise

    def _pair(self) -> tuple[Experiment, Experiment]:
        """What over all compares.

        Raises:
            RunError: one query has no interval.
        """
        if len(self.asker.stage.queries) < 2:
            raise RunError(
                "There is one query only, which has no interval; open it with more (n=24)."
            )
        return self.history.compared, self.history.now

    def _placed(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A page names a token by its position; a change by demonstration and offset, which stay."""
        token = message.get("token")
        if "demo" in message or not isinstance(token, int) or isinstance(token, bool):
            return message
        *demos, query = extents(self.asker.prompts(self.history.now)[0])
        for number, own in enumerate([*demos, query]):
            if token in own:
                demo = number if number < len(demos) else None
                return {**message, "demo": demo, "token": own.index(token)}
        raise RunError(
            f"Token {token} belongs to no demonstration and not to the query; choose one of theirs."
        )

    def _check(self, found: Experiment) -> None:
        """Refuse an experiment that has no prompt, before anything changes."""
        prompt = self.asker.prompts(found)[0]
        for own in found.changes:
            if own.what == "token":
                own.position(prompt)

    def _head(self, message: Mapping[str, Any]) -> tuple[int, int]:
        act(self.history.now, {**message, "do": "head"}, self.asker.stage)
        return message["layer"], message["head"]

    def _number(self, message: Mapping[str, Any]) -> int:
        index, count = message.get("index"), len(self.history.named)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise RunError(f"index={index!r} is no kept state; there are {count}.")
        return index

    def _keep(self, message: Mapping[str, Any]) -> None:
        name = message.get("name")
        if name is not None and not (isinstance(name, str) and 0 < len(name.strip()) <= 40):
            raise RunError("The name of a kept state has 1 to 40 characters.")
        self.history.keep(name.strip() if name else None)

    def _refer(self, message: Mapping[str, Any]) -> None:
        self.history.reference = None if message.get("index") is None else self._number(message)

    def code(self, *, every: bool = False) -> str:
        """Lines of Python that give the numbers on the screen."""
        asker, now = self.asker, self.history.now
        queries = asker.stage.queries if every else None
        prompts = now.prompts(asker.stage.task, asker.model, queries)
        model, task = self.lines
        return code(now, asker.stage, prompts, model=model, task=task, look=self.look, every=every)

    def state(self, seq: object = 0) -> Message:
        """What every page draws first."""
        counts = {"gen": self.generation, "seq": seq, "note": self.note}
        return {
            "kind": "state",
            "version": VERSION,
            **counts,
            **described(self.asker, self.history),
        }

    # --- the worker ---

    def plan(self) -> list[Part]:
        """What is measured for the present experiment, in order of worth."""
        history = self.history
        now, reference, task = history.now, history.compared, self.asker.stage.task
        true = now.relabelled(0, len(task.labels))
        kept = [
            (f"kept{i}", "now", history.beside(own)) for i, (_, own) in enumerate(history.named)
        ]
        # Without content an open answer has no probability that could be divided by.
        calibrated = [] if task.is_open else [("cal", "cal", now), ("refcal", "cal", reference)]
        found = [("now", "now", now), ("ref", "now", reference), ("pair", "pair", true)]
        found += [*calibrated, *kept]
        if self.attended is not None:
            found.append(("attention", "attention {} {}".format(*self.attended), now))
        return [*found, ("flow", "flow", now), ("refflow", "flow", reference)]

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self.generation != self._seen or not self._open)
                if not self._open:
                    return
                self._seen = seen = self.generation
                parts = self.plan()
            try:
                with pace(self.threads):
                    self.asker.check_current()
                    wanted = self.wanted
                    if self._parts(seen, parts) and wanted is not None:
                        self._over_all(wanted)
            except Exception as error:
                if isinstance(error, RuntimeError) and "shutdown" in str(error):
                    return  # Python ends, and has closed its pools of threads
                # Nothing else would say it: the page would wait forever.
                logging.getLogger(__name__).exception("a part could not be measured")
                text = f"{type(error).__name__}: {error}"
                self._say(seen, {"kind": "error", "gen": seen, "text": text})
            self._say(seen, {"kind": "busy", "part": None})

    def _say(self, generation: int, message: Message) -> bool:
        """Tell it unless there is something newer."""
        with self._change:
            if generation != self.generation or not self._open:
                return False
            self._tell(message)
            return True

    def _parts(self, seen: int, parts: list[Part]) -> bool:
        """Measure and tell them; False as soon as there is something newer."""
        for name, what, experiment in parts:
            if seen != self.generation or not self._open:
                return False
            if not self.asker.has(what, experiment):
                self._say(seen, {"kind": "busy", "part": name})
            try:
                found = self.asker.ask(what, experiment)
            except IclMechError as error:  # others may be possible
                self._say(seen, {"kind": "error", "gen": seen, "text": str(error)})
                continue
            if not self._say(seen, {"kind": "part", "gen": seen, "part": name, "data": found}):
                return False
        return True

    def _over_all(self, wanted: tuple[Experiment, Experiment]) -> None:
        """Both over all queries; goes on while pages come and go, as long as it is wanted."""
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
            found, here = self.sets[key], self._here(before, now)
            warning = self.counted(found, before, now).counted
            data = {**found.figures(), "sentence": found.sentence(here), "warning": warning}
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
        """A result with its number among the changes that were tried on these queries."""
        with self._change:
            number, tried = self.history.count(before, now, self.asker.stage.queries)
            self.saved(self.history)
        return replace(found, number=number, tried=tried)

    def _greet(self) -> None:
        """Tell a page that came while something long is measured what is known already."""
        with self._change:
            if self.generation in (self._seen, self._greeted):
                return
            self._greeted = seen = self.generation
            parts = self.plan()
        for name, what, own in parts:
            if self.asker.has(what, own):
                found = self.asker.ask(what, own)
                self._say(seen, {"kind": "part", "gen": seen, "part": name, "data": found})

    def _here(self, before: Experiment, now: Experiment) -> float:
        """The difference in the present prompt."""
        answer = now.query.answer
        one, other = (self.asker.ask("now", own)["probs"][answer] for own in (before, now))
        return float(other - one)


def _restore(session: Session, message: Mapping[str, Any]) -> None:
    kept = session.history.named[session._number(message)][1]
    session.history.push(kept)


_OF_HISTORY: dict[str, Callable[[Session, Mapping[str, Any]], None]] = {
    "undo": lambda session, message: session.history.undo(),
    "redo": lambda session, message: session.history.redo(),
    "reset": lambda session, message: session.history.push(session.history.start),
    "keep": lambda session, message: session._keep(message),
    "restore": _restore,
    "forget": lambda session, message: session.history.forget(session._number(message)),
    "reference": lambda session, message: session._refer(message),
}
