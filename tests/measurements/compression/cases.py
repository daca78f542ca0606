"""A small task, and two ways to compress that use neither segments nor cut caches."""

from dataclasses import dataclass

import torch
from transformers import DynamicCache

from icl_mech import Example, Task, Template
from icl_mech.engine import run
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.compare_compression import CompareCompression
from icl_mech.measurements.compression.compress_context import CompressContext
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import Site, adapt
from tests.tiny import FAMILIES

WITHOUT_WINDOW = tuple(family for family in FAMILIES if family != "gemma3")

TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")


def task(template="Review: {text}\nSentiment: {label}", labels=("Negative", "Positive"), **options):
    return Task(
        "tiny",
        Template(template, **options),
        labels,
        tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
        tuple(Example(text, i % 2) for i, text in enumerate(TEXTS)),
    )


def text_of(prompt, positions):
    return "".join(prompt.pieces[position] for position in positions)


def close(model):
    """The tolerance between two ways of computing logits of this size."""
    return lambda found, expected: torch.testing.assert_close(
        found, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max()))
    )


def by_hugging_face(model, prompt, kept, query, first):
    """Label logits of one prompt: the wrapped model alone, a cache cut by hand."""
    return behind(model, prompt, kept, query, first)[list(prompt.label_tokens)]


def behind(model, prompt, kept, query, first):
    """The same for the whole vocabulary."""
    return rows_behind(model, prompt, kept, query, first)[-1]


def rows_behind(model, prompt, kept, query, first):
    """The same at every token behind the stand-in."""
    adapt(model)
    hf_model, tokens = model.original_model, torch.tensor([prompt.tokens])
    with torch.no_grad():
        full = hf_model(tokens[:, :query], past_key_values=DynamicCache(), use_cache=True)
        cut = DynamicCache()
        for layer, entry in enumerate(full.past_key_values.layers):
            cut.update(entry.keys[:, :, list(kept)], entry.values[:, :, list(kept)], layer)
        rest = tokens[:, query : prompt.target + 1]
        places = torch.arange(rest.shape[1])[None] + first
        mask = torch.ones(1, len(kept) + rest.shape[1], dtype=torch.long)
        logits = hf_model(
            rest, attention_mask=mask, past_key_values=cut, position_ids=places
        ).logits
    return logits[0]


@dataclass(frozen=True, eq=False)
class Blind(Intervention):
    """Query rows do not attend to the demonstrations' tokens that are left out."""

    kept: tuple[int, ...]
    query: int

    def hooks(self, segment):
        left_out = torch.ones(int(segment.src.max()) + 1, dtype=torch.bool)
        left_out[list(self.kept)] = False
        left_out[self.query :] = False
        columns = left_out[segment.src.clamp(min=0)] & (segment.src >= 0)
        cells = (segment.dest >= self.query)[:, None, :, None] & columns[:, None, None, :]

        def hide(scores):
            return scores.masked_fill(cells, float("-inf"))

        return [(Site("scores", layer), hide) for layer in range(segment.model.info.n_layers)]


def by_hiding(model, prompts, kept, query, changes=()):
    """Label logits of whole prompts whose queries do not see what is left out."""
    changes = [*changes, Blind(kept, query)]
    ((logits, *_),) = run(model, prompts, [PredictionReading()], changes, path="whole")
    return logits


compare_compression = door(
    CompareCompression, "compare_compression", then=("methods",), prompts="Prompts."
)
compress_context = door(CompressContext, "compress_context", prompts="Prompts.")
