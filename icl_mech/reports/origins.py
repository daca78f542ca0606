"""Provenance as a list of names and values that can be read."""

from collections.abc import Iterable, Mapping
from typing import Any

from icl_mech.results import jsonable

HIDDEN = ("d_model", "d_head", "d_vocab", "n_ctx", "n_kv_heads", "notes")
"""Facts of a model that its name implies."""


def origin_rows(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values, nested ones joined; what is empty is left out."""
    return [
        (name.replace("_", " "), text)
        for name, value in jsonable(provenance).items()
        if (text := _text(value))
    ]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(
            f"{key.replace('_', ' ')}: {f'({text})' if isinstance(own, Mapping) else text}"
            for key, own in value.items()
            if key not in HIDDEN and (text := _text(own))
        )
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _listed(values: Iterable[Any]) -> str:
    texts = [
        f"({text})" if isinstance(own, Mapping) else text for own in values if (text := _text(own))
    ]
    return ", ".join(texts)
