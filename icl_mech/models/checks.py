"""Load-time checks: a model that fails one would give silently wrong numbers.

On two short probe prompts: attention rows sum to 1, editing attention changes the output,
nothing but attention carries information from one position to another,
`unembed(ln_final(last residual))` is the model's own logits, a padded batch equals its prompts run
singly, and nothing attends to the future.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError
from icl_mech.models.interface import Hook, LanguageModel, Site
from icl_mech.models.precision import undiminished

TOLERANCE = {"float32": 2e-4, "float64": 1e-8, "float16": 5e-2, "bfloat16": 2e-1}
"""Allowed difference of logits between two paths, times max(1, largest logit).

Padded against single prompts differ by up to 4e-5 in float32; half precision differs by a
few units in the last place of the residual stream.
"""

_LONG, _SHORT = 11, 7
_FOREIGN_ERRORS = (
    *(RuntimeError, TypeError, ValueError, LookupError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""What the library of a model may raise on the way."""


def tolerance(dtype: str, logits: Tensor) -> float:
    """Allowed difference from these logits."""
    return TOLERANCE.get(dtype, 2e-1) * max(1.0, float(logits.abs().max()))


def check_eval_mode(model: torch.nn.Module) -> None:
    """Refuse a model of which any part is in training mode.

    Raises:
        ModelError: dropout would make every number random; names the first such part.
    """
    # A bridge keeps the wrapped model, and the parts it has no component for, apart.
    for root in (getattr(model, "original_model", None), model):
        parts = root.named_modules() if isinstance(root, torch.nn.Module) else ()
        for name, part in parts:
            # nnsight hangs parts of its own into a model, which compute nothing.
            if not part.training or type(part).__module__.startswith("nnsight."):
                continue
            where = f"{plain_name(name)!r} of the model" if name else "The model"
            raise ModelError(
                f"{where} is in training mode (dropout is active); call model.eval() first."
            )


def plain_name(name: str) -> str:
    """The name of a part or a parameter without what a bridge puts around parts."""
    return name.replace("._original_component", "")


def check_weights(model: torch.nn.Module) -> None:
    """Refuse weights that are not loaded, were made in inference mode, or are not finite.

    Raises:
        ModelError: names the first such parameter.
    """
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ModelError(
                f"The weights are not loaded ({name!r} is on the device 'meta'). Load the model with "
                "its weights, not under torch.device('meta')."
            )
        if parameter.is_inference():
            raise ModelError(
                f"The weights were made inside torch.inference_mode() ({name!r}), so they can give no "
                "gradients. Load the model outside of it, or with icl_mech.load_model."
            )
        if not torch.isfinite(parameter).all():
            raise ModelError(
                f"The weights hold NaN or infinite values (first in {name!r}); the file is damaged "
                "or was converted to a too narrow dtype. Load it again, for example in float32."
            )


def check_model(model: LanguageModel) -> None:
    """Run all checks.

    Raises:
        ModelError: says what was found and what was expected.
    """
    check_eval_mode(model.module)
    check_weights(model.module)
    with torch.no_grad():
        probe = _Probe(model)
        probe.readout()
        probe.causal()
        probe.patterns()
        probe.only_attention()
        probe.padding()


@contextmanager
def foreign_errors(model: torch.nn.Module) -> Iterator[None]:
    """Errors of the model's own library become refusals of the model.

    Raises:
        ModelError: with the library's words.
    """
    try:
        yield
    except ModelError:
        raise
    except _FOREIGN_ERRORS as error:
        family = type(getattr(model, "original_model", model)).__name__
        raise ModelError(
            f"{family} cannot be analysed: a pass over a few tokens failed with "
            f"{type(error).__name__}: {error}. Use a model of another family, or another dtype."
        ) from error


class _Probe:
    """Runs random tokens through the model; ids are fixed by a seed."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, model.info.d_vocab, (2, _LONG), generator=generator)
        self.tokens = ids.to(model.device)
        self.plain = self._logits(self.tokens[:1])
        if not bool(self.plain.isfinite().all()):
            raise ModelError(
                f"{model.info.architecture} gives NaN or infinite logits for a few random tokens in "
                f"{model.info.dtype}. Load it in a dtype of wider range: 'bfloat16' or 'float32'."
            )
        self.tolerance = tolerance(model.info.dtype, self.plain)

    def _logits(self, tokens: Tensor, hooks: Sequence[Hook] = ()) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        output = self.model.forward(tokens, mask, positions, hooks=hooks)
        return self.model.logits(output.residual).cpu().double()

    def readout(self) -> None:
        with undiminished(self.model.info.dtype):
            own = self.model.own_logits(self.tokens[:1]).cpu().double()
        gap = float((own - self.plain).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(
                f"unembed(ln_final(last residual)) differs from the model's own logits by {gap:.2g} "
                f"(allowed {self.tolerance:.2g}); the readout of {self.model.info.architecture} is not "
                "understood, so lens and label logits would be wrong."
            )
        labels = self.tokens[:1, :3]
        residual_row = self.plain[:, -1]
        positions = torch.arange(_LONG, device=self.tokens.device)[None]
        output = self.model.forward(self.tokens[:1], positions >= 0, positions)
        columns = self.model.label_logits(output.residual[:, -1], labels).cpu().double()
        gap = float((columns - residual_row.gather(1, labels.cpu())).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(f"Label columns differ from the full logits by {gap:.2g}.")

    def causal(self) -> None:
        changed = self.tokens[:1].clone()
        changed[0, -1] = (changed[0, -1] + 1) % self.model.info.d_vocab
        gap = float((self._logits(changed)[:, :-1] - self.plain[:, :-1]).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(
                f"Earlier positions see later tokens (logits change by {gap:.2g}): this is an encoder "
                "or a prefix model; a causal decoder is needed."
            )

    def patterns(self) -> None:
        layers = range(self.model.info.n_layers)
        seen: list[list[Tensor]] = [[] for _ in layers]
        self._logits(self.tokens[:1], [(Site("pattern", la), seen[la].append) for la in layers])
        for layer, patterns in enumerate(seen):
            if len(patterns) != 1:
                raise ModelError(
                    f"The attention pattern of block {layer} was reported {len(patterns)} times in "
                    "one pass; expected once."
                )
        sums = [patterns[0].float().sum(-1) for patterns in seen]
        rows = torch.stack(sums)
        if float(rows.max()) > 1 + 1e-2:
            raise ModelError(f"Attention rows sum to up to {float(rows.max()):.3f}, expected 1.")
        if float(rows.min()) < 1 - 1e-2:
            note = "attention rows sum to less than 1 (attention sinks)"
            self.model.info = replace(self.model.info, notes=(*self.model.info.notes, note))
        for layer in {0, self.model.info.n_layers - 1}:
            edited = self._logits(self.tokens[:1], [(Site("pattern", layer), torch.zeros_like)])
            if torch.equal(edited, self.plain):
                raise ModelError(
                    f"Editing the attention of block {layer} does not change the output of "
                    f"{self.model.info.architecture}: its attention cannot be intervened on."
                )

    def only_attention(self) -> None:
        """With all patterns zero, earlier tokens must not matter."""
        cut = [(Site("pattern", la), torch.zeros_like) for la in range(self.model.info.n_layers)]
        changed = self.tokens[:1].clone()
        changed[0, 0] = (changed[0, 0] + 1) % self.model.info.d_vocab
        rows = [self._logits(tokens, cut)[:, 1:] for tokens in (self.tokens[:1], changed)]
        gap = float((rows[0] - rows[1]).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(
                f"With all attention cut, later positions of {self.model.info.architecture} still see "
                f"earlier tokens (logits change by {gap:.2g}): something beside attention, such as a "
                "state-space or convolution layer, mixes positions, so what attention carries would "
                "not be the whole flow. Use a model that mixes positions by attention alone."
            )

    def padding(self) -> None:
        tokens = self.tokens.clone()
        pad = _LONG - _SHORT
        tokens[1, :pad] = 0
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[1, :pad] = False
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self.model.forward(tokens, mask, positions)
        padded = self.model.logits(output.residual[:, -1]).cpu().double()
        single = self._logits(self.tokens[1:, pad:])[:, -1]
        gap = float((padded[1:] - single).abs().max())
        gap = max(gap, float((padded[:1] - self.plain[:, -1]).abs().max()))
        if not gap <= self.tolerance:
            raise ModelError(
                f"A left-padded batch differs from its prompts run singly by {gap:.2g} (allowed "
                f"{self.tolerance:.2g}); {self.model.info.architecture} mishandles padding."
            )
