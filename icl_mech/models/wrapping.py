"""A loaded Hugging Face model becomes a `TransformerBridge` that computes the same logits."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError
from icl_mech.models.checks import tolerance
from icl_mech.models.conversion import LOAD_ERRORS
from icl_mech.models.watching import Watch

WRAP_ERRORS = (*LOAD_ERRORS, AssertionError, AttributeError, NotImplementedError)
"""What TransformerLens raises on models it does not fit."""


def wrap_loaded(hf_model: Any, tokenizer: Any, name: str, dtype: torch.dtype, device: str) -> Any:
    """A `TransformerBridge` in eval mode around a model that is where it should be.

    Raises:
        ModelError: TransformerLens cannot wrap it, or the bridge computes something else.
    """
    from icl_mech.models import transformer_lens

    with torch.no_grad():
        try:
            own = _logits(hf_model)
            with _own_tokens(tokenizer):
                bridge = transformer_lens.boot_bridge(
                    hf_model, tokenizer, name=name, dtype=dtype, device=device
                )
            wrapped = _logits(bridge.original_model)
        except ModelError:
            raise
        except WRAP_ERRORS as error:
            words = str(error).split(" Available architectures")[0]  # more than a hundred
            raise ModelError(
                f"TransformerLens {version('transformer-lens')} cannot wrap {name!r} "
                f"({type(hf_model).__name__}): {type(error).__name__}: {words} Use a model of a "
                "family it supports, for example load_model('gpt2')."
            ) from error
    gap = float((wrapped - own).abs().max())
    # In float64 TransformerLens computes some parts in float32.
    allowed = max(tolerance(kind, own) for kind in ("float32", str(dtype).removeprefix("torch.")))
    if not gap <= allowed and bool(own.isfinite().all()):
        if hooks := Watch(hf_model).foreign_hooks():
            raise ModelError(
                f"{name!r} has hooks of your own that a bridge does not run as the model does: "
                f"{'; '.join(hooks[:3])}. Take them off, and put them on what load_model returns."
            )
        raise ModelError(
            f"TransformerLens {version('transformer-lens')} wraps {name!r} "
            f"({type(hf_model).__name__}) wrongly: logits differ from the model's own by "
            f"{gap:.2g} (allowed {allowed:.2g}). Use a model of another family."
        )
    return bridge


def _logits(hf_model: Any) -> Tensor:
    """Of a few tokens, as the model itself computes them."""
    embedding = hf_model.get_input_embeddings()
    ids = torch.arange(3, 14, device=embedding.weight.device)[None] % embedding.weight.shape[0]
    logits: Tensor = hf_model(ids, use_cache=False).logits
    return logits.float()


@contextmanager
def _own_tokens(tokenizer: Any) -> Iterator[None]:
    """Keeps TransformerLens from changing how texts become tokens.

    A tokenizer not declared to add a BOS token would be loaded again, from the main revision, as
    one that does, whether or not the model has seen texts begin that way.
    """
    declared = dict(tokenizer.init_kwargs)
    try:
        tokenizer.init_kwargs["add_bos_token"] = True
        yield
    finally:
        tokenizer.init_kwargs = declared
