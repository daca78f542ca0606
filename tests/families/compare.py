"""What the package computes of a tiny model, beside plain Hugging Face: no hooks, no TransformerLens.

Each comparison gives its largest difference, relative to `max(1, largest value)`.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.measurements.compression.kept import parts
from icl_mech.models import LanguageModel, Site, adapt
from icl_mech.prompts import Prompt, PromptBatch
from tests.engine.test_paths import TASK
from tests.families.configs import Family
from tests.tiny import tiny_tokenizer

N_PROMPTS = 3
MOVED = 1e-3
"""What an intervention changes at least, so that comparing it says something."""


@dataclass
class Both:
    """A family's model as the package sees it, and the same weights as plain Hugging Face."""

    family: Family
    dtype: torch.dtype = torch.float32

    @cached_property
    def bridge(self) -> Any:
        tokenizer = copy.deepcopy(tiny_tokenizer(self.family.tokenizer))
        return icl.load_model(self.family.make(self.dtype), tokenizer=tokenizer)

    @cached_property
    def model(self) -> LanguageModel:
        return adapt(self.bridge)

    @cached_property
    def plain(self) -> Any:
        return self.family.make(self.dtype)

    @cached_property
    def prompts(self) -> PromptBatch:
        return icl.build_prompts(TASK, tiny_tokenizer(self.family.tokenizer), shots=1, n=N_PROMPTS)

    @cached_property
    def label_logits(self) -> Tensor:
        """Of plain single prompts."""
        rows = []
        for prompt in self.prompts:
            with torch.no_grad():
                logits = self.plain(torch.tensor([prompt.tokens])).logits[0, prompt.target]
            rows.append(logits[list(prompt.label_tokens)])
        return torch.stack(rows)


def gap(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest value or 1."""
    found, expected = found.double(), expected.double()
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def padding(both: Both) -> float:
    """A padded batch, computed whole, against single prompts."""
    batch = icl.predict(both.bridge, both.prompts, path="whole")
    return gap(batch.label_logits, both.label_logits)


def sharing(both: Both) -> float:
    """Demonstrations run once, against single prompts."""
    return gap(icl.predict(both.bridge, both.prompts).label_logits, both.label_logits)


def flow(both: Both) -> float:
    """Flow scores against gradients at the attentions that Hugging Face returns."""
    found = icl.flow_scores(both.bridge, both.prompts).per_prompt
    expected = torch.stack([_flow(both.plain, prompt) for prompt in both.prompts])
    assert torch.equal(found.isnan(), expected.isnan()), "kinds of edges that a window leaves out"
    found, expected = found.nan_to_num(), expected.nan_to_num()
    # Scores are far below 1, and differ by layer.
    return float(((found - expected).abs() / expected.abs().amax((1, 2), keepdim=True)).max())


def _flow(plain: Any, prompt: Prompt) -> Tensor:
    """`S_wp, S_pq, S_ww` by layer, as defined: means over the edges that have any attention."""
    with torch.enable_grad():
        output = plain(torch.tensor([prompt.tokens]), output_attentions=True, use_cache=False)
        labels = output.logits[:, prompt.target, list(prompt.label_tokens)]
        loss = cross_entropy(labels.float(), torch.tensor([prompt.answer]))
        gradients = torch.autograd.grad(loss, output.attentions)
    scores = []
    for attention, gradient in zip(output.attentions, gradients, strict=True):
        saliency = (attention * gradient)[0].double().sum(0).abs().tril(-1)
        exist = (attention != 0).any(1)[0].double().tril(-1)
        places, target = list(prompt.label_positions), prompt.target
        kinds = [
            torch.stack([own[places].sum(), own[target, places].sum()]) for own in (saliency, exist)
        ]
        (sums, edges), whole = kinds, torch.stack([saliency.sum(), exist.sum()])
        rest, others = whole - torch.stack([sums.sum(), edges.sum()])
        scores.append(torch.cat([sums / edges, (rest / others)[None]]))
    return torch.stack(scores, dim=1)


def lens(both: Both) -> float:
    """The last entry of the lens against the model's own logits."""
    found = icl.logit_lens(both.bridge, both.prompts).label_logits[:, -1]
    return gap(found, both.label_logits)


def components(both: Both) -> float:
    """Sum of embedding, heads, biases and MLPs against the model's own logits."""
    found = icl.logit_lens(both.bridge, both.prompts, per="head")
    total = found.embedding + found.label_logits.sum((1, 2)) + found.others + found.constant
    return gap(both.model._scaled(total), both.label_logits)


def heads(both: Both) -> float:
    """Sum of what heads add, and bias, against the output of attention."""
    model = both.model
    tokens = torch.tensor([both.prompts[0].tokens])
    places = torch.arange(tokens.shape[1])[None]
    layers = range(model.info.n_layers)
    read: dict[Site, list[Tensor]] = {
        Site(name, layer): [] for layer in layers for name in ("z", "attn_out")
    }
    with torch.no_grad():
        hooks = [(site, kept.append) for site, kept in read.items()]
        model.forward(tokens, places >= 0, places, hooks=hooks)
        gaps = []
        for layer in layers:
            weight, bias = model.head_weights(layer)
            total = torch.einsum("bphd,hdm->bpm", read[Site("z", layer)][0], weight)
            total = total if bias is None else total + bias
            after = model.attention_norm(layer)
            total = total if after is None else after[1](total)
            gaps.append(gap(total, read[Site("attn_out", layer)][0]))
    return max(gaps)


def isolation(both: Both) -> float:
    """Label words isolated in every layer, against the model under a mask of four dimensions."""
    changes = [icl.Isolate(range(both.model.info.n_layers))]
    found = icl.predict(both.bridge, both.prompts, interventions=changes).label_logits
    rows = []
    for prompt in both.prompts:
        length = len(prompt.tokens)
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        for place in prompt.label_positions:
            seen[place, :place] = False
        with torch.no_grad():
            ids = torch.tensor([prompt.tokens])
            mask = _masks(both.plain.config.get_text_config(), seen, both.dtype)
            places = {"position_ids": torch.arange(length)[None]}
            names = inspect.signature(both.plain.forward).parameters
            places = places if "position_ids" in names else {}
            logits = both.plain(ids, attention_mask=mask, use_cache=False, **places).logits[0]
        rows.append(logits[prompt.target, list(prompt.label_tokens)])
    expected = torch.stack(rows)
    assert gap(expected, both.label_logits) > MOVED, "isolation must matter"
    return gap(found, expected)


def _masks(config: Any, seen: Tensor, dtype: torch.dtype) -> Any:
    """The additive mask; one for each kind of layer where a model has several."""

    def additive(allowed: Tensor) -> Tensor:
        return torch.zeros(allowed.shape, dtype=dtype).masked_fill(
            ~allowed, torch.finfo(dtype).min
        )[None, None]

    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    near = seen if not window else seen & ~torch.ones_like(seen).tril(-window)
    if "sliding_attention" not in kinds:
        return additive(near)
    return {"full_attention": additive(seen), "sliding_attention": additive(near)}


def compression(both: Both) -> float:
    """A stand-in that keeps everything against full prompts."""
    keep = [list(range(parts(prompt).query)) for prompt in both.prompts]
    found = icl.compress_demonstrations(both.bridge, both.prompts, keep=keep)
    return gap(found.label_logits, both.label_logits)


COMPARISONS: dict[str, Callable[[Both], float]] = {
    compare.__name__: compare
    for compare in (padding, sharing, flow, lens, components, heads, isolation, compression)
}


@dataclass(frozen=True)
class Outcome:
    """What came of a family.

    Attributes:
        refused: What the package said when it refused the model.
        gaps: Largest difference, by comparison.
        refusals: What it said when it refused a measurement.
    """

    refused: str
    gaps: dict[str, float]
    refusals: dict[str, str]


def outcome(both: Both) -> Outcome:
    """All comparisons of a family."""
    try:
        _ = both.model
    except ModelError as error:
        return Outcome(str(error), {}, {})
    gaps, refusals = {}, {}
    for name, compare in COMPARISONS.items():
        if name in both.family.untried:
            continue
        try:
            gaps[name] = compare(both)
        except icl.IclMechError as error:
            refusals[name] = str(error)
    return Outcome("", gaps, refusals)
