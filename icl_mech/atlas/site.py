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
"""Script that draws the figures of the runs' pages, saved once for all of them; the index does not need it."""

Row = dict[str, Any]
Effects = Mapping[str, Interval | None]


def document(entries: Sequence[Entry]) -> Row:
    """Everything the index shows, as plain values.

    `runs`; `claims`, one row for each effect of a run (`kind` is `run`) or of means over tasks and seeds (`mean`);
    `curves`; `published`, the numbers that papers report for the same effects and curves, with sources.
    """
    values: Row = jsonable(
        {
            "versions": versions(),
            "runs": [{"name": entry.name, **entry.item.dims, **entry.origin} for entry in entries],
            "claims": [*_judged(entries), *_means(entries)],
            "curves": [*_curves(entries)],
            "published": json.loads(part("published.json", __package__)),
        }
    )
    return values


# --- claims ---


def _rows(place: Row, verdict: Judged | Verdict, claim: Claim, effects: Effects) -> Iterator[Row]:
    """One row for each effect, or one row without an effect."""
    outcome = {key: getattr(verdict, key) for key in ("status", "finding", "p")}
    rows = [
        {"effect": effect.name, "null": effect.null, "rising": effect.rising, **ends._asdict()}
        for effect in claim.effects
        if (ends := effects.get(effect.name)) is not None
    ]
    for row in rows or [{}]:
        yield {**place, "claim": claim.text, **outcome, **row}


def _setting(entry: Entry) -> Row:
    kept = {dim: value for dim, value in entry.item.dims.items() if dim not in ("task", "seed")}
    source = getattr(known_studies().get(entry.item.study), "source", "") or entry.item.study
    return {**kept, "weights": entry.origin["weights"], "source": source}


def _claims(entry: Entry) -> dict[str, Claim]:
    study = known_studies().get(entry.item.study)
    return {claim.text: claim for claim in study.claims} if study else {}


def _judged(entries: Sequence[Entry]) -> Iterator[Row]:
    """Verdicts on single runs, from the current studies."""
    for entry in entries:
        place = {"kind": "run", "run": entry.name, "task": entry.item.task, **_setting(entry)}
        for verdict in entry.run.verdicts():
            claim = _claims(entry).get(verdict.claim, Claim(verdict.claim))
            effects = {effect.name: effect.interval(entry.run) for effect in claim.effects}
            yield from _rows(place, verdict, claim, effects)


def _means(entries: Sequence[Entry]) -> Iterator[Row]:
    """Claims by means over tasks and seeds, for models with several runs of one study and setting.

    They are corrected for these claims only, so that other models and settings do not affect them.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(_setting(entry)), []).append(entry)
    for group in (
        members for members in groups.values() if len(members) > 1 and _claims(members[0])
    ):
        for result in comparison(_sweep(group)).judged:
            if result.claim.text in _claims(group[0]):
                place = {"kind": "mean", "runs": len(group), **_setting(group[0])}
                yield from _rows(place, result, result.claim, result.effects)


def _sweep(entries: Sequence[Entry]) -> Sweep:
    """The runs as one sweep, each as a separate item."""
    items = {replace(entry.item, measured={"atlas": entry.name}): entry.run for entry in entries}
    return Sweep([*items], analyses={item.key: run for item, run in items.items()})


# --- curves ---


def _curves(entries: Sequence[Entry]) -> Iterator[Row]:
    """Quantities over layers, by run, with all their axes."""
    sweep = _sweep(entries)
    for name in (key for key, quantity in quantities().items() if isinstance(quantity.of, str)):
        with suppress(SweepError):
            for reading in (reading for reading in sweep.readings(name) if "layer" in reading.axes):
                ends = {end: getattr(reading, end).round(decimals=5).tolist() for end in ENDS}
                header = {
                    "quantity": name,
                    "unit": reading.unit,
                    "axes": reading.axes,
                    "labels": reading.labels,
                }
                yield {"run": reading.item.measured["atlas"], **header, **ends}


# --- writing ---


def build(atlas: str | Path, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write the site of an atlas after checking every run again.

    Args:
        atlas: The folder that `add` fills.
        out: A new or empty folder, or an earlier site.
        overwrite: The folder may hold other files; files with the site's names are replaced.

    Returns:
        The index.

    Raises:
        ResultError: no runs, a run that may not be shown, or a folder that holds other files.
    """
    from plotly.offline import get_plotlyjs

    entries, place = load_atlas(atlas), given_path(out, option="out")
    if not entries:
        raise ResultError(
            f"The atlas {str(atlas)!r} holds no runs; add some: `icl-mech atlas add RUN --atlas {atlas}`."
        )
    content, earlier = document(entries), isfile(place / PAGE)
    with Folder(place, overwrite=overwrite, beside=earlier, files=[PAGE][overwrite:]) as site:
        with Folder(place / "runs", beside=True) as runs:
            for entry in entries:
                numbers = json.dumps(jsonable(described(entry.run)))
                runs.replace(f"{entry.name}.json", numbers.encode())
                page = html(entry.run.page(), offline=f"../{LIBRARY}")
                runs.replace(f"{entry.name}.html", sealed_page(page.replace("<header>", BACK, 1)))
        site.replace(LIBRARY, get_plotlyjs().encode())
        site.replace("atlas.json", as_bytes(embedded(content)))
        site.replace(PAGE, sealed_page(index(content)))
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
    return "".join(
        piece for pair in zip(text.split("/*part*/"), parts, strict=True) for piece in pair
    )
