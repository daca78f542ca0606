"""Whether a model is the one that something was made with: a lens, keys and values, a checkpoint.

What was made is used again in another process, perhaps in another number format or under another
library; so the model is recognised by what it does to a few tokens, not by the bytes of its weights.
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
"""Tokens whose residual tells models of the same name apart."""


class Residuals(OfLast, Reading[Tensor]):
    """The residual entering the final norm, at every position of prompts of one length."""

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """All of it."""
        return activation.float()


def probe_tokens(model: LanguageModel) -> list[int]:
    """Tokens to probe with where there are no prompts."""
    return [(1 + 7 * place) % model.info.d_vocab for place in range(PROBE)]


def probe(model: LanguageModel, tokens: Sequence[int]) -> Float[Tensor, "pos d_model"]:
    """Residuals at the first tokens of the plain model, whatever it is used with."""
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
    """Refuse another model than keys and values were made with.

    Args:
        model: The model given.
        made_with: Facts about the other, as provenance records them.
        tokens: What the other was probed with.
        probed: What `probe` gave there.

    Raises:
        ModelError: says in what it differs.
    """
    given = asdict(model.info)
    for name in SAME:
        if made_with[name] != given[name]:
            raise ModelError(
                f"This context was made with {made_with['name']!r} ({name} {made_with[name]}), the model "
                f"given is {given['name']!r} ({name} {given[name]}); keys and values of one model mean "
                "nothing to another. Compress the demonstrations again with this one."
            )
    if not is_like(model, tokens, probed, half=made_with["dtype"] not in WIDE):
        raise ModelError(
            f"The model given is called {made_with['name']!r} like the one this context was made with, "
            "but has other weights. Compress the demonstrations again with this one."
        )


def is_like(
    model: LanguageModel, tokens: Sequence[int], probed: Float[Tensor, "pos d_model"], *, half: bool
) -> bool:
    """True if the model gives the residuals that `probe` gave, but for rounding.

    Half precision differs between devices by about 1 %, other weights by far more.
    """
    residuals = probe(model, tokens)
    gap = float((residuals.double() - probed.double()).norm())
    return gap <= (0.05 if half else 1e-3) * float(probed.norm())


def check_same_weights(model: LanguageModel, made: Result, what: str, remedy: str) -> None:
    """Refuse a result of other weights than the model's, as far as it says of which it is.

    Raises:
        RunError: says what to do.
    """
    recorded = made.provenance.get("model", {})
    if recorded.get("weights") not in (None, model.fingerprint()):
        raise RunError(
            f"{what} of other weights ({recorded.get('name')!r}) than {model.info.name!r} has; {remedy}."
        )


def check_own_weights(model: LanguageModel, what: str) -> None:
    """Refuse processed weights, whose heads have other outputs than the checkpoint's.

    Raises:
        RunError: says how to load the model.
    """
    if model.info.processed_weights:
        raise RunError(
            f"{what} is defined on the checkpoint's own weights, but the weights of {model.info.name!r} are "
            "processed (norms folded or weights centred). Load it with icl_mech.load_model, or with "
            "HookedTransformer.from_pretrained_no_processing."
        )
