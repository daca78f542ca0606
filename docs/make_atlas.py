"""The start of an atlas: runs of the offline model on all offline tasks, and of planted models with their controls.

`python docs/make_atlas.py FOLDER --n 8` makes the runs that FOLDER/runs lacks, adds them to FOLDER/atlas, and builds
FOLDER/site. The planted models take minutes, the offline model takes half an hour or more on one core; with 8
prompts hardly any claim about it can be judged.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import icl_mech as icl
from icl_mech.atlas import Entry, add, build, load_atlas

CLASSES = ("headlines", "questions", "reviews", "unnatural")
OPEN = ("antonyms", "plurals", "past_tense", "capitals", "english_french")
PAIRS = ("overthinking", "causal")
"""Studies that compare true with false demonstrations."""


PLANTED = {
    "anchors": ("label_words",),
    "heads": ("overthinking", "causal"),
    "lessons": ("contextualise",),
}
"""Circuits, and the studies whose claims concern them."""


class Wanted(NamedTuple):
    """One run: a name for its folder, the model, the task, the study, and how its prompts are built."""

    name: str
    model: str
    task: str
    study: str
    how: dict[str, Any]


MODELS: dict[str, Callable[[], Any]] = {
    "smollm2": icl.load_model,
    "anchors": icl.planted_model,
    "anchors-control": lambda: icl.planted_model(anchors=False),
    "heads": lambda: icl.planted_model(circuit="heads"),
    "heads-control": lambda: icl.planted_model(circuit="heads", strength=0),
    "lessons": lambda: icl.planted_model(circuit="lessons"),
    "lessons-control": lambda: icl.planted_model(circuit="lessons", strength=0),
}


LABELS = {
    "smollm2": "SmolLM2-135M",
    "anchors": "planted, anchors",
    "anchors-control": "planted, anchors (control)",
    "heads": "planted, heads",
    "heads-control": "planted, heads (control)",
    "lessons": "planted, lessons",
    "lessons-control": "planted, lessons (control)",
}


def wanted(n: int) -> Iterator[Wanted]:
    """The runs, cheap ones first."""
    drawn = {"demonstrations": "per_prompt"}
    for circuit, studies in PLANTED.items():
        for model in (circuit, f"{circuit}-control"):
            for study in studies:
                yield Wanted(f"{model}-{study}", model, "planted", study, {"n": 48, **drawn})
    for labels in ("half_permuted", "random"):
        for model in ("heads", "heads-control"):
            how = {"n": 48, "false_labels": labels, **drawn}
            yield Wanted(f"{model}-{labels}", model, "planted", "overthinking", how)
    for task in (*CLASSES, *OPEN):
        yield Wanted(f"smollm2-flow-{task}", "smollm2", task, "default", {"n": n, **drawn})
    for task in reversed(CLASSES):
        for study in ("overthinking", "label_words"):
            yield Wanted(f"smollm2-{study}-{task}", "smollm2", task, study, {"n": n, **drawn})


def measured(own: Wanted, model: Any) -> icl.Analysis:
    """The study of one run."""
    planted = own.task == "planted"
    task = icl.planted_task() if planted else own.task
    build = icl.build_prompt_pairs if own.study in PAIRS else icl.build_prompts
    prompts: Any = build(task, model, **own.how)
    more: dict[str, Any] = {"heads_from": task} if planted and own.study == "overthinking" else {}
    if not planted and own.study != "label_words":
        more["nulls"] = 0  # only bands behind curves, and the most expensive part
    return icl.analyze(model, prompts, study=own.study, progress=False, **more)


def main() -> None:
    """Measure, add, build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=12)
    given = parser.parse_args()
    runs, atlas, loaded = given.folder / "runs", given.folder / "atlas", {}
    for own in wanted(given.n):
        if not (runs / own.name / "analysis.json").exists():
            start = time.monotonic()
            if own.model not in loaded:
                loaded = {own.model: MODELS[own.model]()}
            measured(own, loaded[own.model]).save(runs / own.name)
            print(f"{own.name}: {time.monotonic() - start:.0f} s", flush=True)
    there = {entry.contents for entry in load_atlas(atlas, checked=False)}
    for own in wanted(given.n):
        run = icl.Analysis.load(runs / own.name)
        if Entry(run).contents not in there:
            add([runs / own.name], atlas, label=LABELS[own.model])
    print(build(atlas, given.folder / "site"))


if __name__ == "__main__":
    main()
