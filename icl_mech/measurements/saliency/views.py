"""One prompt of saliency maps as text and as arcs; see `SaliencyMaps.view` and `.arcs`."""

from collections.abc import Sequence

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.plots.arcs import arcs_view
from icl_mech.plots.prompt_view import Text, View, prompt_view


def text_view(
    text: Text,
    maps: Float[Tensor, "layer dest src"],
    layer: int | None,
    into: int | str | None,
    out_of: int | str | None,
) -> View:
    """The text coloured by saliency into a token (default: the target) or out of one.

    Raises:
        ResultError: no such layer or token, or both `into` and `out_of`.
    """
    values, where = _chosen(maps, layer)
    if into is not None and out_of is not None:
        raise ResultError("Give into= or out_of=, not both: a token that reads, or one read.")
    if out_of is not None:
        token = text.position(out_of, "out_of")
        numbers, name = values[:, token], f"saliency out of {text.name(token)}, {where}"
    else:
        token = text.position("target" if into is None else into, "into")
        numbers, name = values[token], f"saliency into {text.name(token)}, {where}"
    return prompt_view(text, numbers.tolist(), name=name)


def edge_view(
    text: Text, maps: Float[Tensor, "layer dest src"], layer: int | None, top: int
) -> View:
    """The strongest edges as arcs.

    Raises:
        ResultError: no such layer, or `top` below 1.
    """
    values, where = _chosen(maps, layer)
    return arcs_view(text, values, name=f"saliency, {where}", top=top)


def text_of(tokens: Sequence[str], roles: Sequence[str]) -> Text:
    """Tokens with their roles."""
    return Text(tuple(tokens), tuple(roles))


def _chosen(
    maps: Float[Tensor, "layer dest src"], layer: int | None
) -> tuple[Float[Tensor, "dest src"], str]:
    """A map, and which one it is."""
    if layer is None:
        return maps.mean(0), f"mean over {len(maps)} layers"
    if not 0 <= layer < len(maps):
        raise ResultError(f"layer={layer}; the model has {len(maps)} layers.")
    return maps[layer], f"layer {layer}"
