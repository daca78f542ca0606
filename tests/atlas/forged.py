"""Saved runs of a planted model, and runs that somebody changed and gave new checksums."""

import json
import shutil
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech.measurements import EarlyExit, Flow, LayerAccuracy, Predict
from icl_mech.results.files import digest
from tests.saved import reseal, with_tensors


def single(model: Any, seed: int = 0) -> icl.Analysis:
    """Predictions and flow."""
    prompts = icl.build_prompts(
        icl.planted_task(), model, n=12, seed=seed, demonstrations="per_prompt"
    )
    return icl.analyze(model, prompts, maps=0, nulls=0, progress=False)


def pair(model: Any, seed: int = 0) -> icl.Analysis:
    """Accuracy by layer and the exit, as the overthinking study has them."""
    prompts = icl.build_prompt_pairs(
        icl.planted_task(), model, n=12, seed=seed, demonstrations="per_prompt"
    )
    found = icl.measure(model, prompts, LayerAccuracy(), EarlyExit(), progress=False)
    return icl.Analysis(
        found.results,
        found.title,
        found.notes,
        found.prompts,
        {**found.made, "study": "overthinking"},
    )


def again(model: Any, prompts: Any) -> icl.Analysis:
    """What `single` measures, of given prompts."""
    return icl.measure(model, prompts, Predict(), Flow(), progress=False)


def copied(folder: Path, to: Path) -> Path:
    """The run under another name."""
    return Path(shutil.copytree(folder, to))


def relisted(folder: Path, **changes: Any) -> Path:
    """The index with the checksums that the files now have."""
    index = folder / "analysis.json"
    listed = json.loads(index.read_text())["files"]
    files = {path: digest((folder / path).read_bytes()) for path in listed}
    reseal(index, files=files, **changes)
    return folder


def with_values(folder: Path, part: str, change: Any) -> Path:
    """The run after `change(tensors)` of one result, with new checksums throughout."""
    with_tensors(folder / part, change)
    return relisted(folder)


def with_origin(folder: Path, change: Any, parts: tuple[str, ...] = ()) -> Path:
    """The run after `change(provenance)` of all its results, or of these."""
    for file in folder.glob("*/result.json"):
        if not parts or file.parent.name in parts:
            values = json.loads(file.read_text())["values"]
            change(values["provenance"])
            reseal(file, values=values)
    return relisted(folder)
