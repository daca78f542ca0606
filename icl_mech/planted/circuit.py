"""Build a GPT-2 from a description of its heads and neurons; shared by all circuits with these embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.planted.spaces import SIZE, Matrix, Spaces
from icl_mech.planted.words import CLASS_WORDS, LABELS, N_CTX, PIECES, new_gpt2, spared

GAIN = 8.0
"""Logits per unit of *answer*, which stays small compared with the norm of the residual stream."""

FOLLOWS = 6.0
"""Logits of all label words per unit of *is_colon*, or of *expected* in circuits that have it."""

N_HEADS = 4
SHARP = 20.0
BITS = N_CTX.bit_length() - 1
NOISE = {"code": 0.01, "answer": 0.03 / GAIN}
"""Scales of what noise heads write into each space."""


Read = Mapping[str, float | Float[Tensor, "feature neuron"]]
"""Gain of each space: each neuron reads one feature of it (or its only feature), or all features through a matrix."""


class Neurons(NamedTuple):
    """Neurons of one MLP that read several spaces and write one.

    Attributes:
        layer: Block of the MLP.
        read: Gains of the spaces that they read.
        bias: Bias of each neuron.
        written: The space that they write.
        out: Output direction of each neuron in that space.
    """

    layer: int
    read: Read
    bias: float
    written: str
    out: Float[Tensor, "neuron feature"]


@dataclass(frozen=True)
class Circuit:
    """A network described by its heads and neurons; all other heads are noise.

    Attributes:
        spaces: Subspaces of the residual stream.
        layers: Number of blocks.
        heads: Query, key, value and output weights by (layer, head).
        neurons: Neurons of the MLPs.
    """

    spaces: Spaces
    layers: int
    heads: Mapping[tuple[int, int], tuple[Matrix, ...]]
    neurons: Sequence[Neurons]

    def model(self, seed: int, strength: float = 1.0) -> Any:
        """The GPT-2; `seed` draws codes and noise heads, `strength` is the fraction of query words not spared."""
        used = [0] * self.layers
        for group in self.neurons:
            used[group.layer] += len(group.out)
        model = new_gpt2(self.layers, N_HEADS, self.spaces.d_model, max(1, *used))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.spaces.empty(model)
            _set_embeddings(model, self.spaces, generator, strength)
            _set_neurons(model, self.spaces, self.neurons)
            for layer, block in enumerate(model.transformer.h):
                for head in range(N_HEADS):
                    noise = _noise_head(self.spaces, generator)
                    self.spaces.set_head(block.attn, head, self.heads.get((layer, head), noise))
        return model


def _set_embeddings(
    model: Any, spaces: Spaces, generator: torch.Generator, strength: float
) -> None:
    """Set the token and position embeddings, and the unembedding."""
    ids = {piece: index for index, piece in enumerate(PIECES)}
    tokens = torch.zeros(len(PIECES), spaces.features)
    tokens[:, spaces["size"]] = SIZE
    codes = torch.randn(len(PIECES), spaces.sizes["code"], generator=generator)
    tokens[:, spaces["code"]] = codes / codes.norm(dim=1, keepdim=True)
    tokens[ids[":"], spaces["is_colon"]] = 1.0
    tokens[ids["\n"], spaces["is_break"]] = 1.0
    logits = torch.zeros(len(PIECES), spaces.features)
    followed = "expected" if "expected" in spaces.sizes else "is_colon"
    for c, (label, words) in enumerate(zip(LABELS, CLASS_WORDS, strict=True)):
        embedding = tokens[ids[f" {label}"]]
        embedding[spaces["is_label"]], embedding[spaces["shown"].start + c] = 1.0, 1.0
        logits[ids[f" {label}"], spaces["answer"].start + c] = GAIN
        logits[ids[f" {label}"], spaces[followed]] = FOLLOWS  # a label follows
        for i, word in enumerate(words):
            space = "spared" if spared(i, strength) else "class"
            for piece in (word, f" {word}"):
                tokens[ids[piece], spaces["is_word"]] = 1.0
                tokens[ids[piece], spaces[space].start + c] = 1.0
    places = torch.zeros(N_CTX, spaces.features)
    numbers = torch.arange(N_CTX)[:, None]
    bits = 2.0 * (numbers >> torch.arange(BITS) & 1) - 1.0
    places[:, spaces["place"]] = numbers / N_CTX
    if "bits" in spaces.sizes:
        places[:, spaces["bits"]] = bits
        places[1:, spaces["bits_before"]] = bits[:-1]
    model.transformer.wte.weight.copy_(tokens @ spaces.basis)
    model.transformer.wpe.weight.copy_(places @ spaces.basis)
    model.lm_head.weight.copy_(logits @ spaces.basis)


def _set_neurons(model: Any, spaces: Spaces, neurons: Sequence[Neurons]) -> None:
    """Set the weights of all neurons, next to each other in each MLP, in their order."""
    used: dict[int, int] = {}
    for group in neurons:
        mlp, start = model.transformer.h[group.layer].mlp, used.get(group.layer, 0)
        used[group.layer] = stop = start + len(group.out)
        weights = torch.zeros(spaces.features, len(group.out))
        for name, gain in group.read.items():
            identity = torch.eye(len(group.out)) if spaces.sizes[name] > 1 else 1.0
            weights[spaces[name]] = gain if isinstance(gain, torch.Tensor) else gain * identity
        mlp.c_fc.weight[:, start:stop] = spaces.basis.T @ weights
        mlp.c_fc.bias[start:stop] = group.bias
        mlp.c_proj.weight[start:stop] += group.out @ spaces.basis[spaces[group.written]]


def _noise_head(spaces: Spaces, generator: torch.Generator) -> tuple[Matrix, ...]:
    """A head that attends by codes, with one query for all positions."""
    query = spaces.random(generator, size=1 / SIZE)
    key, value = (spaces.random(generator, code=scale) for scale in (1.0, 0.3))
    return query, key, value, spaces.random(generator, **NOISE)
