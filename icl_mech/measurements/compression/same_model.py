"""Whether a model is the one that keys and values were made with."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import ModelError
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

SAME = (
    "name", "architecture", "revision", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head",
    "d_vocab", "dtype", "processed_weights",
)  # fmt: skip

PROBE = 4
"""Tokens whose residual tells models of the same name apart."""


class Residuals(Reading[Tensor]):
    """The residual entering the final norm, at every position of prompts of one length."""

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """What the last block gives."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """All of it."""
        return activation.float()

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, pos, d_model]`."""
        return kept.stacked()[:, 0]


def probe(model: LanguageModel, tokens: Sequence[int]) -> Float[Tensor, "pos d_model"]:
    """Residuals at the first tokens of the plain model, whatever it is used with."""
    first = Prompt.from_positions(
        tokens[:PROBE], label_positions=[], label_classes=[], label_tokens=[]
    )
    (residuals,) = run(model, PromptBatch((first,)), [Residuals()], progress=False)
    found: Tensor = residuals[0]
    return found


def check_same_model(
    model: LanguageModel,
    made_with: dict[str, Any],
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
    found = probe(model, tokens)
    # Half precision differs between devices by about 1 %, other weights by far more.
    tolerance = 1e-3 if made_with["dtype"] in ("float32", "float64") else 0.05
    if float((found - probed).norm()) > tolerance * float(probed.norm()):
        raise ModelError(
            f"The model given is called {made_with['name']!r} like the one this context was made with, "
            "but has other weights. Compress the demonstrations again with this one."
        )
