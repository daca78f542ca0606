"""How lenses are called, and the likeliest words of their entries: decoded, as a table, in a sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech._typing import Float, Int, Tensor
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.results import Figure, Result
from icl_mech.results.wording import told
from icl_mech.shapes import LensTable

AFTER = "read after layer … (0: the embedding)"
"""The axis of lens entries: one convention for all figures of a page."""

NAMES = {"logit": "logit lens", "tuned": "tuned lens", "jacobian": "Jacobian lens"}
"""How lenses are called."""

_FITTED = (
    "that the model itself uses what the lens finds: a fitted map may read what no later block reads. "
    "Nor anything of texts unlike those it was fitted on."
)

LIMITS = {
    "logit lens": "that an earlier layer knows nothing else: the lens reads only what stands in the last "
    "layer's directions.",
    "tuned lens": _FITTED,
    "Jacobian lens": _FITTED,
}
"""What a lens does not establish, by its name."""


def lens_name(result: Result) -> str:
    """How the lens is called that a result was read with, by its provenance."""
    used = result.provenance.get("variants", {}).get("lens")
    return NAMES[used["lens"] if used else "logit"]


def noted(result: Result) -> str:
    """A fitted lens before the note of a figure; nothing for the logit lens."""
    name = lens_name(result)
    return "" if name == NAMES["logit"] else f"{name}; "


def decoded(tokens: Int[Tensor, "*rows"] | None, tokenizer: Any) -> dict[str, str]:
    """The text of every token that occurs, by its id; nothing without a tokenizer."""
    if tokens is None or tokenizer is None:
        return {}
    ids = tuple(int(token) for token in tokens.unique())
    return dict(zip(map(str, ids), TextTokenizer(tokenizer).words(ids), strict=True))


def in_order(tokens: Int[Tensor, " label"], tokenizer: Any) -> tuple[str, ...]:
    """Texts of tokens, in their order; nothing without a tokenizer."""
    words = decoded(tokens, tokenizer)
    return tuple(words[str(int(token))] for token in tokens) if words else ()


def word_table(
    columns: Sequence[str],
    tokens: Int[Tensor, "column layer k"],
    probs: Float[Tensor, "column layer k"],
    words: Mapping[str, str],
    *,
    title: str,
    labels: Sequence[str] = (),
    **more: Any,
) -> LensTable:
    """The likeliest words after each layer, one column for each thing that was read."""
    return LensTable(
        title=title,
        columns=tuple(columns),
        words=tuple(
            tuple(tuple(words.get(str(token), f"token {token}") for token in row) for row in column)
            for column in tokens.tolist()
        ),
        probs=probs.double(),
        bold=tuple(labels),
        **more,
    )


def settled(tokens: Int[Tensor, " layer"]) -> int:
    """First layer from which the likeliest word stays the last layer's."""
    same = (tokens == tokens[-1]).flip(0).int().cummin(0).values
    return len(tokens) - int(same.sum())


def ends(
    tokens: Int[Tensor, "layer k"], probs: Float[Tensor, "layer k"], words: Mapping[str, str]
) -> str:
    """The last layer's word with its probability, and from which layer on it is first."""
    word = words.get(str(int(tokens[-1, 0])), f"token {int(tokens[-1, 0])}")
    word, layer = word.strip() or repr(word), settled(tokens[:, 0])
    return f"“{word}” ({told(float(probs[-1, 0]))}), first from layer {layer} on"


def first_words(columns: Mapping[str, str], *, prompts: int, labels: bool, lens: str) -> Figure:
    """Which word each layer would say next, of the first prompt.

    Args:
        columns: What each ends with, see `ends`.
        prompts: Number of prompts measured.
        labels: Label words stand in bold.
        lens: What the lens is called.
    """
    parts = [f"{name}: {said}" for name, said in columns.items()]
    which = "the only prompt" if prompts == 1 else f"prompt 1 of {prompts}"
    return Figure(
        "words",
        "What would each layer say next?",
        f"On {which} the model ends with – {'; '.join(parts)}.",
        f"**The likeliest next word after each layer** (the {lens}), coloured by its probability over "
        f"the whole vocabulary, on {which}. Layer 0 is the embedding."
        + (" Label words are bold." if labels else "")
        + " Pointing shows the next words too.",
        "",
        f"anything of other prompts: it is an example. Nor {LIMITS[lens]}",
        "Top words by layer",
    )
