"""Figures of the gallery and of guides that appear on no method's page and in no notebook.

Each is made with the calls shown in its guide; `python docs/make_figures.py --gallery` writes them to
`docs/figures`. All other figures of `docs/gallery.yaml` are already stored.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

import icl_mech as icl
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.generation.generate import GenerateResult
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.measurements.heads.task_claims import TaskHeadsResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCutsResult
from icl_mech.measurements.lens.compare_lenses import CompareLensesResult
from icl_mech.measurements.lens.lens_table import LensTableResult
from icl_mech.measurements.lens.logit_lens import LogitLensResult


def edge_cuts() -> Any:
    """For guides/cuts.md, where demonstrations are read together."""
    model = icl.planted_model(circuit="lessons")
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=48, demonstrations="per_prompt"
    )
    return icl.edge_cuts(model, prompts)


def top_words() -> Any:
    """For guides/open_answers.md."""
    model = icl.load_model()
    prompts = icl.build_prompts("past_tense", model, shots=5, n=4, demonstrations="per_prompt")
    return icl.logit_lens(model, prompts)


def reads() -> Any:
    """For guides/generation.md."""
    model = icl.load_model()
    prompts = icl.build_prompts("headlines", model, shots=1, n=12)
    return icl.generate(model, prompts, max_new_tokens=16, stop="\n\n")


def many_shots() -> Any:
    """For guides/many_shots.md."""
    model = icl.load_model()
    prompts = icl.build_prompts(
        "reviews", model, shots=8, n=12, seed=0, demonstrations="per_prompt"
    )
    return icl.flow_by_demonstration(model, prompts)


def lenses() -> Any:
    """Of guides/lenses.md."""
    model, task = icl.load_model(), icl.load_task("headlines")
    training = icl.build_prompts(
        task, model, shots=1, n=40, split="train", demonstrations="per_prompt"
    )
    lens = icl.fit_tuned_lens(model, training, positions=4)
    true, _ = icl.build_prompt_pairs(task, model, shots=1, n=24, demonstrations="per_prompt")
    return icl.compare_lenses(model, true, lens)


def lens_table() -> Any:
    """Of guides/lenses.md."""
    model = icl.load_model()
    return icl.lens_table(model, icl.build_prompts("headlines", model, shots=1, n=6))


def all_heads() -> Any:
    """For guides/causal_heads.md."""
    model = icl.load_model()
    return icl.head_attention(model, icl.build_prompts("reviews", model, shots=1, n=12))


def task_heads() -> Any:
    """Of guides/task_heads.md."""
    model = icl.planted_model(circuit="task")
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=48, demonstrations="per_prompt"
    )
    return icl.task_heads(model, prompts)


MEASURED: Mapping[str, tuple[Callable[[], Any], type[Any], tuple[str, ...]]] = {
    "edge_cuts": (edge_cuts, EdgeCutsResult, ()),
    "top_words": (top_words, LogitLensResult, ("words",)),
    "generation": (reads, GenerateResult, ()),
    "many_shots": (many_shots, FlowByDemonstrationResult, ()),
    "lenses": (lenses, CompareLensesResult, ()),
    "lens_table": (lens_table, LensTableResult, ()),
    "all_heads": (all_heads, HeadAttentionResult, ()),
    "task_heads": (task_heads, TaskHeadsResult, ("map",)),
}
"""Name of the file: the function that measures, and the figures drawn from its result."""


def write(runs: Path, figures: Path) -> None:
    """Measure the runs that the folder does not contain yet, and write every figure."""
    for name, (measured, kind, shown) in MEASURED.items():
        own = runs / name
        if not (own / "result.json").is_file():
            measured().save(own)
        figure = go.Figure(kind.load(own).plot(*shown))
        (figures / f"{name}.json").write_text(figure.to_json(), encoding="utf-8")
