"""`TunedLens`: a translator for every entry of the residual stream but the last.

Entry `l` is read as `unembed(ln_final(h_l + h_l W_l^T + b_l))`. With W and b zero this is the logit
lens, bit by bit. `fit_tuned_lens` learns the translators.

Fitting a tuned lens: residuals are read once, then translators are trained on them.

A translator starts either at zero (the logit lens) or at the ridge regression of the last residual
on its entry, each row weighted by the inverse square of the last residual's norm, which the final
norm removes; the penalty pulls towards zero. From there Adam minimises KL(model || lens) over the
whole vocabulary, its learning rate decaying linearly to zero. Held-out prompts are not used for any
choice: their KL is only reported.

    prompts = build_prompts(task, model, shots=2, n=100, split="train", demonstrations="per_prompt")
    lens = fit_tuned_lens(model, prompts)
    logit_lens(model, build_prompts(task, model, shots=2, n=50), lens=lens)

Source: Belrose et al. 2023, *Eliciting Latent Predictions from Transformers with the Tuned Lens*.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, check_fields, checked
from icl_mech.engine import Progress, run
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Options
from icl_mech.measurements.lens.fitted import HELD_OUT_KL, FittedLens, as_prompts, held_out_kl, kl
from icl_mech.measurements.lens.residuals import (
    ResidualReading,
    draw_positions,
    flat,
    split_prompts,
)
from icl_mech.measurements.provenance import prompt_source
from icl_mech.models import LanguageModel, adapt, exclusive
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition

TUNED = Definition(
    "tuned lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(h_\ell + W_\ell h_\ell + b_\ell) + b_U, "
    r"\quad \ell < L",
    "The residual stream h_l is mapped by a translator for each layer before it is decoded like "
    "the last layer. W and b minimise KL(model || lens) on separate prompts; the last layer has "
    "no translator.",
    "Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedLens(FittedLens):
    """Translators of one model.

    Attributes:
        weight: W of each entry but the last, output dimension first.
        bias: b of each entry but the last.
        losses: Mean KL of each training step, before its update, by entry.
        readout: Digest of the unembedding it was fitted for, see `readout_digest`.
        held_out_kl: KL(model || lens) in nats at every entry, for each held-out prompt; next to it the KL of
            the plain logit lens. None where it was not measured.
        training: Settings of the fit.
    """

    kind: ClassVar[str] = "tuned"
    definitions: ClassVar[tuple[Definition, ...]] = (TUNED, HELD_OUT_KL)

    weight: Float[Tensor, "block out in"]
    bias: Float[Tensor, "block out"]
    losses: Float[Tensor, "step block"] | None = None

    @classmethod
    @checked(ResultError)
    def given(
        cls, model: Any, weight: Float[Tensor, "block out in"], bias: Float[Tensor, "block out"]
    ) -> "TunedLens":
        """A lens for this model from translators fitted elsewhere.

        Raises:
            ResultError: tensors that do not fit together.
            RunError: translators of another model's size.
        """
        return cls.made_elsewhere(model, "translators", weight=weight, bias=bias)

    def maps(self) -> dict[str, Tensor]:
        """The tensors `weight` and `bias` by name."""
        return {"weight": self.weight, "bias": self.bias}

    def through(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Residuals mapped to `h + h W^T + b`."""
        weight, bias = (part[entry].to(rows) for part in (self.weight, self.bias))
        return rows + rows @ weight.T + bias


Start = Literal["ridge", "zero"]


@dataclass(frozen=True)
class LensTraining:
    """Training settings of the translators.

    Attributes:
        epochs: Passes over the rows; 0 leaves the initial values as they are.
        lr: Learning rate at the start.
        batch_size: Rows of the residual stream per step.
        start: `ridge` or `zero`.
        ridge: Penalty of the regression, as a fraction of the mean variance of an entry's dimensions.
        positions: Positions per prompt.
        skip_first: Positions at the beginning that are left out: the first token's residual is many
            times as large as others' in many models.
        held_out: Fraction of the prompts that is held out.
        seed: Seed of the split, the positions and the order of rows.
    """

    epochs: Natural = 3
    lr: float = 2e-4
    batch_size: Count = 64
    start: Start = "ridge"
    ridge: float = 0.3
    positions: Count = 16
    skip_first: Natural = 1
    held_out: float = 0.25
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the fields against their types, and the numbers.

        Raises:
            RunError: names the option.
        """
        check_fields(self)
        if self.lr <= 0 or self.ridge <= 0:
            raise RunError(f"lr={self.lr} and ridge={self.ridge} must both be above 0.")
        if not 0 < self.held_out < 1:
            raise RunError(
                f"held_out={self.held_out}, but it must lie between 0 and 1; 0.25, for example, "
                "holds out a quarter of the prompts."
            )


@exclusive
def fit_tuned_lens(
    model: Any,
    prompts: PromptBatch | Sequence[Sequence[int]],
    *,
    epochs: int = 3,
    lr: float = 2e-4,
    batch_size: int = 64,
    start: Start = "ridge",
    ridge: float = 0.3,
    positions: int = 16,
    skip_first: int = 1,
    held_out: float = 0.25,
    seed: int = 0,
    memory: str | int | None = None,
    progress: bool | None = None,
) -> TunedLens:
    """Fit a tuned lens of the model, and measure its KL and the logit lens' on held-out prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts to fit on, some of which are held out for evaluation: a `PromptBatch`, or
            sequences of token ids. Build them with `split="train"`, so that later measurements with
            the lens use new prompts.
        epochs: Passes over the rows; 0 leaves the initial values as they are.
        lr: Learning rate of Adam at the start; it falls linearly to zero.
        batch_size: Rows per step.
        start: `ridge`, or `zero`: the logit lens.
        ridge: Penalty of the regression, as a fraction of the mean variance of an entry's dimensions.
        positions: Number of positions drawn from each prompt.
        skip_first: Positions at the beginning that are left out, as are those all prompts share.
        held_out: Fraction of the prompts that is held out.
        seed: Seed of the split, the positions and the order of rows.
        memory: Budget of the pass, such as `"8GB"`.
        progress: Show a progress bar.

    Raises:
        RunError: an option out of range, or a training that diverged.
        PromptError: no prompts, fewer than two different ones, or prompts too short.

    Source: Belrose et al. 2023, §2.
    """
    how = LensTraining(epochs, lr, batch_size, start, ridge, positions, skip_first, held_out, seed)
    options = Options(memory=memory, progress=progress)
    batch = as_prompts(prompts)
    split = split_prompts(batch, how.held_out, how.seed)
    places = draw_positions(batch, how.positions, how.skip_first, how.seed)
    adapted = adapt(model)
    (residuals,) = run(
        adapted,
        batch,
        [ResidualReading(places)],
        memory=memory,
        progress=progress,
        title="residuals",
    )
    rows = flat(residuals[list(split.fitted)]).to(adapted.device)
    weight, bias = begun(rows, how)
    steps = -(-rows.shape[1] // how.batch_size) * how.epochs
    with Progress("training", steps, options.progress) as bar:
        losses = train(adapted, rows, weight, bias, how, bar)
    lens = TunedLens.made(
        adapted,
        {
            "dtype": adapted.info.dtype,
            **asdict(how),
            "rows": rows.shape[1],
            "prompts": prompt_source(batch),
            "held_out_prompts": len(split.held_out),
        },
        weight=weight.cpu(),
        bias=bias.cpu(),
        losses=losses,
    )
    return held_out_kl(lens, adapted, residuals[list(split.held_out)])


def begun(
    rows: Float[Tensor, "entry row d_model"], how: LensTraining
) -> tuple[Float[Tensor, "block out in"], Float[Tensor, "block out"]]:
    """Initial weights and biases."""
    *entries, last = rows.double()
    width = last.shape[-1]
    if how.start == "zero":
        nothing = rows.new_zeros(len(entries), width, width, dtype=torch.float32)
        return nothing, nothing[..., 0].clone()
    # The final norm removes the size of a row.
    share = last.square().mean(-1, keepdim=True).clamp(min=1e-12).reciprocal()
    share = share / share.sum()
    regressions = [_regressed(entry, last - entry, share, how.ridge) for entry in entries]
    weight, bias = (torch.stack(part).float() for part in zip(*regressions, strict=True))
    return weight, bias


def _regressed(x: Tensor, y: Tensor, share: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Weighted ridge regression of `y` on `x` with an intercept."""
    x_mean, y_mean = (share * x).sum(0), (share * y).sum(0)
    x, y = x - x_mean, y - y_mean
    spread = x.T @ (share * x)
    penalty = ridge * spread.diagonal().mean().clamp(min=1e-12)
    eye = torch.eye(len(spread), dtype=x.dtype, device=x.device)
    weight = torch.linalg.solve(spread + penalty * eye, x.T @ (share * y)).T
    return weight, y_mean - weight @ x_mean


def train(
    model: LanguageModel,
    rows: Float[Tensor, "entry row d_model"],
    weight: Float[Tensor, "block out in"],
    bias: Float[Tensor, "block out"],
    how: LensTraining,
    bar: Progress,
) -> Float[Tensor, "step block"]:
    """Run Adam on the mean KL of each batch, separately for every translator; changes `weight` and `bias`.

    Raises:
        RunError: a loss that is not finite.
    """
    steps = list(_batches(rows.shape[1], how))
    parts = [part.requires_grad_() for tensor in (weight, bias) for part in tensor]
    blocks = len(weight)
    optimizer = torch.optim.Adam(parts, lr=how.lr)
    losses = []
    with model.undo.kept(), model.gradients():
        for number, chosen in enumerate(steps):
            with torch.no_grad():
                log_probs = model.logits(rows[-1, chosen]).float().log_softmax(-1)
            step_losses = []
            for block in range(blocks):
                entry = rows[block, chosen]
                wide = entry.to(torch.promote_types(entry.dtype, torch.float32))
                moved = wide + wide @ parts[block].to(wide).T + parts[blocks + block].to(wide)
                loss = kl(log_probs, model.logits(moved.to(entry.dtype))).mean()
                both = parts[block], parts[blocks + block]
                for part, gradient in zip(both, torch.autograd.grad(loss, both), strict=True):
                    part.grad = gradient
                step_losses.append(loss.detach())
            losses.append(torch.stack(step_losses).cpu())
            if not bool(losses[-1].isfinite().all()):
                raise RunError(
                    f"Training diverged to non-finite values at step {number + 1} (lr={how.lr}); use a smaller "
                    "lr, or a model in float32."
                )
            for group in optimizer.param_groups:
                group["lr"] = how.lr * (1 - number / len(steps))
            optimizer.step()
            bar.advance(1)
    return torch.stack(losses) if losses else torch.zeros(0, blocks)


def _batches(count: int, how: LensTraining) -> Iterator[Tensor]:
    """Numbers of the rows of each step."""
    generator = torch.Generator().manual_seed(how.seed)
    for _ in range(how.epochs):
        yield from torch.randperm(count, generator=generator).split(how.batch_size)
