"""Pages for the browser, made from planted and tiny models."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech import planted
from icl_mech.measurements import (
    EarlyExit,
    Extraction,
    Flow,
    Gain,
    Isolation,
    LayerAccuracy,
    Predict,
)
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.reports import Paged
from icl_mech.studies.analysis import Analysis
from icl_mech.sweeps import sweep
from icl_mech.sweeps.compare import Comparison
from tests.planted import planted_model, planted_task

MADE = {"date": "2026-11-22T11:00:00+00:00", "command": "icl-mech analyze --study label_words"}

RISKY = (
    "<script>window.hacked = true</script>", '"quoted" \'twice\'', "</script>", "<b>bold</b>",
    "שלום עולם", "مرحبا", "🙂👩‍🔬", "&amp;", "<!--", "\u202eright to left", "{{ 7 * 7 }}",
)  # fmt: skip
"""Texts that must be shown as they are."""


@lru_cache
def label_words() -> Analysis:
    """The label-words study of a planted model."""
    model = planted_model()
    prompts = icl.build_prompts(planted_task(), model, shots=1, n=24, demonstrations="shared")
    analysis = icl.analyze(model, prompts, study="label_words", progress=False)
    return replace(analysis, made=MADE)


@lru_cache
def overthinking() -> Analysis:
    """The overthinking study of a planted model."""
    model = planted_model()
    options: dict[str, Any] = {"shots": 2, "n": 18, "demonstrations": "per_prompt"}
    pair = icl.build_prompt_pairs(planted_task(), model, **options)
    others = icl.build_prompts(planted_task(), model, labels="permuted", **{**options, "seed": 5})
    analysis = icl.analyze(model, pair, study="overthinking", heads_from=others, progress=False)
    return replace(analysis, made=MADE)


@lru_cache
def sides() -> Comparison:
    """Two runs side by side: models that rest on label words to another degree, on two tasks."""
    both = planted.planted_task(), replace(planted.planted_task(), name="again")
    runs = {
        name: sweep(
            {name: planted.planted_model(strength=strength)}, both,
            [
                Predict(), Flow(), Isolation(), Extraction(), Gain(), LayerAccuracy(), EarlyExit(),
            ],
            shots=1, n=6, seeds=(0, 1), progress=False,
        )
        for name, strength in (("strong", 1.0), ("weak", 0.3))
    }  # fmt: skip
    return icl.compare(*runs.values(), names=list(runs))


def risky() -> Analysis:
    """The label-words study with texts in it that a page could take for markup."""
    plain = label_words()
    maps = plain.saliency_maps
    tokens = list(maps.tokens[0])
    for place, text in enumerate(RISKY):
        tokens[place] = text
    results = {
        "flow": plain.flow,
        "saliency_maps": replace(maps, tokens=(tuple(tokens), *maps.tokens[1:])),
    }
    notes = (*RISKY, "**bold** note")
    made = {"date": "today", "command": f"icl-mech analyze --task '{RISKY[0]}'"}
    return Analysis(results, f"tiny on {RISKY[0]} (24 prompts)", notes, made=made)


def large(n_layers: int = 12, n_tokens: int = 200) -> SaliencyMapsResult:
    """Saliency maps as large as those of a small language model on a long prompt."""
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(n_layers, n_tokens, n_tokens, generator=generator).pow(8).tril()
    demo = ("format", "format", *("demo_text",) * 36, "format", "format", "label_word", "format")
    roles = (demo * (n_tokens // len(demo) + 1))[: n_tokens - 1]
    tokens = tuple(f" word{i}" for i in range(n_tokens))
    return SaliencyMapsResult(values=(values,), tokens=(tokens,), roles=((*roles, "target"),))


def written(folder: Path, analysis: Paged, name: str) -> Path:
    """Its page."""
    return analysis.to_html(folder / f"{name}.html")
