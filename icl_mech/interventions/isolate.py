"""`Isolate`: anchors (or random tokens) no longer attend to anything before them; a special case of `Cut`.

In the chosen layers attention from row `p` to all columns before `p` is removed:
`mask` sets the scores to -inf before softmax, so the row becomes one-hot on `p` (the
reference code); `zero` sets the pattern to 0 after softmax, without renormalising (the
paper's text). Only the row of a label word's first token is cut.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions.base import Intervention
from icl_mech.interventions.cut import Cut, Mode, NamedCut
from icl_mech.interventions.token_sets import Name, Redraw, TokenSet
from icl_mech.prompts import Prompt

Tokens = Literal["label", "random"]


@dataclass(frozen=True, eq=False, repr=False)
class Isolate(NamedCut, Intervention):
    """Cut tokens off from everything before them.

    Attributes:
        layers: Blocks in which they are isolated.
        tokens: `label` words (in texts, the ends of spans), or as many `random` other tokens.
        mode: `mask` (before softmax) or `zero` (after).
        redraw: Random tokens: one draw per demonstration `set` (among the demonstrations'
            tokens, not the first token), per `prompt` (among `0 < i < q - 1`), or per prompt
            and `layer` (the reference, may draw position 0).
        positions: Given positions instead, one tuple per prompt of the run.
        seed: Seed of the draw.
    """

    layers: Sequence[int]
    tokens: Tokens = "label"
    mode: Mode = "mask"
    redraw: Redraw = "set"
    positions: Sequence[Sequence[Natural]] | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice, or no layers.
        """
        super().__post_init__()
        object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))
        if not self.layers:
            raise RunError(
                "Isolate needs at least one layer. To run without isolation, omit the intervention."
            )

    @cached_property
    def cut(self) -> Cut:
        """The `Cut` of everything before the tokens from the tokens."""
        at: Name = "anchors" if self.tokens == "label" else "random"
        rows = TokenSet(at, positions=self.positions, redraw=self.redraw, seed=self.seed)
        return Cut("before", rows, layers=self.layers, mode=self.mode)

    def isolated(self, prompt: Prompt, index: int, layer: int) -> tuple[int, ...]:
        """Isolated positions of one prompt (number `index` of the run) in one layer."""
        ((rows, _),) = self.cut.blocks(prompt, index, layer)
        return tuple(rows)
