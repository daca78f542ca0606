"""`Intervention`: the base class of all changes of a forward pass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_type_hints

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Called, check_fields, shown
from icl_mech.errors import RunError, near_matches
from icl_mech.models import Hook, ModelInfo, Site, to_device
from icl_mech.names import EVERY_KIND
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

At = Literal["target", "all"]

_KINDS: dict[str, type["Intervention"]] = {}


class Taken(NamedTuple):
    """Values an intervention reads from the unmodified model before it can run.

    Attributes:
        prompts: Prompts the values are read from.
        rows: Their tokens, -1 where a prompt has fewer.
        sites: Hook points the values are read at.
        only_target: True if the tokens are the targets.
    """

    prompts: PromptBatch
    rows: Int[Tensor, "batch row"]
    sites: Sequence[Site]
    only_target: bool


@dataclass(frozen=True, eq=False)
class Intervention(ABC):
    """A change of the forward pass; any reading can be taken under any interventions.

    Hooks never change an activation that is part of a graph in place, and give the same
    result when a pass is recomputed.
    """

    needs_own_weights: ClassVar[bool] = False
    """True if it is defined on the checkpoint's own parameters only (no folding, no centring)."""

    def __init_subclass__(cls) -> None:
        """Register the class for `load_intervention`.

        Raises:
            RunError: an intervention of this package has that name.
        """
        known = _KINDS.get(cls.__name__)
        package = __name__.split(".")[0]
        if (
            known is not None
            and known.__module__.split(".")[0] == package != cls.__module__.split(".")[0]
        ):
            raise RunError(
                f"An intervention named {cls.__name__!r} already exists in {known.__module__}. "
                "Saved interventions are identified by their class name, so choose another name."
            )
        _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    @abstractmethod
    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """The hooks that apply this intervention to one segment; none where it changes nothing."""

    def check(self, info: ModelInfo) -> None:
        """Reject layers or heads the model does not have.

        Raises:
            RunError: names what is out of range.
        """
        if self.needs_own_weights and info.processed_weights:
            raise RunError(
                f"{type(self).__name__} is defined on the checkpoint's own weights, but the weights of "
                f"{info.name!r} are processed (norms folded or weights centred). Load it with "
                "icl_mech.load_model, or with HookedTransformer.from_pretrained_no_processing."
            )

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject prompts it cannot be applied to; called with all prompts of the run, not a subset.

        Raises:
            IclMechError: says what was found and what was expected.
        """
        return

    @property
    def target_only(self) -> bool:
        """True if rows before the target are left unchanged."""
        return False

    @property
    def first_layer(self) -> int:
        """The first block that changes; nothing below it does."""
        return 0

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if it acts identically on the first `length` tokens of all prompts, which are equal.

        They are then computed once for all prompts, with the hooks of prompt 0. False, the default, is
        always valid: an intervention may depend on the prompt, by `segment.indices` or its roles.
        """
        return False

    @property
    def by_number(self) -> bool:
        """True if it may depend on the index of a prompt in the run (`segment.indices`).

        It is then rejected in passes over prompts other than those it was given for: a subset of
        them, or separate contexts. True, the default, is always valid.
        """
        return True

    def missing(self) -> Sequence[Site]:
        """Sites whose mean at the target must be measured before it can run."""
        return ()

    def filled(self, means: Sequence[Tensor]) -> "Intervention":
        """A copy that holds the measured means."""
        raise NotImplementedError

    def taken_from(self) -> Taken | None:
        """The prompts, tokens and sites whose values it needs; None if it needs none.

        They are laid out and run in the same way as the prompts of the run.
        """
        return None

    def filled_from(
        self, values: Mapping[Site, Float[Tensor, "batch row *rest"]]
    ) -> "Intervention":
        """A copy that holds the values read at `taken_from`, by site; 0 where there is no token."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, which `load_intervention` reads."""
        kind = type(self)
        if "__init__" in vars(kind) and "__dataclass_fields__" not in vars(kind):
            raise RunError(
                f"{kind.__name__} is not a dataclass, so its values cannot be recorded and two "
                "instances would look the same. Decorate it with @dataclass(frozen=True, "
                "eq=False, repr=False)."
            )
        values = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"intervention": kind.__name__, **values}

    def __repr__(self) -> str:
        """Constructor-like text, with tensors as shapes."""
        shown = ", ".join(
            f"{field.name}={_short(getattr(self, field.name))}"
            for field in fields(self)
            if getattr(self, field.name) is not None
        )
        return f"{type(self).__name__}({shown})"


class Alike:
    """Mixin for interventions that treat equal tokens before equal targets alike."""

    @property
    def by_number(self) -> bool:
        """False: what is done to a prompt depends on its target, not on its index."""
        return False

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True: equal tokens before the target are treated alike."""
        return True


class ByTarget(Alike):
    """Mixin for interventions at each prompt's target, or at all its tokens alike."""

    at: At

    @property
    def target_only(self) -> bool:
        """True unless it acts at all positions."""
        return self.at == "target"


def plain(value: object) -> object:
    """Tensors as lists and dataclasses as mappings of their fields, also inside sequences and mappings."""
    if isinstance(value, Tensor):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def load_intervention(document: dict[str, Any]) -> Intervention:
    """Load an intervention from the values written by `Intervention.to_dict`.

    Raises:
        RunError: unknown kind.
    """
    if not isinstance(document, Mapping):
        raise RunError(
            f"{shown(document)} is not a saved intervention; expected what to_dict() returns."
        )
    values = dict(document)
    name = values.pop("intervention", "")
    import_module(EVERY_KIND)  # some belong to measurements
    if not isinstance(name, str) or name not in _KINDS:
        raise RunError(f"Unknown intervention {name!r}. {near_matches(name, _KINDS)}")
    kind = _KINDS[name]
    try:
        for item, hint in get_type_hints(kind).items():
            if holds_tensor(hint) and values.get(item) is not None:
                values[item] = torch.tensor(values[item])
            elif PromptBatch in get_args(hint) and values.get(item) is not None:
                values[item] = PromptBatch.from_dict(values[item])
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise RunError(f"A saved {name} is damaged: {error}.") from error


def holds_tensor(hint: object) -> bool:
    """True if a field's type is a tensor, or a tensor or None."""
    kinds = (hint, *get_args(hint))
    return any(kind is Tensor or getattr(kind, "array_type", None) is Tensor for kind in kinds)


def check_layers(layers: Sequence[int], info: ModelInfo, what: str) -> None:
    """Reject layers the model does not have.

    Raises:
        RunError: names them.
    """
    wrong = [layer for layer in layers if not 0 <= layer < info.n_layers]
    if wrong:
        raise RunError(
            f"{what} names layer {wrong[0]}, but {info.name!r} has layers 0 to {info.n_layers - 1}."
        )


def editable(activation: Tensor) -> Tensor:
    """The activation itself if it is part of no graph, else a copy."""
    return activation.clone() if torch.is_grad_enabled() else activation


def rows_at(segment: Segment, at: At) -> tuple[Tensor, Int[Tensor, " n"]]:
    """Indices (batch, dest) of the rows an intervention acts on.

    Targets outside the segment have no row.
    """
    if at == "all":
        inside = (segment.on_host[0] >= 0).nonzero().T
        batch, dest = to_device(inside, segment.tokens.device)
        return batch, dest
    return segment.targets_inside


Interventions = Annotated[
    Sequence[Intervention],
    Called("a list of interventions such as [ZeroHeads([(5, 1)])], even for a single one"),
]
"""Interventions, applied in this order."""


def _short(value: object) -> str:
    return f"tensor{list(value.shape)}" if isinstance(value, Tensor) else repr(value)
