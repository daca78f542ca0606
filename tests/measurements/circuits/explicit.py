"""Plain Hugging Face, one prompt at a time: every input of a head, MLP or the logits is a sum of explicit messages.

Nothing of icl_mech is imported. Every query head has its own queries, keys and values, also where keys and values are
shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Run:
    """What nodes wrote, the inputs of readers, how many nodes wrote before each, and the logits of the last token.

    Writers: the embedding, then heads and MLP of every layer. Readers: queries, keys and values of every head of a layer,
    its MLP, ..., the logits.
    """

    written: list[Tensor]
    inputs: list[Tensor]
    before: list[int]
    logits: Tensor


class Explicit:
    """A model of Hugging Face taken apart."""

    def __init__(self, model: Any) -> None:
        self.model, self.config = model, model.config
        self.family = model.config.model_type
        self.heads = model.config.num_attention_heads
        self.width = model.config.hidden_size // self.heads
        base = {"gpt2": "transformer", "llama": "model", "gpt_neox": "gpt_neox"}[self.family]
        self.base = getattr(model, base)
        self.layers = list(self.base.h if self.family == "gpt2" else self.base.layers)
        self.parallel = self.family == "gpt_neox" and model.config.use_parallel_residual

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """What enters the first block."""
        ids = torch.tensor(tokens)
        if self.family == "gpt2":
            return self.base.wte(ids) + self.base.wpe(torch.arange(len(ids)))
        return (self.base.embed_in if self.family == "gpt_neox" else self.base.embed_tokens)(ids)

    def _parts(
        self, layer: int, head: int
    ) -> tuple[Any, list[tuple[Tensor, Tensor | None]], Tensor]:
        """Norm, weights and biases of query, key and value, and the output weight of a head."""
        block, dh = self.layers[layer], self.width
        own = slice(head * dh, (head + 1) * dh)
        if self.family == "gpt2":
            weight, bias, d = (
                block.attn.c_attn.weight,
                block.attn.c_attn.bias,
                self.config.hidden_size,
            )
            qkv = [(weight[:, i * d :][:, own].T, bias[i * d :][own]) for i in range(3)]
            return block.ln_1, qkv, block.attn.c_proj.weight[own]
        if self.family == "gpt_neox":
            fused = block.attention.query_key_value
            first = head * 3 * dh
            rows = [slice(first + i * dh, first + (i + 1) * dh) for i in range(3)]
            qkv = [(fused.weight[r], fused.bias[r]) for r in rows]
            return block.input_layernorm, qkv, block.attention.dense.weight.T[own]
        shared = self.heads // self.config.num_key_value_heads
        group = slice(head // shared * dh, (head // shared + 1) * dh)
        a = block.self_attn
        qkv = [
            (a.q_proj.weight[own], None),
            (a.k_proj.weight[group], None),
            (a.v_proj.weight[group], None),
        ]
        return block.input_layernorm, qkv, a.o_proj.weight.T[own]

    def _rotated(self, vectors: Tensor) -> Tensor:
        if self.family == "gpt2":
            return vectors
        cos, sin = self.base.rotary_emb(vectors[None], torch.arange(len(vectors))[None])
        turned = cos.shape[-1]
        part, rest = vectors[:, :turned], vectors[:, turned:]
        half = turned // 2
        swapped = torch.cat([-part[:, half:], part[:, :half]], dim=1)
        return torch.cat([part * cos[0] + swapped * sin[0], rest], dim=1)

    def _head(self, layer: int, head: int, inputs: Sequence[Tensor]) -> Tensor:
        norm, weights, out = self._parts(layer, head)
        q, k, v = (
            norm(x) @ weight.T + (0 if bias is None else bias)
            for x, (weight, bias) in zip(inputs, weights, strict=True)
        )
        scores = self._rotated(q) @ self._rotated(k).T / self.width**0.5
        causal = torch.ones(len(scores), len(scores), dtype=torch.bool).tril()
        return scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v @ out

    def _bias(self, layer: int) -> Tensor | float:
        block = self.layers[layer]
        return {
            "gpt2": lambda: block.attn.c_proj.bias,
            "gpt_neox": lambda: block.attention.dense.bias,
        }.get(self.family, lambda: 0.0)()

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        block = self.layers[layer]
        return block.mlp(
            (block.ln_2 if self.family == "gpt2" else block.post_attention_layernorm)(x)
        )

    def _final(self, x: Tensor) -> Tensor:
        norm = {"gpt2": "ln_f", "llama": "norm", "gpt_neox": "final_layer_norm"}[self.family]
        return self.model.get_output_embeddings()(getattr(self.base, norm)(x[-1]))

    def run(
        self, start: Tensor, replaced: Tensor | None = None, other: Sequence[Tensor] = ()
    ) -> Run:
        """One pass; where `replaced[writer, reader]`, a reader gets what the writer wrote in the `other` run."""
        written, inputs, before, constant = [start], [], [], torch.zeros(())

        def read() -> Tensor:
            total = constant
            for u, message in enumerate(written):
                swapped = replaced is not None and bool(replaced[u, len(inputs)])
                total = total + (other[u] if swapped else message)
            # A tensor of its own, so that its gradient is that of this reader alone.
            inputs.append(total + 0)
            before.append(len(written))
            return inputs[-1]

        for layer in range(len(self.layers)):
            by_letter = [[read() for _ in range(self.heads)] for _ in "qkv"]
            heads = [
                self._head(layer, head, [inputs_of[head] for inputs_of in by_letter])
                for head in range(self.heads)
            ]
            if self.parallel:
                mlp = self._mlp(layer, read())
                written += [*heads, mlp]
                constant = constant + self._bias(layer)
            else:
                written += heads
                constant = constant + self._bias(layer)
                written.append(self._mlp(layer, read()))
        logits = self._final(read())
        return Run(written, inputs, before, logits)

    def scores(
        self,
        clean: Sequence[int],
        other: Sequence[int],
        right: int,
        wrong: int,
        places: Sequence[float],
    ) -> Tensor:
        """EAP-IG of every edge, `[writer, reader]`, with gradients at these places from the counterfactual (0) to the clean run."""
        with torch.no_grad():
            runs = [self.run(self.embed(tokens)) for tokens in (clean, other)]
        changes = [a - b for a, b in zip(runs[0].written, runs[1].written, strict=True)]
        scores = torch.zeros(len(changes), len(runs[0].inputs), dtype=torch.float64)
        for place in places:
            start = runs[1].written[0] + place * changes[0]
            run = self.run(start.detach().requires_grad_())
            gradients = torch.autograd.grad(run.logits[right] - run.logits[wrong], run.inputs)
            for v, gradient in enumerate(gradients):
                for u, change in enumerate(changes[: run.before[v]]):
                    scores[u, v] += float((change.double() * gradient.double()).sum()) / len(places)
        return scores
