"""`FittedLens`: a map, fitted to a model, between the residual stream and the readout.

A fitted lens maps entry `l` of the residual stream (`h_l`, the input of block `l`) to the input of the
final norm and the unembedding; the last entry has no map and gives the model's logits. A lens
belongs to one model, which is recognised by a digest of its unembedding and by the outputs of its
blocks on a few tokens.
"""

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeGuard, TypeVar, get_type_hints

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import conformed
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.same_model import WIDE, is_like, probe, probe_tokens
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Status

_ROWS = 4096
"""Number of rows of the unembedding read at a time."""

_UNEMBEDDED = 64
"""Residuals unembedded to the whole vocabulary at a time."""

HELD_OUT_KL = Definition(
    "held-out KL",
    r"\operatorname{KL}(p \,\|\, q_\ell) = \sum_v p(v) \log \frac{p(v)}{q_\ell(v)}",
    "Divergence of the next-token distribution q that a lens reads at layer l from the model's "
    "final distribution p, over the whole vocabulary, in nats; on prompts that the lens was not "
    "fitted on.",
)


Lens = TypeVar("Lens", bound="FittedLens")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedLens(Result):
    """Base class of all fitted lenses.

    Attributes:
        readout: Digest of the unembedding it was fitted for, see `readout_digest`.
        probe: Outputs of the blocks of that model on a few tokens; None in lenses of earlier versions.
        held_out_kl: KL(model || lens) in nats at every entry, for each held-out prompt; next to it the KL of
            the plain logit lens. None where it was not measured.
        training: Settings of the fit.
    """

    kind: ClassVar[str] = ""
    """The type of lens, `tuned` or `jacobian`."""

    readout: str
    probe: Float[Tensor, "pos d_model"] | None = None
    held_out_kl: Float[Tensor, "batch lens layer"] | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that its tensors fit together.

        Raises:
            ResultError: names the field.
        """
        axes = get_type_hints(type(self))
        for name, tensor in self.maps().items():
            conformed(name, tensor, axes[name], ResultError)
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise ResultError(
                    f"{name} of the {self.kind} lens contains values that are not finite numbers."
                )
            if tensor.shape[0] != self.n_layers or set(tensor.shape[1:]) != {self.width}:
                raise ResultError(
                    f"{name} of the {self.kind} lens has the shape {list(tensor.shape)}; expected "
                    f"{self.n_layers} layers of width {self.width}."
                )

    @classmethod
    def stem(cls) -> str:
        """Stem of the text and plot files, which all fitted lenses share."""
        return "fitted_lens"

    @classmethod
    def made(cls: type[Lens], model: LanguageModel, training: dict[str, Any], **maps: Any) -> Lens:
        """Build a lens from these maps that recognises its model by the unembedding and by the outputs of the blocks."""
        return cls(
            readout=readout_digest(model),
            probe=probe(model, probe_tokens(model)),
            training={"model": model.info.name, **training},
            **maps,
        )

    @classmethod
    def made_elsewhere(cls: type[Lens], model: Any, what: str, **maps: Any) -> Lens:
        """Build a lens for this model from maps that were fitted elsewhere."""
        adapted = adapt(model)
        lens = cls.made(adapted, {what: "given"}, **maps)
        lens.check_model(adapted)
        return lens

    @abstractmethod
    def maps(self) -> dict[str, Tensor]:
        """The lens' tensors by name, one row per entry but the last."""

    @abstractmethod
    def through(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Apply the map of an entry to its residuals."""

    @property
    def called(self) -> str:
        """Its name in texts: `tuned lens` or `Jacobian lens`."""
        return f"{self.kind if self.kind == 'tuned' else self.kind.capitalize()} lens"

    @property
    def n_layers(self) -> int:
        """Number of entries with a map: one per block."""
        return next(iter(self.maps().values())).shape[0]

    @property
    def width(self) -> int:
        """Size of the residual stream."""
        return next(iter(self.maps().values())).shape[-1]

    def mapped(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Input of final norm and unembedding for an entry; the last entry is left unchanged."""
        if entry == self.n_layers:
            return rows
        # Half-precision models are mapped in float32, so that no map means no change.
        wide = torch.promote_types(rows.dtype, torch.float32)
        return self.through(entry, rows.to(wide)).to(rows.dtype)

    def check_model(self, model: LanguageModel) -> None:
        """Reject any model but the one the lens was fitted for.

        Raises:
            RunError: names what differs.
        """
        size, given = (self.n_layers, self.width), (model.info.n_layers, model.info.d_model)
        if size != given:
            raise RunError(
                f"This {self.kind} lens has {size[0]} layers of width {size[1]}, but "
                f"{model.info.name!r} has {given[0]} of width {given[1]}. Fit a lens for this "
                "model."
            )
        if readout_digest(model) != self.readout:
            fitted = self.training.get("model", "another model")
            raise RunError(
                f"This {self.kind} lens was fitted for {fitted}, but {model.info.name!r} as loaded "
                "has a different unembedding. Fit a lens for it, or load the model with the "
                "weights the lens was fitted for."
            )
        if self.probe is None:
            warnings.warn(
                f"This {self.kind} lens was saved by an earlier version and records only the "
                "unembedding of its model, so it cannot be checked whether the blocks are the "
                "same.",
                stacklevel=2,
            )
            return
        half = not {model.info.dtype, self.training.get("dtype", "float32")} <= {*WIDE}
        if not is_like(model, probe_tokens(model), self.probe, half=half):
            raise RunError(
                f"This {self.kind} lens was fitted for other weights than those of "
                f"{model.info.name!r}: the unembedding is the same, but the blocks differ. Fit a "
                "lens for this model."
            )

    def to_dict(self) -> dict[str, Any]:
        """Provenance record: the type of lens, the settings of its fit, and a digest of its maps."""
        parts = [tensor.detach().cpu().contiguous() for tensor in self.maps().values()]
        digest = hashlib.sha256()
        for tensor in parts:
            digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
        return {
            "lens": self.kind,
            "readout": self.readout,
            "digest": digest.hexdigest()[:32],
            "training": self.training,
        }

    # --- held-out numbers ---

    def quantities(self) -> dict[str, Quantity]:
        """Held-out KL by lens and entry, and its paired reduction under the fitted lens."""
        if self.held_out_kl is None:
            return {}
        fitted, logit = self.held_out_kl.double().unbind(1)
        return {
            "kl": Quantity(
                ("lens", "layer"), self.held_out_kl, unit="KL(model || lens) in nats", kind="amount"
            ),
            "saved": Quantity(("layer",), logit - fitted, unit="nats less than the logit lens"),
        }

    def coordinates(self) -> dict[str, tuple[str, str]]:
        """Names of the lenses; layers are entries, 0 the embedding."""
        return {"lens": (self.kind, "logit")}

    @property
    def better(self) -> int:
        """Number of entries but the last at which the held-out KL is below that of the logit lens."""
        saved = self.quantities().get("saved")
        return 0 if saved is None else int((saved.value()[:-1] > 0).sum())

    @cached_property
    def clearly_better(self) -> int:
        """Number of entries but the last at which the held-out KL is clearly below that of the logit lens."""
        saved = self.quantities().get("saved")
        return 0 if saved is None else int((saved.ends()[0][:-1] > 0).sum())

    @property
    def count(self) -> int:
        """Number of held-out prompts."""
        return 0 if self.held_out_kl is None else len(self.held_out_kl)

    @property
    def status(self) -> Status:
        """Status of the claim that the lens is clearly better at most entries."""
        if self.count < FEWEST_PROMPTS:
            return "cannot be judged"
        return "supported" if 2 * self.clearly_better > self.n_layers else "not shown"

    @property
    def mean_kl(self) -> tuple[float, float] | None:
        """Held-out KL of the fitted and of the logit lens, averaged over prompts and entries but the last."""
        if self.held_out_kl is None:
            return None
        fitted, logit = self.held_out_kl.unbind(1)
        return float(fitted[:, :-1].mean()), float(logit[:, :-1].mean())

    def on_page(self) -> tuple[str, ...]:
        """Nothing if no prompts were held out."""
        return () if self.held_out_kl is None else self.shows


def check_lens(lens: FittedLens | None, model: LanguageModel, variant: str = "sound") -> None:
    """Reject a lens of another model, and any lens with the reference variant.

    Raises:
        RunError: says which.
    """
    if lens is None:
        return
    if variant != "sound":
        raise RunError(
            f"variant={variant!r} is the paper's logit lens and cannot use a fitted lens. Leave "
            "out lens=, or use variant='sound'."
        )
    lens.check_model(model)


def lens_used(result: Result) -> str:
    """The lens a result was read with, from its provenance: `logit`, or the kind of a fitted one."""
    used = result.provenance.get("variants", {}).get("lens")
    return str(used["lens"]) if used else "logit"


def readout_digest(model: LanguageModel) -> str:
    """Digest that identifies an unembedding: SHA-256 of all its weights and biases, as float32.

    Weights stored in half precision give the same digest in whatever precision they are loaded.
    """
    digest = hashlib.sha256()
    for start in range(0, model.info.d_vocab, _ROWS):
        stop = min(start + _ROWS, model.info.d_vocab)
        ids = torch.arange(start, stop, device=model.device)[None]
        for part in model.readout(ids):
            if part is not None:
                digest.update(part.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def as_prompts(given: object) -> PromptBatch:
    """Prompts, or sequences of token ids as prompts without roles.

    Raises:
        PromptError: input that is neither.
    """
    if isinstance(given, PromptBatch):
        return given
    rows = given.tolist() if isinstance(given, Tensor) else given
    if not _is_list(rows) or not rows or not all(_is_list(row) and len(row) for row in rows):
        raise PromptError(
            "Expected a PromptBatch, or sequences of token ids such as [[1, 2, 3], [4, 5, 6]]; "
            f"found a {type(given).__name__}."
        )
    made = [
        Prompt.from_positions(row, label_positions=[], label_classes=[], label_tokens=[0, 1])
        for row in rows
    ]
    return PromptBatch(tuple(made), {"tokens": "given"})


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def kl(
    log_probs: Float[Tensor, "row vocab"], logits: Float[Tensor, "row vocab"]
) -> Float[Tensor, " row"]:
    """KL(p || q) in nats, from log p and the logits of q."""
    return (log_probs.exp() * (log_probs - logits.float().log_softmax(-1))).sum(-1)


@torch.no_grad()
def held_out_kl(
    lens: Lens, model: LanguageModel, residuals: Float[Tensor, "batch entry place d_model"]
) -> Lens:
    """The lens with its held-out KL and that of the logit lens, averaged over the places of each prompt."""
    divergence = torch.zeros(len(residuals), 2, residuals.shape[1], dtype=torch.float64)
    for number, prompt in enumerate(residuals):
        for rows in prompt.to(model.device).split(_UNEMBEDDED, dim=1):
            log_probs = model.logits(rows[-1]).float().log_softmax(-1)
            for entry in range(lens.n_layers):
                for place, read in enumerate((lens.mapped(entry, rows[entry]), rows[entry])):
                    divergence[number, place, entry] += float(
                        kl(log_probs, model.logits(read)).double().sum()
                    )
    return replace(lens, held_out_kl=divergence / residuals.shape[2])
