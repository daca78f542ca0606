"""One pass of an nnsight model with hooks at sites: the code inside the trace.

Hooks run in the order of the forward pass. Sites between the modules of a block are inputs and
outputs of modules; sites inside the attention are hooked by replacing, for this pass, the attention
function (returned by `ALL_ATTENTION_FUNCTIONS.get_interface`) with

    scores  = query key^T * scaling + mask
    pattern = softmax(scores)                  computed in float32
    z       = pattern value

with the hooks of each line after it. Blocks without such hooks keep the original attention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.interface import HookFunction, ModelInfo, Resume, Site

if TYPE_CHECKING:
    from nnsight.intervention.envoy import Envoy

Hooks = dict[Site, list[HookFunction]]
"""Hooks by site, in order."""


@dataclass(frozen=True)
class Family:
    """Names of the modules of an architecture.

    Attributes:
        blocks: The list of blocks.
        norm: The norm before the unembedding.
        attention: The attention in a block.
        qkv: In the attention: three projections, or one whose columns are q, then k, then v.
        out: The last projection of the attention.
        mlp: The MLP in a block.
        down: The last projection of the MLP.
    """

    blocks: str
    norm: str
    attention: str
    qkv: tuple[str, ...]
    out: str
    mlp: str
    down: str


_LLAMA = Family(
    blocks="model.layers",
    norm="model.norm",
    attention="self_attn",
    qkv=("q_proj", "k_proj", "v_proj"),
    out="o_proj",
    mlp="mlp",
    down="down_proj",
)
FAMILIES = {
    "GPT2LMHeadModel": Family(
        blocks="transformer.h",
        norm="transformer.ln_f",
        attention="attn",
        qkv=("c_attn",),
        out="c_proj",
        mlp="mlp",
        down="c_proj",
    ),
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _LLAMA,
}
"""Families by class of the wrapped model."""


def traced(model: "Envoy", inputs: dict[str, Any], body: "Pass") -> None:
    """Run the model inside a trace, up to its last block.

    Args:
        model: nnsight's wrapper.
        inputs: Arguments of the wrapped model's `forward`.
        body: Code to run inside the trace.
    """
    # nnsight runs the source text of this block in a thread that shares the names of this function.
    with model.trace(**inputs) as tracer:
        body()
        tracer.stop()


class Pass:
    """The hooks of one pass, and the residual after the last block."""

    def __init__(
        self,
        model: "Envoy",
        family: Family,
        info: ModelInfo,
        hooks: Hooks,
        start: Resume | None,
        stop: int,
    ) -> None:
        # The trace stops after the last of these blocks.
        self.blocks = list(attrgetter(family.blocks)(model))[:stop]
        self.family, self.info, self.hooks, self.start = family, info, hooks, start
        self.residual: Tensor | None = None
        self.error: Exception | None = None
        # Grad and inference mode are thread-local, and the body runs in another thread.
        self.modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def __call__(self) -> None:
        """Run the hooks; called inside the trace."""
        grad, inference = self.modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            for layer, block in enumerate(self.blocks):
                if self.start is not None and layer < self.start.layer:
                    block.skip(self.start.residual)
                elif any(site.layer == layer for site in self.hooks):
                    self._block(block, layer)
            self.residual = self.blocks[-1].output

    def _block(self, block: "Envoy", layer: int) -> None:
        family, info = self.family, self.info
        attention, mlp = getattr(block, family.attention), getattr(block, family.mlp)
        self._at(Site("resid_pre", layer), block, "input")
        first = 0
        for number, (name, heads) in enumerate(_projected(info)):
            column = first if len(family.qkv) == 1 else 0
            projection = getattr(attention, family.qkv[0 if len(family.qkv) == 1 else number])
            self._at(Site(name, layer), projection, "output", (column, heads))
            first += heads * info.d_head
        inside = [Site(name, layer) for name in ("scores", "pattern", "z")]
        if any(site in self.hooks for site in inside):
            function = attending(*(self._through(site) for site in inside))
            attention.source.ALL_ATTENTION_FUNCTIONS_get_interface_0.output = function
        self._at(Site("attn_out", layer), getattr(attention, family.out), "output")
        self._at(Site("mlp_post", layer), getattr(mlp, family.down), "input")
        self._at(Site("mlp_out", layer), mlp, "output")
        self._at(Site("resid_post", layer), block, "output")

    def _at(
        self, site: Site, envoy: "Envoy", end: str, part: tuple[int, int] | None = None
    ) -> None:
        """Run the hooks of a site that is the input or output of a module, or the columns of some heads in it."""
        if site not in self.hooks:
            return
        whole: Tensor = getattr(envoy, end)
        if part is None:
            new = self._through(site)(whole)
            if new is not whole:
                setattr(envoy, end, new)
            return
        first, heads = part
        last = first + heads * self.info.d_head
        activation = whole[..., first:last].unflatten(-1, (heads, -1))
        new = self._through(site)(activation)
        if new is not activation:
            columns = [whole[..., :first], new.flatten(-2), whole[..., last:]]
            setattr(envoy, end, torch.cat(columns, dim=-1))

    def _through(self, site: Site) -> Callable[[Tensor], Tensor]:
        functions = self.hooks.get(site, [])

        def through(activation: Tensor) -> Tensor:
            try:
                for function in functions:
                    replaced = function(activation)
                    activation = activation if replaced is None else replaced
            except Exception as error:
                self.error = error
                raise
            return activation

        return through


def _projected(info: ModelInfo) -> Sequence[tuple[Any, int]]:
    return ("q", info.n_heads), ("k", info.n_kv_heads), ("v", info.n_kv_heads)


def attending(
    at_scores: Callable[[Tensor], Tensor],
    at_pattern: Callable[[Tensor], Tensor],
    at_z: Callable[[Tensor], Tensor],
) -> Callable[..., tuple[Tensor, Tensor]]:
    """An attention function for transformers' modules that passes each step through these functions."""

    def attention(
        module: object,
        query: Float[Tensor, "batch head dest d_head"],
        key: Float[Tensor, "batch kv_head src d_head"],
        value: Float[Tensor, "batch kv_head src d_head"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **_: object,
    ) -> tuple[Tensor, Tensor]:
        shared = query.shape[1] // key.shape[1]
        key, value = (seen.repeat_interleave(shared, dim=1) for seen in (key, value))
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = at_scores(masked(query @ key.transpose(-1, -2) * scaling, attention_mask))
        pattern = at_pattern(scores.softmax(-1, dtype=torch.float32).to(value.dtype))
        z = (pattern.to(value.dtype) @ value).transpose(1, 2).contiguous()
        return at_z(z), pattern

    return attention


def masked(
    scores: Float[Tensor, "batch head dest src"], mask: Tensor | None
) -> Float[Tensor, "batch head dest src"]:
    """Scores under the mask the model made for its attention implementation.

    Raises:
        ModelError: a mask that is neither additive (eager), True at visible columns (sdpa), nor
            omitted because it is plainly causal.
    """
    dest, src = scores.shape[-2:]
    if mask is None:
        mask = torch.ones(dest, src, dtype=torch.bool, device=scores.device).tril(src - dest)
    elif mask.ndim != 4:
        raise ModelError(
            f"The attention mask has {mask.ndim} axes, expected 4: load the model with "
            "attn_implementation='eager' or 'sdpa'."
        )
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores + mask
