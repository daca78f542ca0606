"""`JacobianLens`: each entry mapped by its mean effect on the last residual.

Entry `l` is read as `unembed(ln_final(h_l J_l^T))`, row of `J` = output dimension. With J the
identity this is the logit lens, bit by bit. `fit_jacobian_lens` computes J.

Entries are inputs of blocks; TransformerLens' `JacobianLens` counts outputs of blocks, so its index
`l` is entry `l + 1` here, and it has none for entry 0.

Fitting a Jacobian lens: the mean effect of each entry on the last residual.

`J_l = mean over prompts of mean over t in V of sum over t' in V, t' >= t of d h_L[t'] / d h_l[t]`,
with V the positions from `skip_first` on, without the last one. Every output dimension is one
backward pass; `rows` of them are computed at once, on as many copies of the prompt. The sum over t'
makes J larger for longer prompts.

Source: TransformerLens 4.3, `tools/analysis/jacobian_lens.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.engine import Progress, run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.lens.fitted import HELD_OUT_KL, FittedLens, as_prompts, held_out_kl
from icl_mech.measurements.lens.residuals import ResidualReading, draw_positions
from icl_mech.measurements.provenance import prompt_source
from icl_mech.models import Hook, LanguageModel, Site, adapt, exclusive
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Definition
from icl_mech.segments import Segment

JACOBIAN = Definition(
    "Jacobian lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(J_\ell h_\ell) + b_U, \quad "
    r"J_\ell = \mathbb{E}\Big[\sum_{t' \ge t} \partial h_L[t'] / \partial h_\ell[t]\Big]",
    "The residual stream h_l is mapped by the mean effect of a small change in it on the final "
    "residual at the same and all later positions; the mean is over positions t, then over "
    "prompts.",
    "TransformerLens 4.3, tools/analysis/jacobian_lens.py",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class JacobianLens(FittedLens):
    """Mean Jacobians of one model.

    Attributes:
        jacobian: J of each entry but the last, output dimension first.
        readout: Digest of the unembedding it was fitted for, see `readout_digest`.
        held_out_kl: KL(model || lens) in nats at every entry, for each held-out prompt; None where it was
            not measured.
        training: Settings of the fit.
    """

    kind: ClassVar[str] = "jacobian"
    definitions: ClassVar[tuple[Definition, ...]] = (JACOBIAN, HELD_OUT_KL)

    jacobian: Float[Tensor, "block out in"]

    @classmethod
    @checked(ResultError)
    def given(cls, model: Any, jacobian: Float[Tensor, "block out in"]) -> "JacobianLens":
        """A lens for this model from Jacobians computed elsewhere.

        Raises:
            ResultError: tensors that do not fit together.
            RunError: Jacobians of another model's size.
        """
        return cls.made_elsewhere(model, "jacobians", jacobian=jacobian)

    def maps(self) -> dict[str, Tensor]:
        """The tensor `jacobian` by its name."""
        return {"jacobian": self.jacobian}

    def through(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Residuals mapped to `h J^T`."""
        return rows @ self.jacobian[entry].to(rows).T


@checked(RunError, but=["prompts", "held_out"])
@exclusive
def fit_jacobian_lens(
    model: Any,
    prompts: PromptBatch | Sequence[Sequence[int]],
    *,
    skip_first: Natural = 16,
    rows: Count = 16,
    held_out: PromptBatch | Sequence[Sequence[int]] | None = None,
    positions: Count = 16,
    seed: Natural = 0,
    progress: bool | None = None,
) -> JacobianLens:
    """Fit a Jacobian lens of the model.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts that the mean is taken over: a `PromptBatch`, or sequences of token ids.
        skip_first: Positions at the beginning that are left out.
        rows: Backward passes computed at once; more take more memory.
        held_out: Other prompts on which to measure KL(model || lens) and that of the logit lens.
        positions: Number of positions drawn from each of these.
        seed: Seed of these positions.
        progress: Show a progress bar.

    Raises:
        PromptError: no prompts, or prompts of fewer than `skip_first + 2` tokens.
        RunError: an option out of range, or a model that gives no gradients here.
    """
    batch = as_prompts(prompts)
    judged = None if held_out is None else as_prompts(held_out)
    _check_lengths(batch, skip_first)
    adapted = adapt(model)
    mean = _mean_jacobian(adapted, batch, skip_first, rows, progress)
    lens = JacobianLens.made(
        adapted,
        {
            "dtype": adapted.info.dtype,
            "skip_first": skip_first,
            "prompts": prompt_source(batch),
            "held_out_prompts": 0 if judged is None else len(judged),
        },
        jacobian=mean.float(),
    )
    if judged is None:
        return lens
    places = draw_positions(judged, positions, 1, seed)
    (residuals,) = run(
        adapted, judged, [ResidualReading(places)], progress=progress, title="residuals"
    )
    return held_out_kl(lens, adapted, residuals)


def _mean_jacobian(
    model: LanguageModel, prompts: PromptBatch, skip_first: int, rows: int, progress: bool | None
) -> Float[Tensor, "block out in"]:
    width, layers = model.info.d_model, model.info.n_layers
    total = torch.zeros(layers, width, width, dtype=torch.float64)
    with Progress("Jacobians", len(prompts), progress) as bar:
        for prompt in prompts:
            total += jacobian(model, prompt, skip_first, rows).double().cpu()
            bar.advance(1)
    return total / len(prompts)


def _check_lengths(prompts: PromptBatch, skip_first: int) -> None:
    short = min(map(len, prompts))
    if short < skip_first + 2:
        raise PromptError(
            f"The shortest prompt has {short} tokens, but skip_first={skip_first} needs at least "
            f"{skip_first + 2}, since the last position is also left out. Use longer prompts or a "
            "smaller skip_first."
        )


def jacobian(
    model: LanguageModel, prompt: Prompt, skip_first: int, rows: int
) -> Float[Tensor, "block out in"]:
    """Jacobians of one prompt; rows are output dimensions.

    Raises:
        RunError: they are not finite.
    """
    copies = PromptBatch((prompt,) * rows)
    segment = Segment.whole(model, copies)
    entries: dict[int, Tensor] = {}
    last = model.info.n_layers

    def keep(site: Site) -> Hook:
        def hook(activation: Tensor) -> Tensor:
            entry = site.layer + (site.name == "resid_post")
            # The graph begins at the embedding: parameters are frozen.
            tensor = activation if entry else activation.detach().requires_grad_()
            entries[entry] = tensor = tensor.clone()
            return tensor

        return site, hook

    sites = [Site("resid_pre", 0), *(Site("resid_post", layer) for layer in range(last))]
    inside = slice(skip_first, len(prompt) - 1)
    chunks = []
    with model.undo.kept(), model.gradients(), torch.enable_grad():
        model.forward(
            segment.tokens, segment.mask, segment.positions, hooks=[keep(site) for site in sites]
        )
        inputs = [entries[entry] for entry in range(last)]
        output = entries[last]
        width = output.shape[-1]
        for start in range(0, width, rows):
            chosen = range(start, min(start + rows, width))
            towards = torch.zeros_like(output)
            for row, dim in enumerate(chosen):
                towards[row, inside, dim] = 1.0
            gradients = torch.autograd.grad(output, inputs, towards, retain_graph=True)
            means = [gradient[: len(chosen), inside].float().mean(1) for gradient in gradients]
            chunks.append(torch.stack(means))
    whole = torch.cat(chunks, dim=1)
    if not bool(whole.isfinite().all()):
        raise RunError(
            f"The Jacobian of {model.info.name!r} is not finite; load the model in float32."
        )
    return whole
