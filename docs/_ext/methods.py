"""A page for each method, generated from the code: `docs/methods.yaml` lists the functions.

A page says what the method establishes and what not (from `which.md`), its input, cost and
errors, and which reference code it is compared with; its figure, the function, the measurement and the result
with their formulas follow. Costs and figures are measured by `python -m tests.benchmarks.cards`.
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from notebooks import write

INTRODUCTION = """# Measurements

Each method consists of a function that runs it alone (`flow_scores`), a measurement with the same options
(`Flow`), and a result (`FlowScores`). [`measure`](#icl_mech.measure) and
[`analyze`](#icl_mech.analyze) take several measurements and share passes between them. Every function also takes
`interventions`, `batch_size`, `memory` and `path`. The attributes of all measurements (`check`, `passes`, `result`)
are described at [`Measurement`](#icl_mech.measurements.Measurement), those of all results (`interval`, `sel`,
`to_pandas`, `plot`, `save`, `a - b`) at [`Result`](#icl_mech.results.Result).
[Which measurement answers my question?](../../which.md) is an index by question;
[a table](answers.md) shows which methods support free-form answers and texts.
"""


COST = """
*Cost* is the number of token rows that go through a block, divided by that of one forward pass over the same
prompts; likewise for backward passes. We count it with the defaults on 12 prompts of `headlines`, with two
demonstrations per class for pairs and one otherwise, in a model of 30 layers with 9 heads; `measure` runs passes that
several measurements need only once.
"""


def classes_of(annotation: Any) -> list[type]:
    """The classes of a type; those of a union in its order."""
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return [own for part in get_args(annotation) for own in classes_of(part)]
    return [annotation] if isinstance(annotation, type) else []


def measurement_of(door: Any) -> type | None:
    """The public measurement that a function runs, if any."""
    from icl_mech import measurements

    results = classes_of(inspect.signature(door).return_annotation)
    known = [
        kind
        for name in measurements.__all__
        if hasattr(kind := getattr(measurements, name), "result")
    ]
    alike = [
        kind
        for kind in known
        if set(results) & set(classes_of(inspect.signature(kind.result).return_annotation))
    ]
    # The nearest first: in its own file, then in its family.
    return next(
        (
            kind
            for near in (door.__module__, door.__module__.rpartition(".")[0])
            for kind in alike
            if kind.__module__.startswith(near)
        ),
        None,
    )


def question_of(door: str, which: str) -> tuple[str, str, str] | None:
    """Question, what is established and what is not, from the table of questions."""
    for line in which.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 4 and f"(#icl_mech.{door})" in cells[1]:
            question, _, yes, no = cells
            return question.strip("| "), yes, no.strip("| ")
    return None


def section(doc: str, name: str) -> str:
    """A section of a docstring as one line of Markdown."""
    found = re.search(rf"^{name}:[ \n]+(.*?)(?=\n\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    if not found:
        return ""
    lines = re.split(r"\n\s*(?=\w+: )", found[1])
    return "; ".join(" ".join(line.split()).rstrip(".") for line in lines)


def taken(kind: type, paired: bool) -> str:
    """The kinds of input that a measurement supports."""
    takes = getattr(kind, "takes", ("classes",))
    words = {
        "classes": "label words",
        "choices": "free-form answers",
        "vocabulary": "[texts](#icl_mech.texts)",
    }
    answers = ", ".join(words[own] for own in words if own in takes)
    return f"the pair (true, false) of `build_prompt_pairs`: {answers}" if paired else answers


ANSWERS = """# Measurements and kinds of answers

The kinds of answers that each measurement supports, generated from the code; a test runs every cell. In a text,
spans take the place of demonstrations, the last token of each span is its anchor, and the next token is the
answer; the same holds for text written by a model and turned into a prompt with `texts`. For anchors and answers,
see [Anchors and answers](../../answers.md).
"""

COLUMNS = {
    "classes": "classes",
    "free-form answers": "choices",
    "texts": "vocabulary",
    "model-written text": "vocabulary",
}
"""Kinds of answers by column."""


def matrix() -> str:
    """Measurements by kind of answer, with reasons for unsupported kinds, and counts."""
    from icl_mech import measurements

    kinds = [
        kind
        for name in sorted(measurements.__all__)
        if hasattr(kind := getattr(measurements, name), "takes") and not inspect.isabstract(kind)
    ]
    counts = {head: sum(own in kind.takes for kind in kinds) for head, own in COLUMNS.items()}
    lines = [
        f"| measurement | {' | '.join(COLUMNS)} | why not |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for kind in kinds:
        cells = ["yes" if own in kind.takes else "no" for own in COLUMNS.values()]
        name = f"[`{kind.__name__}`](#icl_mech.measurements.{kind.__name__})"
        lines.append(f"| {name} | {' | '.join(cells)} | {kind.why_not} |")
    total = " | ".join(f"{count} of {len(kinds)}" for count in counts.values())
    return "\n".join([ANSWERS, *lines, f"| **supported by** | {total} | |", ""])


def held_against(names: set[str], tests: Path) -> list[str]:
    """Paths of tests that compare the method with numbers of the reference code."""
    return [
        path.relative_to(tests.parent).as_posix()
        for path in sorted(tests.rglob("test_*golden*.py"))
        if any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for name in names)
    ]


def cost(door: str, cards: dict[str, Any]) -> str:
    """The counted passes."""
    own = cards.get(door)
    if own is None:
        return ""
    forward, backward = own["forward"], own["backward"]
    back = f", {backward:.2g} backward" if backward else ""
    return f"{forward:.2g} forward passes{back}"


def variants(kind: type) -> Iterator[str]:
    """The fields of a measurement with their defaults, one by one."""
    for own in fields(kind):  # type: ignore[arg-type]
        default = own.default_factory() if callable(own.default_factory) else own.default
        if is_dataclass(default) or "MISSING" in repr(default):
            continue
        yield f"`{own.name}={default!r}`"


def page(entry: dict[str, Any], docs: Path, cards: dict[str, Any]) -> str:
    """The page of one method."""
    import icl_mech as icl
    from icl_mech.measurements.base import PairMeasurement

    name = entry["doors"][0]
    door = getattr(icl, name)
    named = entry.get("measurements", ())
    kind = getattr(icl.measurements, named[0]) if named else measurement_of(door)
    results = classes_of(inspect.signature(door).return_annotation)
    asked = question_of(name, (docs / "which.md").read_text(encoding="utf-8"))
    rows = (
        [("question", asked[0]), ("establishes", asked[1]), ("does **not** establish", asked[2])]
        if asked
        else []
    )
    known = {name, *([kind.__name__] if kind else [])}
    if kind is not None:
        text = inspect.cleandoc(kind.__doc__ or "")
        rows.append(("takes", taken(kind, issubclass(kind, PairMeasurement))))
        rows.append(("variants and defaults", ", ".join(variants(kind))))
        rows.append(("refuses", section(text, "Raises")))
        rows.append(("source", section(text, "Source")))
    rows.append(("cost", cost(name, cards)))
    golden = held_against(known, docs.parent / "tests")
    rows.append(("compared with reference code in", ", ".join(f"`{path}`" for path in golden)))
    table = "\n".join(f"| {head} | {text} |" for head, text in rows if text)
    lines = [
        f"# {entry['title']}",
        "",
        "::::{container} prose-table",
        "|  |  |",
        "|---|---|",
        table,
        "::::",
        "",
    ]
    if (docs / "figures" / "methods" / f"{name}.json").is_file():
        said = f"{entry['title']} of a planted model (a synthetic network with a known circuit)."
        lines += [f":::{{figure-from}} methods/{name}.json", said, ":::", ""]
    api = [f"about {door.__module__}", *(f"icl_mech.{own}" for own in entry["doors"])]
    kinds = [measurement_of(getattr(icl, own)) for own in entry["doors"]]
    kinds += [getattr(icl.measurements, own) for own in entry.get("measurements", ())]
    api += [
        f"icl_mech.measurements.{own.__name__}" for own in dict.fromkeys(kinds) if own is not None
    ]
    shown = [own for own in results if own.__module__.startswith("icl_mech.") and own is not kind]
    also = entry.get("also", [])
    api += [path for own in shown if not any(each.endswith(f".{own.__name__}") for each in also)
            for path in [f"{own.__module__}.{own.__qualname__}"]]  # fmt: skip
    return "\n".join([*lines, "```{api}", *api, *also, "```", ""])


def pages(docs: Path) -> dict[str, str]:
    """All pages and their index, by name.

    Raises:
        ExtensionError: a public function has no page.
    """
    import icl_mech as icl

    families = yaml.safe_load((docs / "methods.yaml").read_text(encoding="utf-8"))
    kept = docs / "cards.json"
    cards = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    entries = [entry for family in families.values() for entry in family]
    named = {door for entry in entries for door in entry["doors"]}
    missing = {
        name
        for name in icl.__all__
        if getattr(icl, name).__module__.startswith("icl_mech.measurements.")
    } - named
    if missing:
        raise ExtensionError(f"docs/methods.yaml has no page for {', '.join(sorted(missing))}.")
    found = {entry["doors"][0]: page(entry, docs, cards) for entry in entries}
    lists = [INTRODUCTION, *([COST] if cards else [])]
    for family, own in families.items():
        lists += [f"## {family}", "", *_table(own, cards), ""]
    lists.append("```{toctree}\n:hidden:\n" + "\n".join([*found, "answers"]) + "\n```\n")
    return {**found, "answers": matrix(), "index": "\n".join(lists)}


def _table(entries: list[dict[str, Any]], cards: dict[str, Any]) -> Iterator[str]:
    """Methods of a family, with their cost if it was counted."""
    yield "| method | function |" + (" cost |" if cards else "")
    yield "|---|---|" + ("---|" if cards else "")
    for entry in entries:
        name = entry["doors"][0]
        row = f"| [{entry['title']}]({name}.md) | `{name}` |"
        yield f"{row} {cost(name, cards)} |" if cards else row


def bring(app: Sphinx, config: Any) -> None:
    """Write `docs/reference/methods`, before Sphinx looks for pages."""
    docs = Path(app.srcdir)
    target = docs / "reference" / "methods"
    target.mkdir(exist_ok=True)
    found = pages(docs)
    for old in target.glob("*.md"):
        if old.stem not in found:
            old.unlink()
    for name, text in found.items():
        write(target / f"{name}.md", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages once the settings are known."""
    app.connect("config-inited", bring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
