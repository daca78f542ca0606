"""Methods on a device that is not there, beside the CPU: `python -m tests.remote_cases [--all]` prints JSON.

In a process of its own, as torch learns of the device for good. Of each method: the largest difference from the
CPU (of the largest value, or 1), copies to the host and waits (copies from it among them) of a second call. `depths`: small models of four
and eight blocks; `families`: the tiny models; `spread`: a model over two devices; `all`: every method of the
reference.
"""

import argparse
import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from accelerate import dispatch_model

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.models import wrapping
from tests.benchmarks.cards import CALLS, Setting
from tests.engine.test_paths import TASK
from tests.remote import NAME, Remote
from tests.small import small_hf, small_model
from tests.tiny import tiny_hf, tiny_tokenizer, tokenizer_kind

FAMILIES = ("gpt2", "neox", "llama", "gemma3", "opt")
QUIET: dict[str, Any] = {"progress": False}
ONE_RUN: Mapping[str, Callable[..., Any]] = {
    name: getattr(icl, name)
    for name in (
        *("predict", "flow_scores", "saliency_maps", "flow_by_demonstration", "logit_lens"),
        *("isolation", "isolation_map", "extraction", "head_scores", "task_vector"),
    )
}
"""Methods that take one run of the engine."""


def here(plain: Any, tokenizer: Any, device: str) -> Any:
    """The model on a device."""
    return icl.load_model(plain.to(device), tokenizer=copy.deepcopy(tokenizer), device=device)


def numbers(result: object) -> dict[str, torch.Tensor]:
    """Tensors of a result, by field."""
    named = {own.name: getattr(result, own.name) for own in fields(result)} if is_dataclass(result) else {}  # fmt: skip
    return {
        name: value.detach().cpu().double().nan_to_num()
        for name, value in named.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()
    }


def gap(one: object, other: object) -> float:
    """The largest difference of two results."""
    ours, theirs = numbers(one), numbers(other)
    return max(
        (
            float((ours[name] - theirs[name]).abs().max() / ours[name].abs().max().clamp(min=1))
            for name in ours
        ),
        default=0.0,
    )


def compared(
    call: Callable[[Any], Any], plain: Any, moved: Any, remote: Remote, *, twice: bool = True
) -> dict[str, Any]:
    """One method on both sides."""
    expected = call(plain)
    remote.clear()
    found = call(moved)
    if twice:
        remote.clear()
        call(moved)
    return {
        "gap": gap(expected, found),
        "to_host": remote.to_host,
        "waits": remote.waits + remote.from_host,
        "places": dict(remote.places),
    }


def _run(method: Callable[..., Any], prompts: icl.PromptBatch, model: Any) -> Any:
    return method(model, prompts, **QUIET)


def depths() -> Iterator[tuple[str, dict[str, Any]]]:
    """Counts by number of blocks."""
    for blocks in (4, 8):
        plain = small_model(blocks)
        prompts = icl.build_prompts("reviews", plain, shots=1, n=4, demonstrations="per_prompt")
        with Remote() as remote:
            moved = here(small_hf(plain.tokenizer, blocks), plain.tokenizer, f"{NAME}:0")
            for name, method in ONE_RUN.items():
                found = compared(partial(_run, method, prompts), plain, moved, remote)
                yield f"{name} {blocks}", found


def families() -> Iterator[tuple[str, dict[str, Any]]]:
    """Five architectures."""
    for family in FAMILIES:
        tokenizer = tiny_tokenizer(tokenizer_kind(family))
        plain = here(tiny_hf(family), tokenizer, "cpu")
        prompts = icl.build_prompts(TASK, plain, shots=2, n=4)
        with Remote() as remote:
            moved = here(tiny_hf(family), tokenizer, f"{NAME}:0")
            for name, method in ONE_RUN.items():
                found = compared(partial(_run, method, prompts), plain, moved, remote)
                yield f"{name} {family}", found


def spread() -> Iterator[tuple[str, dict[str, Any]]]:
    """One model over two devices; without backward passes, which the second has none of."""
    plain = small_model(4)
    prompts = icl.build_prompts("reviews", plain, shots=1, n=4)
    first, second = f"{NAME}:0", f"{NAME}:1"
    places = {"model.embed_tokens": first, "model.norm": second, "model.rotary_emb": first}
    places |= {f"model.layers.{block}": (first, second)[block // 2] for block in range(4)}
    with Remote() as remote:
        parts = dispatch_model(
            small_hf(plain.tokenizer, 4),
            device_map={**places, "lm_head": second},
            main_device=first,
            force_hooks=True,
        )
        moved = icl.load_model(parts, tokenizer=plain.tokenizer)
        for name in ("predict", "logit_lens", "isolation", "extraction", "head_scores"):
            method = partial(_run, ONE_RUN[name], prompts)
            yield name, compared(method, plain, moved, remote)


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every method of the reference, called once."""
    plain = small_model(4)
    with Remote() as remote:
        moved = here(small_hf(plain.tokenizer, 4), plain.tokenizer, f"{NAME}:0")
        sides = [Setting(model, "reviews", 4) for model in (plain, moved)]
        for name, (needs, call) in CALLS.items():
            try:
                for side in sides:
                    for need in needs:
                        getattr(side, need)
                yield name, compared(call, sides[0], sides[1], remote, twice=False)
            except IclMechError as error:  # noqa: PERF203
                yield name, {"refused": str(error)}


def main() -> None:
    """All counts."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every method of the reference")
    warnings.simplefilter("ignore")
    wrapping.device_of = str  # type: ignore[assignment]
    parts = {"depths": depths, "families": families, "spread": spread}
    if parser.parse_args().all:
        parts = {"all": everything}
    json.dump({name: dict(part()) for name, part in parts.items()}, sys.stdout)


if __name__ == "__main__":
    main()
