"""Hooks of the caller's on modules: which of them a pass would run as Hugging Face does.

A bridge computes some parts by itself (attention with rotary positions, layer norms, fused projections)
from the weights of the modules it found there, which are then never called; and the final norm and the
unembedding are given the rows that are read, not the whole prompt. Hooks there would be left out, or see
something else, without a word.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from icl_mech.errors import ModelError
from icl_mech.models.undo import Undo
from icl_mech.models.watching import HOOK_TABLES

Modules = Mapping[str, torch.nn.Module]


def called(modules: Modules, run: Callable[[], Any], undo: Undo) -> set[str]:
    """Names of those modules that are called while something runs, without the hooks they have.

    Args:
        modules: The modules by name.
        run: What may call them.
        undo: Takes back what is changed meanwhile.
    """
    found: set[str] = set()
    before = [
        (module, {name: module.__dict__.get(name) for name in (*HOOK_TABLES, "forward")})
        for module in modules.values()
    ]

    def restore() -> None:
        for module, own in before:
            for name, value in own.items():
                if value is None:
                    module.__dict__.pop(name, None)
                else:
                    module.__dict__[name] = value

    with undo.by(restore):
        for name, module in modules.items():
            module.__dict__.pop("forward", None)
            for table in HOOK_TABLES:
                if table in module.__dict__:
                    module.__dict__[table] = type(module.__dict__[table])()

            def heard(*_: Any, name: str = name) -> None:
                found.add(name)

            module.register_forward_pre_hook(heard)
        run()
    return found


def check_heard(modules: Modules, inside: set[str], behind: set[str]) -> None:
    """Refuse hooks that a pass would leave out, or call with something else.

    Args:
        modules: Where the caller's own hooks are.
        inside: Names of those that a pass calls.
        behind: Names of those that make logits of chosen rows.

    Raises:
        ModelError: names the modules.
    """
    for name in modules:
        if name in behind:
            raise ModelError(
                f"A hook of your own is on {name!r}, which is given the rows that are read, not whole "
                "prompts: it would see other positions than in the Hugging Face model. Take it off, "
                "or change the output of the last block by an intervention."
            )
        if name not in inside:
            raise ModelError(
                f"A hook of your own is on {name!r}, which the bridge does not call: it computes that "
                "part itself, so the hook would be left out of every number. Put it on the part of "
                "the model as load_model left it (such as the output of its block), or make it an "
                "intervention."
            )
