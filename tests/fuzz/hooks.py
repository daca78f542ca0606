"""A hook of the user's on a Hugging Face module, the same on two copies of a model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.fuzz.cases import Values
from tests.fuzz.reference import Plain


def place_hook(model: Any, plain: Plain, own: Values) -> Callable[[], Any]:
    """What puts the hook on the model, on the module of that name as it is now.

    Args:
        model: The model, not yet wrapped.
        plain: Knows where parts are.
        own: Where (`at`, `layer`), of which kind (`pre`), which rows (`kind`), times what (`factor`).
    """
    module = model
    for part in _name(plain, own).split("."):
        module = module[int(part)] if part.isdigit() else getattr(module, part)

    def changed(values: Tensor) -> Tensor:
        factors = torch.ones(values.shape[-2], dtype=values.dtype)
        match own["kind"]:
            case "all":
                factors[:] = own["factor"]
            case "first":
                factors[:2] = own["factor"]
            case "last":
                factors[-1] = own["factor"]
            case _:
                factors[::3] = own["factor"]
        return values * factors[:, None]

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        if args:
            return (changed(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": changed(kwargs["hidden_states"])}

    def after(module: Any, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (changed(output[0]), *output[1:])
        return changed(output)

    if own["pre"] and own["at"] != "embedding":
        return lambda: module.register_forward_pre_hook(before, with_kwargs=True)
    return lambda: module.register_forward_hook(after)


def _name(plain: Plain, own: Values) -> str:
    names = {id(module): name for name, module in plain.modules.items()}
    block = plain.blocks[own["layer"]]
    inside = dict(block.named_modules())
    match own["at"]:
        case "block":
            return names[id(block)]
        case "attention out":
            return names[id(plain.attention_out(own["layer"]))]
        case "mlp out":
            return names[id(plain.mlp_out(own["layer"]))]
        case "attention":
            return (
                names[id(block)] + "." + next(n for n in inside if "att" in n and "norm" not in n)
            )
        case "mlp":
            return names[id(inside.get("mlp", plain.mlp_out(own["layer"])))]
        case "norm":
            # Norms of queries and keys get heads and positions in another order from a bridge.
            found = next(n for n in inside if "." not in n and ("norm" in n or n.startswith("ln")))
            return names[id(block)] + "." + found
        case "embedding":
            return names[id(plain.model.get_input_embeddings())]
        case "final norm":
            stem = names[id(plain.blocks[0])].rpartition(".")[0].rpartition(".")[0]
            return next(
                name
                for name in plain.modules
                if name.rpartition(".")[0] == stem
                and ("norm" in name or "ln_f" in name)
                and "embedding" not in name
            )
        case _:
            return names[id(plain.model.get_output_embeddings())]
