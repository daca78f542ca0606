"""Checks that a model is the one an artefact was made with: a lens, keys and values, a checkpoint.

Artefacts are reused in other processes, perhaps in another number format or with another library, so a model is
identified by its residuals on a few tokens, not by the bytes of its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Reading, run
from icl_mech.engine.readings import OfLast
from icl_mech.errors import ModelError, RunError
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Result
from icl_mech.segments import Segment

SAME = (
    "name",
    "architecture",
    "revision",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "d_model",
    "d_head",
    "d_vocab",
    "dtype",
    "processed_weights",
)
"""Facts about a model that keys and values depend on."""

WIDE = ("float32", "float64")

PROBE = 4
"""Number of tokens whose residuals distinguish models of the same name."""


class Residuals(OfLast, Reading[Tensor]):
    """The residual entering the final norm, at every position of prompts of one length."""

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return the whole residual in float32."""
        return activation.float()


def probe_tokens(model: LanguageModel) -> list[int]:
    """Tokens to probe with where there are no prompts."""
    return [(1 + 7 * place) % model.info.d_vocab for place in range(PROBE)]


def probe(model: LanguageModel, tokens: Sequence[int]) -> Float[Tensor, "pos d_model"]:
    """Residuals of the unmodified model at the first tokens."""
    first = Prompt.from_positions(
        tokens[:PROBE], label_positions=[], label_classes=[], label_tokens=[]
    )
    (residuals,) = run(model, PromptBatch((first,)), [Residuals()], progress=False)
    residual: Tensor = residuals[0]
    return residual


def check_same_model(
    model: LanguageModel,
    made_with: Mapping[str, Any],
    tokens: Sequence[int],
    probed: Float[Tensor, "pos d_model"],
) -> None:
    """Reject a model that differs from the one that keys and values were made with.

    Args:
        model: The given model.
        made_with: Facts about the original model, as recorded in provenance.
        tokens: Tokens with which the original model was probed.
        probed: The residuals that `probe` returned for it.

    Raises:
        ModelError: names the difference.
    """
    given = asdict(model.info)
    for name in SAME:
        if made_with[name] != given[name]:
            raise ModelError(
                f"This context was made with {made_with['name']!r} ({name} {made_with[name]}), but "
                f"the model given is {given['name']!r} ({name} {given[name]}). Keys and values "
                "cannot be used with another model; compress the demonstrations again with this "
                "one."
            )
    if not is_like(model, tokens, probed, half=made_with["dtype"] not in WIDE):
        raise ModelError(
            f"The model given has the same name, {made_with['name']!r}, as the one this context "
            "was made with, but other weights. Compress the demonstrations again with this model."
        )


def is_like(
    model: LanguageModel, tokens: Sequence[int], probed: Float[Tensor, "pos d_model"], *, half: bool
) -> bool:
    """True if the model reproduces the residuals of `probe` up to rounding.

    Half precision differs between devices by about 1 %, other weights by far more.
    """
    residuals = probe(model, tokens)
    gap = float((residuals.double() - probed.double()).norm())
    return gap <= (0.05 if half else 1e-3) * float(probed.norm())


def check_same_weights(model: LanguageModel, made: Result, what: str, remedy: str) -> None:
    """Reject a result made with other weights than the model's, if it records its weights.

    Raises:
        RunError: says what to do.
    """
    recorded = made.provenance.get("model", {})
    if recorded.get("weights") not in (None, model.fingerprint()):
        raise RunError(
            f"{what} with other weights ({recorded.get('name')!r}) than {model.info.name!r} has; "
            f"{remedy}."
        )


def check_own_weights(model: LanguageModel, what: str) -> None:
    """Reject processed weights, whose head outputs differ from the checkpoint's.

    Raises:
        RunError: says how to load the model.
    """
    if model.info.processed_weights:
        raise RunError(
            f"{what} is defined on the checkpoint's own weights, but the weights of {model.info.name!r} are "
            "processed (norms folded or weights centred). Load it with icl_mech.load_model, or with "
            "HookedTransformer.from_pretrained_no_processing."
        )
