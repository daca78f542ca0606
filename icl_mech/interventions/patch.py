"""`Patch`: activation patching, which replaces an activation by that of another run.

`a[site, layer, row] <- a*`, where `a*` is read from prompts whose roles align with those of the run
(each paired with the prompt of the same index, or their mean), or given. A run patched into itself is
bitwise unchanged: the source is laid out and run in the same way as the prompts.

Source: Vig et al. 2020, *Causal mediation analysis for interpreting neural NLP*; Meng et al. 2022,
*Locating and editing factual associations in GPT*; Todd et al. 2024, *Function vectors in large
language models*, §2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Heads, Natural, conformed
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import Intervention, Taken, check_layers, editable, plain
from icl_mech.interventions.places import NOWHERE, Place, Where
from icl_mech.models import Hook, HookFunction, ModelInfo, Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

PatchSite = Literal["z", "resid_pre", "resid_post", "attn_out", "mlp_out"]
"""Output of heads, residual stream before and after a block, and the outputs of attention and MLP."""


@dataclass(frozen=True, eq=False, repr=False)
class Patch(Intervention):
    """Replace activations by those of another run (activation patching).

    Attributes:
        site: `z` of heads, `resid_pre` or `resid_post` (before and after a block), `attn_out`,
            `mlp_out`.
        heads: (layer, head) pairs, with `z`.
        layers: Layers, with every other site.
        at: The `target`, all tokens of a role, `all` tokens, or positions.
        demo: Patch tokens of this demonstration only.
        source: Prompts whose run gives the values; their roles must align with those of the run.
        mean: Use the mean over the prompts of `source`, instead of the source prompt of the same index.
        values: Given values instead: one row per head or layer, optionally preceded by an axis of
            tokens, and that by an axis of prompts.
    """

    site: PatchSite
    heads: Sequence[Sequence[int]] = ()
    layers: Sequence[Natural] = ()
    at: Where = "target"
    demo: Natural | None = None
    source: PromptBatch | None = None
    mean: bool = False
    values: Float[Tensor, "*rows place width"] | None = None

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: heads or layers that do not match the site, or not exactly one of source and values.
        """
        object.__setattr__(self, "heads", conformed("heads", self.heads, Heads))
        super().__post_init__()
        of_heads = self.site == "z"
        chosen, unused = (self.heads, self.layers) if of_heads else (self.layers, self.heads)
        if unused or not chosen or len(set(chosen)) < len(chosen):
            needs = "heads=[(layer, head), ...]" if of_heads else "layers=[...]"
            raise RunError(
                f"A Patch of {self.site!r} needs {needs} without duplicates; got "
                f"heads={list(self.heads)} and layers={list(self.layers)}."
            )
        if (self.source is None) == (self.values is None):
            raise RunError(
                "A Patch needs exactly one of source= (prompts to take values from) and values= "
                "(the values themselves)."
            )
        if self.mean and self.source is None:
            raise RunError(
                "mean=True averages over the prompts of source=. If you give values=, average "
                "them yourself."
            )
        _ = self.place
        if self.values is not None and not (
            2 <= self.values.ndim <= 4 and self.values.shape[-2] == len(chosen)
        ):
            raise RunError(
                f"values has the axes {list(self.values.shape)}; expected [place, width], [row, "
                f"place, width] or [prompt, row, place, width] with {len(chosen)} places, one for "
                f"each {'head' if of_heads else 'layer'}."
            )

    @property
    def place(self) -> Place:
        """The place at which it acts."""
        return Place(self.at, self.demo)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Pairs (layer, head) of the rows of the values; head 0 at sites without heads."""
        pairs = self.heads if self.site == "z" else [(layer, 0) for layer in self.layers]
        return tuple((layer, head) for layer, head in pairs)

    def check(self, info: ModelInfo) -> None:
        """Reject layers, heads and sizes the model does not have.

        Raises:
            RunError: names them.
        """
        super().check(info)
        check_layers([layer for layer, _ in self.places], info, "Patch")
        wrong = [head for _, head in self.heads if not 0 <= head < info.n_heads]
        if wrong:
            raise RunError(f"Patch names head {wrong[0]}; heads are 0 to {info.n_heads - 1}.")
        width = info.d_head if self.site == "z" else info.d_model
        if self.values is not None and self.values.shape[-1] != width:
            raise RunError(
                f"The values have width {self.values.shape[-1]}, but {self.site!r} of "
                f"{info.name!r} has width {width}."
            )

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject prompts whose roles do not align with those the values come from.

        Raises:
            PromptError: which prompt does not, and why.
        """
        rows = self.place.rows(prompts)
        if self.source is not None:
            self.place.check_aligned(prompts, self.source, every=self.mean)
        if self.values is None or self.values.ndim < 3:
            return
        counts, given = (rows != NOWHERE).sum(1), self.values.shape[-3]
        needed = counts.max() if self.values.ndim == 4 else counts[(counts != given).nonzero()]
        if self.values.ndim == 4 and len(self.values) != len(prompts):
            raise PromptError(
                f"The values are for {len(self.values)} prompts, but the run has {len(prompts)}. "
                "Give values for as many prompts as are run."
            )
        if bool((needed != given).any()):
            raise PromptError(
                f"The values are for {given} tokens, but a prompt has {int(needed.flatten()[0])} "
                f"{self.place}."
            )

    @property
    def target_only(self) -> bool:
        """True if it acts at the target."""
        return self.place.only_target

    @property
    def by_number(self) -> bool:
        """True if every prompt has separate values."""
        return self.values.ndim == 4 if self.values is not None else not self.mean

    @property
    def first_layer(self) -> int:
        """The lowest layer with a patch."""
        return min(layer for layer, _ in self.places)

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if it changes nothing in the common prefix, or has the same values for every prompt."""
        return self.target_only or not self.by_number

    def taken_from(self) -> Taken | None:
        """The prompts and tokens its values are read from; None if it holds them."""
        if self.source is None or self.values is not None:
            return None
        sites = [Site(self.site, layer) for layer in sorted({layer for layer, _ in self.places})]
        rows = self.place.rows(self.source)
        return Taken(self.source, rows, sites, only_target=self.target_only)

    def missing(self) -> Sequence[Site]:
        """The sites to read first, if values are not given."""
        taken = self.taken_from()
        return () if taken is None else taken.sites

    def filled_from(self, values: Mapping[Site, Float[Tensor, "batch row *rest"]]) -> "Patch":
        """A copy that holds the values read at `taken_from`, by site."""
        by_place = [values[Site(self.site, layer)] for layer, _ in self.places]
        if self.site == "z":
            by_place = [
                value[:, :, head] for value, (_, head) in zip(by_place, self.places, strict=True)
            ]
        stacked = torch.stack(by_place, dim=2)
        if self.mean:
            stacked = stacked.double().mean(0).to(stacked.dtype)
        return replace(self, source=None, mean=False, values=stacked)

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook per layer."""
        batch, dest, slots = self._rows(segment)
        if not len(batch):
            return []
        if self.values is None:
            raise RunError(
                "A Patch has no values yet. Run it through an analysis or engine.run, which fill "
                "them in."
            )
        values = to_device(self.values, batch.device)
        if values.ndim == 4 and max(segment.indices) >= len(values):
            raise RunError(
                f"{self!r} holds values for {len(values)} prompts, but the run has more."
            )
        numbers = to_device(torch.tensor(segment.indices), batch.device)[batch]
        if values.ndim == 4:
            laid = values[numbers, slots]
        elif values.ndim == 3:
            laid = values[slots]
        else:
            laid = values.expand(len(batch), *values.shape)
        hooks: list[Hook] = []
        for layer in sorted({layer for layer, _ in self.places}):
            chosen = [i for i, (place_layer, _) in enumerate(self.places) if place_layer == layer]
            hooks.append((Site(self.site, layer), self._hook(batch, dest, chosen, laid)))
        return hooks

    def _hook(self, batch: Tensor, dest: Tensor, chosen: list[int], laid: Tensor) -> HookFunction:
        heads = to_device(torch.tensor([self.places[i][1] for i in chosen]), batch.device)

        def hook(activation: Tensor) -> Tensor:
            value = laid[:, chosen].to(activation)
            if self.site == "z":
                edited = editable(activation)
                edited[batch[:, None], dest[:, None], heads[None, :]] = value
                return edited
            # A copy: the residual stream may be kept, for other runs to resume from.
            edited = activation.clone()
            edited[batch, dest] = value[:, 0]
            return edited

        return hook

    def _rows(
        self, segment: Segment
    ) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], Int[Tensor, " n"]]:
        """Indices (batch, dest) of the patched tokens computed in a segment, and their places in `rows`."""
        if self.target_only:
            batch, dest = segment.targets_inside
            return batch, dest, torch.zeros_like(batch)
        place = self.place
        tokens = [
            (row, column, slot)
            for row, prompt in enumerate(segment.prompts)
            for slot, position in enumerate(place.positions(prompt))
            if (column := segment.column(row, position)) is not None
        ]
        table = torch.tensor(tokens, dtype=torch.long).reshape(-1, 3).T
        batch, dest, slots = to_device(table, segment.tokens.device)
        return batch, dest, slots

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, including all prompts of `source`."""
        document: dict[str, Any] = {"intervention": "Patch", "site": self.site}
        for name in ("heads", "layers", "at", "demo", "mean", "values"):
            document[name] = plain(getattr(self, name))
        document["source"] = None if self.source is None else self.source.to_dict()
        return document
