"""The site of an atlas: an index that draws everything side by side, a page for each run, and files with all numbers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

from icl_mech.atlas.store import Entry, load_atlas
from icl_mech.errors import ResultError, SweepError
from icl_mech.export_text import as_bytes
from icl_mech.metrics import Interval
from icl_mech.names import versions
from icl_mech.reports.rendering import embedded, html, part, variables
from icl_mech.results import PAGE, Folder, given_path, jsonable, sealed_page
from icl_mech.results.tables import ENDS
from icl_mech.studies.analysis import described
from icl_mech.studies.claim import Claim
from icl_mech.studies.judge import Verdict
from icl_mech.studies.study import known_studies, quantities
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.compare import comparison
from icl_mech.sweeps.verdicts import Judged

LIBRARY = "plotly.min.js"
"""What draws the figures of the runs' pages, once for all of them; the index needs none."""

Row = dict[str, Any]
Effects = Mapping[str, Interval | None]


def document(entries: Sequence[Entry]) -> Row:
    """Everything the index shows, as plain values.

    `runs`; `claims`, one row for each effect of a run (`kind` is `run`) or of means over tasks and seeds (`mean`);
    `curves`; `published`, what papers report of the same effects and curves, with its sources.
    """
    found: Row = jsonable(
        {
            "versions": versions(),
            "runs": [{"name": own.name, **own.item.dims, **own.origin} for own in entries],
            "claims": [*_judged(entries), *_means(entries)],
            "curves": [*_curves(entries)],
            "published": json.loads(part("published.json", __package__)),
        }
    )
    return found


# --- claims ---


def _rows(place: Row, verdict: Judged | Verdict, claim: Claim, found: Effects) -> Iterator[Row]:
    """One for each effect, or one without."""
    told = {key: getattr(verdict, key) for key in ("status", "finding", "p")}
    rows = [
        {"effect": own.name, "null": own.null, "rising": own.rising, **ends._asdict()}
        for own in claim.effects
        if (ends := found.get(own.name)) is not None
    ]
    for row in rows or [{}]:
        yield {**place, "claim": claim.text, **told, **row}


def _setting(entry: Entry) -> Row:
    kept = {dim: own for dim, own in entry.item.dims.items() if dim not in ("task", "seed")}
    source = getattr(known_studies().get(entry.item.study), "source", "") or entry.item.study
    return {**kept, "weights": entry.origin["weights"], "source": source}


def _claims(entry: Entry) -> dict[str, Claim]:
    study = known_studies().get(entry.item.study)
    return {own.text: own for own in study.claims} if study else {}


def _judged(entries: Sequence[Entry]) -> Iterator[Row]:
    """Verdicts of single runs, by the studies of today."""
    for entry in entries:
        place = {"kind": "run", "run": entry.name, "task": entry.item.task, **_setting(entry)}
        for own in entry.run.verdicts():
            claim = _claims(entry).get(own.claim, Claim(own.claim))
            found = {effect.name: effect.interval(entry.run) for effect in claim.effects}
            yield from _rows(place, own, claim, found)


def _means(entries: Sequence[Entry]) -> Iterator[Row]:
    """Claims by means over tasks and seeds, where a model has several runs of one study and setting.

    They stand together among these claims, so that other models and settings change nothing.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(_setting(entry)), []).append(entry)
    for group in (own for own in groups.values() if len(own) > 1 and _claims(own[0])):
        for own in comparison(_sweep(group)).judged:
            if own.claim.text in _claims(group[0]):
                place = {"kind": "mean", "runs": len(group), **_setting(group[0])}
                yield from _rows(place, own, own.claim, own.effects)


def _sweep(entries: Sequence[Entry]) -> Sweep:
    """The runs as one sweep, each an item of its own."""
    items = {replace(own.item, measured={"atlas": own.name}): own.run for own in entries}
    return Sweep([*items], analyses={item.key: run for item, run in items.items()})


# --- curves ---


def _curves(entries: Sequence[Entry]) -> Iterator[Row]:
    """Quantities over layers, by run, with all their axes."""
    sweep = _sweep(entries)
    for name in (key for key, own in quantities().items() if isinstance(own.of, str)):
        with suppress(SweepError):
            for own in (own for own in sweep.readings(name) if "layer" in own.axes):
                ends = {end: getattr(own, end).round(decimals=5).tolist() for end in ENDS}
                told = {"quantity": name, "unit": own.unit, "axes": own.axes, "labels": own.labels}
                yield {"run": own.item.measured["atlas"], **told, **ends}


# --- writing ---


def build(atlas: str | Path, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the site of an atlas, after every run was checked anew.

    Args:
        atlas: The folder that `add` fills.
        out: A new or empty folder, or an earlier site.
        overwrite: The folder may hold other files; those of the site's names are replaced.

    Returns:
        The index.

    Raises:
        ResultError: no runs, one that may not be shown, or a folder that holds other files.
    """
    from plotly.offline import get_plotlyjs

    entries, place = load_atlas(atlas), given_path(out, option="out")
    if not entries:
        raise ResultError(
            f"The atlas {str(atlas)!r} holds no runs; add some: `icl-mech atlas add RUN --atlas {atlas}`."
        )
    found, earlier = document(entries), isfile(place / PAGE)
    with Folder(place, overwrite=overwrite, beside=earlier, files=[PAGE][overwrite:]) as site:
        with Folder(place / "runs", beside=True) as runs:
            for own in entries:
                numbers = json.dumps(jsonable(described(own.run)))
                runs.replace(f"{own.name}.json", numbers.encode())
                page = html(own.run.page(), offline=f"../{LIBRARY}")
                runs.replace(f"{own.name}.html", sealed_page(page.replace("<header>", BACK, 1)))
        site.replace(LIBRARY, get_plotlyjs().encode())
        site.replace("atlas.json", as_bytes(embedded(found)))
        site.replace(PAGE, sealed_page(index(found)))
    return Path(expanduser(out)) / PAGE


BACK = f'<header>\n<p class="kicker"><a href="../{PAGE}">← All runs of the atlas</a></p>'


def index(found: Row) -> str:
    """The index: markup, style, data and script in one file."""
    light, dark = variables()
    style = part("page.css").replace("/*light*/", light).replace("/*dark*/", dark)
    text, css, script = (
        part(name, __package__) for name in ("index.html", "atlas.css", "atlas.js")
    )
    parts = (style + css, embedded(found), script, "")
    return "".join(own for pair in zip(text.split("/*part*/"), parts, strict=True) for own in pair)
