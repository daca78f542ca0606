"""Memory a pass needs, memory available, and the batch sizes that follow.

The estimate counts what a pass keeps: for a backward pass every block's attention scores,
pattern and activations, for a forward pass those of one block. It is a rule of thumb for batch
sizes, not a guarantee; a batch that does not fit after all is halved.
"""

import os
import re
import resource
import warnings
from bisect import bisect_right
from pathlib import Path

import torch

from icl_mech.errors import RunError
from icl_mech.models import LanguageModel

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_PATTERNS_KEPT = 4
"""Tensors of pattern size a block keeps for its backward pass (scores, softmax, taps)."""
_STREAMS_KEPT = 30
"""Tensors of residual size a block keeps (norms, projections, a gated MLP of four times the width)."""

SURELY = 3
"""The estimate is at most this many times what a pass takes."""

TOKENS_PER_BATCH = {"gradient": 512, "behind": 1024, "forward": 1536}
"""Padded tokens of one batch on a CPU; a GPU takes 32 times this.

Measured with 135 million parameters: gradient passes of 420 to 2048 tokens are equally fast, and
larger ones only take more memory; forward passes of few tokens are slowed by the fixed cost of each
block (272 tokens take 2.2 ms each, 1088 take 1.7 ms).
"""

ROWS_TOGETHER = 32
"""Targets run together on prepared keys and values on a CPU, where 32 rows cost twice as much as
four; a GPU takes 32 times this."""


PASS_COST = 128
"""Fixed cost of a block per pass, as the number of tokens that take as long.

On a CPU 272 tokens took 2.2 ms each and 1,088 took 1.7 ms.
"""

PASS_PRODUCTS = 250_000_000_000
"""Half-precision multiplications a GPU does in the time the host takes to launch the kernels of a block.

On an H200 a block of 60 million weights took .7 ms for 1,400 tokens, and the host 2 to 3 ms to launch it.
In float32 without TF32 a multiplication takes `FLOAT32_SLOWER` times as long.
"""

FLOAT32_SLOWER = 8


def parse_memory(memory: str | int | None, model: LanguageModel | None = None) -> int:
    """Bytes of a budget such as `"8GB"`; None or `"auto"`: half of what is free on the device.

    Raises:
        RunError: the text is not a size, or the size is zero.
    """
    if memory in (None, "auto"):
        return 0 if model is None else free_for(model) // 2
    size = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)i?b?\s*", str(memory).lower())
    budget = int(float(size[1]) * _UNITS[size[2]]) if size else 0
    if budget < 1 or isinstance(memory, float):
        raise RunError(
            f"memory={memory!r} is not a size; write for example memory='8GB', or 'auto'."
        )
    return budget


def free_for(model: LanguageModel) -> int:
    """Free bytes on the device of a model; with several devices, on the one with the fewest."""
    devices = {
        parameter.device
        for parameter in model.module.parameters()
        if parameter.device.type == "cuda"
    }
    return min(map(free_memory, devices or {model.device}))


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; on a CPU no more than this process may take."""
    if device.type == "cuda":
        # Blocks PyTorch has reserved but does not use count as free: it will reuse them.
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + kept
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - no real file
            fields = dict(line.split(":") for line in file)
        available = int(fields["MemAvailable"].split()[0]) * 1024
        # RLIMIT_AS limits address space, so the virtual size counts: the first field, in pages.
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * 4096
        limited = most != resource.RLIM_INFINITY
        return max(0, min(available, most - used)) if limited else available
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def prompt_bytes(model: LanguageModel, length: int, *, gradient: bool, checkpoint: bool) -> int:
    """Estimated bytes that one prompt of this length takes in a pass."""
    block = _block_bytes(model, length, length)
    if not gradient:
        return block
    if checkpoint:
        return 2 * block + model.info.n_layers * _size(model) * length * model.info.d_model
    return model.info.n_layers * block


def plan(
    model: LanguageModel,
    lengths: list[int],
    *,
    gradient: bool,
    memory: str | int | None,
    size: int | None = None,
) -> tuple[int, bool]:
    """Tokens per batch, and whether to checkpoint, for prompts of these lengths within the budget.

    Raises:
        RunError: a budget is given (`auto` included), and memory certainly does not suffice for one
            prompt. Without a budget this is a warning.
    """
    budget = parse_memory(memory, model)
    longest = max(lengths)
    needed = prompt_bytes(model, longest, gradient=gradient, checkpoint=False)
    checkpoint = gradient and needed > budget
    if checkpoint:
        needed = prompt_bytes(model, longest, gradient=True, checkpoint=True)
    least = prompt_bytes(model, longest, gradient=gradient, checkpoint=True) // SURELY
    if least > (free := free_for(model)):
        fits = bisect_right(
            range(longest),
            free,
            key=lambda n: prompt_bytes(model, n, gradient=gradient, checkpoint=True) // SURELY,
        )
        text = (
            f"One prompt of {longest} tokens needs at least {least / 1e9:.1f} GB, but only "
            f"{free / 1e9:.1f} GB are free on {model.device}: use prompts of at most "
            f"{max(fits - 1, 0)} tokens, a narrower dtype or another device."
        )
        if memory is not None:
            raise RunError(text)
        warnings.warn(text, stacklevel=2)
    kind = "gradient" if gradient else "forward"
    return _tokens(model, kind, longest, budget // needed, size), checkpoint


def plan_behind(
    model: LanguageModel,
    lengths: list[int],
    common: int,
    *,
    memory: str | int | None,
    size: int | None = None,
) -> tuple[int, int | None]:
    """Tokens per batch of gradient passes after a common beginning, and how they go through it.

    Each prompt keeps the rows after the beginning, and goes back through one block of the beginning
    at a time. If the beginning's graph fits along with one prompt it is kept, and a batch's tokens are
    those of whole prompts. Otherwise its blocks are rerun for every batch: the tokens are those after
    it, and the second number is how many prompts are backpropagated through a block together.
    """
    longest = max(lengths)
    block, rows = _block_bytes(model, common, common), _rows_bytes(model, longest, common)
    budget = parse_memory(memory, model)
    room = budget - prompt_bytes(model, common, gradient=True, checkpoint=False)
    if room >= rows + block:
        return _tokens(model, "behind", longest, room // (rows + block), size), None
    room = budget - prompt_bytes(model, common, gradient=True, checkpoint=True)
    count = min(max(1, room // (rows + block)), ROWS_TOGETHER * _scale(model))
    return (longest - common) * count, max(1, (room - count * rows) // block)


def worth_sharing(model: LanguageModel, lengths: list[int], common: int) -> bool:
    """True if running a common beginning forward once makes gradients cheaper than running whole prompts.

    The backward pass of every prompt goes through all of its tokens either way; the beginning adds one
    forward and one backward pass. On a GPU the saved tokens make no difference where kernel launches are the
    bottleneck.
    """
    saved = (len(lengths) - 1) * common
    return not _on_gpu(model) or saved > 2 * pass_cost(model)


def worth_recomputing(model: LanguageModel, lengths: list[int], common: int) -> bool:
    """True if recomputing only the beginning keeps less in memory than checkpointing whole prompts.

    The graph of the rows after the beginning is kept, so this is False if prompts share only an instruction.
    """
    longest = max(lengths)
    whole = prompt_bytes(model, longest, gradient=True, checkpoint=True)
    return _rows_bytes(model, longest, common) <= whole


def _rows_bytes(model: LanguageModel, longest: int, common: int) -> int:
    """Bytes a prompt keeps for its backward pass after a common beginning."""
    info = model.info
    # Each prompt's copy of the keys and values, and their gradients.
    seen = 4 * _size(model) * longest * info.n_kv_heads * info.d_head
    return info.n_layers * (_block_bytes(model, longest - common, longest) + seen)


def _tokens(model: LanguageModel, kind: str, longest: int, prompts: int, size: int | None) -> int:
    """Tokens of a batch of `prompts` prompts, capped at the usual batch size unless `size` is given."""
    most = TOKENS_PER_BATCH[kind] * _scale(model) if size is None else longest * size
    return max(longest, min(most, longest * max(1, prompts)))


def _block_bytes(model: LanguageModel, rows: int, columns: int) -> int:
    """Bytes one block keeps for `rows` computed rows that attend to `columns` columns."""
    patterns = _PATTERNS_KEPT * model.info.n_heads * columns
    return _size(model) * rows * (patterns + _STREAMS_KEPT * model.info.d_model)


def _size(model: LanguageModel) -> int:
    return int(getattr(torch, model.info.dtype).itemsize)


def rows_together(model: LanguageModel) -> int:
    """Largest number of single-token rows run together."""
    return ROWS_TOGETHER * _scale(model)


def pass_cost(model: LanguageModel) -> int:
    """Cost of a block that does not depend on its batch, in tokens."""
    if not _on_gpu(model):
        return PASS_COST
    weights, slower = 12 * model.info.d_model**2, 1 if _size(model) < 4 else FLOAT32_SLOWER
    return max(PASS_COST, PASS_PRODUCTS // (weights * slower))


def _scale(model: LanguageModel) -> int:
    return 32 if _on_gpu(model) else 1


def _on_gpu(model: LanguageModel) -> bool:
    return model.device.type == "cuda"


def is_out_of_memory(error: RuntimeError) -> bool:
    """True for the out-of-memory errors of CUDA and of the CPU allocator."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
