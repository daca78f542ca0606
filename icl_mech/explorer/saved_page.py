"""`saved_page`: kept states as one HTML file, whose interactions are answered from stored messages, without a model."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from icl_mech.errors import IclMechError
from icl_mech.explorer import heads
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.board import StoppedError, answered
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.history import History
from icl_mech.explorer.sharing import Shared
from icl_mech.explorer.telling import described
from icl_mech.explorer.theme import css, module

SMALL = 2_000_000
"""Number of bytes below which a page stays if coarser maps can keep it there."""

STEPS = (1, 5, 17, 51)
"""Steps to which the codes of maps (0 to 255) are rounded, the finest first."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="icl-mech-state" content="{state}"><title>{title}</title>
<style>{css}</style></head>
<body><main id="explore"></main>
<script type="application/octet-stream" id="saved">{data}</script>
<script type="module">{script}</script>
</body></html>
"""

_CSS = "body { margin: 0 }\n"

_MOUNT = """
const saved = document.getElementById("saved");
mount(document.getElementById("explore"), replayTransport(saved.textContent, %s));
"""


def saved_page(
    asker: Asker,
    history: History,
    *,
    look: Mapping[str, Any],
    lines: tuple[str, str],
    written: Callable[[History], dict[str, str]],
    stop: Callable[[], bool],
) -> str:
    """The present state, the start and the kept states as one HTML page.

    Args:
        asker: Measures what the page shows.
        history: The history to save.
        look: What is on show.
        lines: Python lines that make the model and the task.
        written: Returns scripts of a state by name: `code`, `every` and `finding`.
        stop: Asked before each part that is measured whether to stop; what was measured is cached.

    Raises:
        StoppedError: a stop was requested.
    """
    stage = asker.stage
    stored = _Stored(asker, history, look, written, stop)
    rows = [history.past[-1], history.past[0], *(own for _, own in history.named)]
    # First of all: what is measured for the page could displace them in the cache.
    attention = [stored.attention(row) for row in rows]
    states = [
        {**stored.state(row), "attention": heads}
        for row, heads in zip(rows, attention, strict=True)
    ]
    for own, row in zip(states, rows, strict=True):
        own["beside"] = [stored.beside(other, row) for other in rows[1:]]
    content = {"reference": history.reference, "states": states}
    title = f"{stage.task.name}, {stage.info.name}"
    script = module() + _MOUNT % json.dumps(_live(*lines))
    sheet = _CSS + css()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(sheet)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    state = Shared.of(history, look).to_text(stage)
    shown = {"policy": policy, "state": state, "title": escape(title)}
    for step in STEPS:
        data = stored.packed(content, step)
        page = _PAGE.format(css=sheet, script=script, data=data, **shown)
        if len(page.encode()) < SMALL:
            break
    return page


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _live(model: str, task: str) -> str:
    """The command that opens the page's state with the model; `FILE` stands for the page."""
    names = [re.fullmatch(r'.*\.load_\w+\("([\w./-]+)"\)', line) for line in (model, task)]
    if all(names):
        return "icl-mech explore --model {} --task {} --state FILE".format(
            *(name[1] for name in names if name)
        )
    return f'icl.explore(model, {task.partition(" = ")[0]}, state="FILE")'


@dataclass
class _Stored:
    """Messages of several states; what they share is stored once.

    Attributes:
        asker: Measures them.
        history: The history to save.
        look: What is on show.
        written: Returns the scripts of a state.
        stop: Asked before each part whether to stop.
        pool: The parts.
        places: Number of each part in the pool, by its name and experiment.
        maps: The codes of all maps, one after the other.
    """

    asker: Asker
    history: History
    look: Mapping[str, Any]
    written: Callable[[History], dict[str, str]]
    stop: Callable[[], bool]
    pool: list[dict[str, Any]] = field(default_factory=list)
    places: dict[tuple[str, Experiment], int] = field(default_factory=dict)
    maps: list[bytes] = field(default_factory=list)

    def state(self, row: Experiment) -> dict[str, Any]:
        """The messages of one state."""
        asker, history = self.asker, self.at(row)
        now, task = history.now, asker.stage.task
        asked = {
            **{what: (what, now) for what in ("now", "flow")},
            **{f"heads {mode}": (f"heads {mode}", on) for mode, on in self.modes(now)},
            "rows": (f"rows {asker.prompts(now)[0].target}", now),
        }
        if not asker.stage.of_texts:
            asked |= {"board": ("board", now), "prior": ("prior", now)}
            asked["pair"] = "pair", now.relabelled(0, len(task.labels))
        if task.labels:
            asked["cal"] = "cal", now
        if heads.zeroed(now):
            asked["null"] = "null", now
        parts = {name: self.part(*part) for name, part in asked.items()}
        return {
            "state": described(asker, history),
            "parts": _there(parts),
            "shared": Shared.of(history, self.look).message(asker.stage),
            **self.written(history),
        }

    def attention(self, row: Experiment) -> dict[str, int]:
        """Attention of the heads that were shown in a state."""
        now, info = self.at(row).now, self.asker.stage.info
        names = [
            f"attention {layer} {head}"
            for layer in range(info.n_layers)
            for head in range(info.n_heads)
        ]
        shown = [name for name in names if self.asker.has(name, now)]
        return _there({name: self.part(name, now) for name in shown})

    def modes(self, now: Experiment) -> list[tuple[str, Experiment]]:
        """The measured modes of the map of heads; prefix matching concerns the model alone."""
        modes = ("matching",) if self.asker.stage.of_texts else heads.MEASURED
        return [(m, self.history.past[0] if m == "matching" else now) for m in modes]

    def at(self, row: Experiment) -> History:
        """The history with a state as the present one."""
        return replace(self.history, past=[self.history.past[0], row], future=[], turned={})

    def beside(self, own: Experiment, row: Experiment) -> dict[str, int]:
        """Parts of an experiment that a state is compared with: its answer, and what is stored of it anyway."""
        experiment = self.at(row).beside(own)
        shown = ("now",) if self.asker.stage.of_texts else ("now", "board")
        answer = _there({what: self.part(what, experiment) for what in shown})
        rest = {what: self.places.get((what, experiment)) for what in ("flow", "cal")}
        return {**answer, **_there(rest)}

    def part(self, what: str, experiment: Experiment) -> int | None:
        """The number of a part in the pool; None if it cannot be measured."""
        asked = self.asker.stage.queries[0] if what == "board" else experiment.query
        key = (
            what,
            replace(experiment, query=asked),
        )  # the board is the same, whichever query is shown
        if key not in self.places:
            if self.stop():
                raise StoppedError
            try:
                figures = self.figures(what, experiment)
            except (
                IclMechError
            ):  # a demonstration has the text of the query: the page shows no numbers
                return None
            if "maps" in figures:
                codes = base64.b64decode(figures["maps"])
                figures["maps"] = [sum(map(len, self.maps)), len(codes)]
                self.maps.append(codes)
            self.places[key] = len(self.pool)
            self.pool.append(figures)
        return self.places[key]

    def figures(self, what: str, experiment: Experiment) -> dict[str, Any]:
        """A part, or the answers to all queries."""
        if what != "board":
            return dict(self.asker.ask(what, experiment))
        lenses = self.asker.board.lenses(experiment, stop=self.stop)
        queries = self.asker.stage.queries
        return {"rows": [answered(lenses[q], query.answer) for q, query in enumerate(queries)]}

    def packed(self, content: dict[str, Any], step: int) -> str:
        """JSON, a zero, and the maps, compressed, in Base64."""
        text = json.dumps({**content, "pool": self.pool})
        rounded = bytes(min(255, (code + step // 2) // step * step) for code in range(256))
        packer = zlib.compressobj(9, wbits=-15)
        packed = packer.compress(text.encode() + b"\0")
        packed += b"".join(packer.compress(codes.translate(rounded)) for codes in self.maps)
        return base64.b64encode(packed + packer.flush()).decode()


def _there(parts: dict[str, int | None]) -> dict[str, int]:
    return {name: place for name, place in parts.items() if place is not None}
