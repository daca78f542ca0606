"""One prompt as text: the data of the HTML template and of the script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icl_mech.plots.pieces import InText, breaks, in_text
from icl_mech.plots.prompt_style import ROLE_NAMES
from icl_mech.plots.strips import coarse
from icl_mech.reports.model import PromptText, TokenValues
from icl_mech.shapes import TokenStrips

LEGEND = {
    "demo_text": "demonstration",
    "rationale": "rationale",
    "label_word": "label word",
    "format": "template",
    "bos": "template",
    "narrative": "template",
    "query_text": "query",
    "span": "text in a span",
    "target": "target, where the answer is read",
}
"""Labels of the legend, by role; roles with the same label share one entry."""


@dataclass(frozen=True)
class Token:
    """One token as it is displayed.

    Attributes:
        text: Its visible text, with its line breaks; empty if it continues a character.
        name: The token as sentences name it.
        role: Its role.
        about: Position, role, demonstration and id, in words.
        mark: Label of its frame, or "".
        shared: It contains characters of two roles.
    """

    text: str
    name: str
    role: str
    about: str
    mark: str
    shared: bool


@dataclass(frozen=True)
class ShownPrompt:
    """A prompt with the data its HTML template needs.

    Attributes:
        id: Id of its HTML element.
        tokens: Its tokens.
        legend: Role and label of each legend entry.
        layers: Number of layers of the map by which it can be coloured; 0: there is none.
        coloured: Further values by which it can be coloured.
        framed: Meaning of the frames.
    """

    id: str
    tokens: Sequence[Token]
    legend: Sequence[tuple[str, str]]
    layers: int
    coloured: TokenValues | None
    framed: str

    @classmethod
    def of(cls, text: PromptText, name: str, own_map: Mapping[str, Any] | None) -> "ShownPrompt":
        """The prompt, with the map of its tokens if there is one."""
        used = {LEGEND[role]: role for role in LEGEND if role in text.roles}
        return cls(
            name,
            [_token(text, i, shown) for i, shown in enumerate(in_text(text.tokens))],
            [(role, words) for words, role in used.items()],
            own_map["layers"] if own_map and own_map["blob"] else 0,
            text.coloured,
            ", ".join(dict.fromkeys(mark for mark in text.marks if mark)),
        )

    def data(self, text: PromptText, mapped: str) -> dict[str, Any]:
        """The data the script needs; `mapped` is the id of the map."""
        coloured = self.coloured
        rows = coloured.values.tolist() if coloured else []
        return {
            "map": mapped if self.layers else "",
            "names": [token.name for token in self.tokens],
            "about": [token.about for token in self.tokens],
            "values": coarse(rows),
            "rows": list(coloured.names) if coloured else [],
            "heads": [list(head) for head in coloured.heads] if coloured else [],
            "quantity": coloured.quantity if coloured else "",
        }


def _token(text: PromptText, i: int, shown: InText) -> Token:
    piece, role = text.tokens[i], text.roles[i]
    mark = text.marks[i] if text.marks else ""
    demo = text.demos[i] if text.demos else None
    about = [f"position {i}", ROLE_NAMES.get(role, role)]
    if demo is not None:
        about += [f"span {demo}" if "span" in text.roles else f"demonstration {demo + 1}"]
    about += [f"token id {text.ids[i]}"] if text.ids else []
    about += [shown.about] if shown.about else []
    about += [mark] if mark else []
    about += ["contains characters of two roles"] if (shared := i in text.shared) else []
    visible = shown.text + "\n" * breaks(piece)
    return Token(visible, shown.name, role, ", ".join(about), mark, shared)


def strips_text(shape: TokenStrips) -> PromptText:
    """Numbers over the tokens of a prompt as the text of the prompt."""
    roles = tuple("label_word" if mark else "unknown" for mark in shape.marks)
    names = tuple(f"{layer}.{head}" for layer, head in shape.heads) or shape.names
    values = TokenValues(names, shape.values, shape.quantity, shape.heads, shape.first)
    return PromptText("", shape.tokens, roles, marks=shape.marks, coloured=values)
