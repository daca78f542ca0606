"""Load-time checks: a model that fails one would silently give wrong numbers.

On two short probe prompts: attention rows sum to 1, editing attention changes the output,
nothing but attention carries information from one position to another,
`unembed(ln_final(last residual))` equals the logits of the original model, a padded batch equals its
prompts run singly, and nothing attends to the future.

Passed checks are cached under a digest of everything that determines them: every byte of the weights,
the configuration, the code that computes, devices, versions and the code of this package for models. A
failed check is never cached, and a model with hooks added by the caller is always checked.
"""

import hashlib
import json
import platform
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError
from icl_mech.model_sources import cache_folder
from icl_mech.models.interface import OTHER_MIXING, Hook, HookFunction, LanguageModel, Site
from icl_mech.models.undo import undiminished
from icl_mech.models.watching import Watch, is_packed, stored
from icl_mech.names import VERSIONED, version

TOLERANCE = {"float32": 2e-4, "float64": 1e-8, "float16": 5e-2, "bfloat16": 2e-1}
"""Allowed difference of logits between two paths, times max(1, largest logit).

Padded against single prompts differ by up to 4e-5 in float32; half precision differs by a
few units in the last place of the residual stream.
"""

_LONG, _SHORT = 11, 7
_FOREIGN_ERRORS = (
    *(RuntimeError, TypeError, ValueError, LookupError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""Exceptions that the library of a model may raise."""


def tolerance(dtype: str, logits: Tensor, weights_format: str = "") -> float:
    """Allowed difference from these logits.

    Inputs of 8-bit layers are rounded to integers, so a difference in the last digit may become a whole step.
    """
    allowed = TOLERANCE.get(dtype, 2e-1)
    if weights_format.startswith("bitsandbytes int8"):
        allowed = max(allowed, TOLERANCE["float16"])
    return allowed * max(1.0, float(logits.abs().max()))


def check_eval_mode(model: torch.nn.Module) -> None:
    """Reject a model with any part in training mode.

    Raises:
        ModelError: dropout would make every value random; names the first such part.
    """
    # A bridge keeps the wrapped model, and the parts it has no component for, apart.
    for root in (getattr(model, "original_model", None), model):
        parts = root.named_modules() if isinstance(root, torch.nn.Module) else ()
        for name, part in parts:
            # nnsight adds modules of its own to a model, which compute nothing.
            if not part.training or type(part).__module__.startswith("nnsight."):
                continue
            where = f"{plain_name(name)!r} of the model" if name else "The model"
            raise ModelError(
                f"{where} is in training mode (dropout is active); call model.eval() first."
            )


def plain_name(name: str) -> str:
    """The name of a part or a parameter without the components a bridge inserts."""
    return name.replace("._original_component", "")


def check_weights(model: torch.nn.Module) -> None:
    """Reject weights that are not loaded, were made in inference mode, or are not finite.

    Raises:
        ModelError: names the first such parameter.
    """
    owners = dict(getattr(model, "original_model", model).named_modules())

    def loaded(name: str, held: Tensor) -> Tensor:
        owner, _, attribute = name.rpartition(".")
        return stored(owners[owner], attribute, held)

    parameters = dict(model.named_parameters())
    sums: dict[torch.device, dict[str, Tensor]] = {}
    for name, held in parameters.items():
        parameter = loaded(name, held)
        if parameter.is_meta:
            raise ModelError(
                f"The weights are not loaded ({name!r} is on the device 'meta'). Load the model with "
                "its weights, not under torch.device('meta')."
            )
        if parameter.is_inference():
            raise ModelError(
                f"The weights were made inside torch.inference_mode() ({name!r}), so they can give no "
                "gradients. Load the model outside of it, or with icl_mech.load_model."
            )
        # A sum is cheap, and finite only if all entries are; in half precision it may overflow.
        sums.setdefault(parameter.device, {})[name] = parameter.detach().sum().isfinite()
    finite: dict[str, bool] = {}
    for by_name in sums.values():
        finite |= zip(by_name, torch.stack([*by_name.values()]).tolist(), strict=True)
    for name, held in parameters.items():
        if not finite[name] and not loaded(name, held).isfinite().all():
            raise ModelError(
                f"The weights hold NaN or infinite values (first in {name!r}); the file is "
                "damaged or was converted to too narrow a dtype. Load it again, for example in "
                "float32."
            )


def check_model(model: LanguageModel) -> None:
    """Run all checks.

    Raises:
        ModelError: says what was found and what was expected.
    """
    check_eval_mode(model.module)
    check_weights(model.module)
    with torch.no_grad():
        probe = _Probe(model)
        probe.readout()
        probe.causal()
        probe.patterns()
        probe.edits()
        probe.padding()
        if any(map(is_packed, model.module.modules())):
            probe.gradients()


@contextmanager
def foreign_errors(model: torch.nn.Module) -> Iterator[None]:
    """Context that turns errors of the model's library into a `ModelError`.

    Raises:
        ModelError: quotes the library's message.
    """
    try:
        yield
    except ModelError:
        raise
    except _FOREIGN_ERRORS as error:
        family = type(getattr(model, "original_model", model)).__name__
        raise ModelError(
            f"{family} cannot be analysed: a pass over a few tokens failed with "
            f"{type(error).__name__}: {error}. Use a model of another family, or another dtype."
        ) from error


class _Probe:
    """Runs random tokens through the model; ids are fixed by a seed.

    One plain pass and one edited pass serve most checks. Their rows are the prompt, the prompt with
    its last and with its first token changed, and the prompt twice more, whose edits are compared
    with the same rows unedited, so that a difference is not due to rounding.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, model.info.d_vocab, (2, _LONG), generator=generator)
        self.tokens = ids.to(model.device)
        self.rows = self.tokens[:1].repeat(5, 1)
        for row, place in ((1, -1), (2, 0)):
            self.rows[row, place] = (self.rows[row, place] + 1) % model.info.d_vocab
        self.residual = self._residual(self.rows)
        self.read = self._logits(self.residual)
        self.plain = self.read[:1]
        if not bool(self.plain.isfinite().all()):
            raise ModelError(
                f"{model.info.architecture} gives NaN or infinite logits for a few random tokens "
                f"in {model.info.dtype}. Load it in a dtype with a wider range: 'bfloat16' or "
                "'float32'."
            )
        self.tolerance = tolerance(model.info.dtype, self.plain, model.info.weights_format)
        # A separate pass: where patterns are read, attention may be computed by other code and round differently.
        layers = {*range(model.info.n_layers)} - {*model.without_pattern}
        self.seen: dict[int, list[Tensor]] = {layer: [] for layer in sorted(layers)}
        hooks = [(Site("pattern", la), patterns.append) for la, patterns in self.seen.items()]
        self._residual(self.tokens[:1], hooks)

    def _residual(self, tokens: Tensor, hooks: Sequence[Hook] = ()) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        return self.model.forward(tokens, mask, positions, hooks=hooks).residual

    def _logits(self, residual: Tensor) -> Tensor:
        return self.model.logits(residual).cpu().double()

    def readout(self) -> None:
        with undiminished(self.model.info.dtype):
            logits = self.model.own_logits(self.tokens[:1]).cpu().double()
        gap = float((logits - self.plain).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(
                "unembed(ln_final(last residual)) differs from the model's own logits by "
                f"{gap:.2g} (allowed {self.tolerance:.2g}); the readout of "
                f"{self.model.info.architecture} is not supported, so lens and label logits would "
                "be wrong."
            )
        labels = self.tokens[:1, :3]
        columns = self.model.label_logits(self.residual[:1, -1], labels).cpu().double()
        gap = float((columns - self.plain[:, -1].gather(1, labels.cpu())).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(f"Label columns differ from the full logits by {gap:.2g}.")

    def causal(self) -> None:
        gap = float((self.read[1, :-1] - self.read[0, :-1]).abs().max())
        if not gap <= self.tolerance:
            raise ModelError(
                f"Earlier positions see later tokens (logits change by {gap:.2g}): this is an encoder "
                "or a prefix model; a causal decoder is needed."
            )

    def patterns(self) -> None:
        for layer, patterns in self.seen.items():
            if len(patterns) != 1:
                raise ModelError(
                    f"The attention pattern of block {layer} was reported {len(patterns)} times in "
                    "one pass; expected once."
                )
        if not self.seen:
            return
        rows = torch.stack([patterns[0].float().sum(-1) for patterns in self.seen.values()])
        if float(rows.max()) > 1 + 1e-2:
            raise ModelError(f"Attention rows sum to up to {float(rows.max()):.3f}, expected 1.")
        if float(rows.min()) < 1 - 1e-2:
            self._note("attention rows sum to less than 1 (attention sinks)")

    def _note(self, note: str) -> None:
        self.model.info = replace(self.model.info, notes=(*self.model.info.notes, note))

    def edits(self) -> None:
        """Check that edits of the first and last block matter, and earlier tokens do not if all patterns are zero."""
        if without := self.model.without_pattern:
            self._note(f"{OTHER_MIXING}: blocks {[*without]} have no pattern")
        if not self.seen:
            return
        places = {3: min(self.seen), 4: max(self.seen)}
        hooks = []
        for layer in self.seen:
            cut = [0, 2, *(row for row, place in places.items() if place == layer)]
            hooks.append((Site("pattern", layer), _zeroing(cut)))
        edited = self._logits(self._residual(self.rows, hooks))
        for row, layer in places.items():
            if torch.equal(edited[row], self.read[row]):
                raise ModelError(
                    f"Editing the attention of block {layer} does not change the output of "
                    f"{self.model.info.architecture}: its attention cannot be intervened on."
                )
        gap = float((edited[0, 1:] - edited[2, 1:]).abs().max())
        if without or gap <= self.tolerance:
            return
        if mixers := self.model.beside_attention:
            self._note(f"{OTHER_MIXING}: every block also has {', '.join(mixers)}")
        else:
            raise ModelError(
                "With all attention knocked out, later positions of "
                f"{self.model.info.architecture} still see earlier tokens (logits change by "
                f"{gap:.2g}): something other than attention, such as a state-space or "
                "convolution layer, mixes positions, so attention would not carry all "
                "information flow. Use a model that mixes positions by attention alone."
            )

    def padding(self) -> None:
        tokens = self.tokens.clone()
        pad = _LONG - _SHORT
        tokens[1, :pad] = 0
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[1, :pad] = False
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self.model.forward(tokens, mask, positions)
        padded = self._logits(output.residual[:, -1])
        single = self._logits(self._residual(self.tokens[1:, pad:])[:, -1])
        gap = float((padded[1:] - single).abs().max())
        gap = max(gap, float((padded[:1] - self.plain[:, -1]).abs().max()))
        if not gap <= self.tolerance:
            raise ModelError(
                f"A left-padded batch differs from its prompts run singly by {gap:.2g} (allowed "
                f"{self.tolerance:.2g}); {self.model.info.architecture} mishandles padding."
            )

    def gradients(self) -> None:
        """Check that gradients arrive: some quantised layers silently pass none on, so saliency would be zero."""
        patterns: list[Tensor] = []
        start = (Site("resid_pre", 0), lambda residual: residual.detach().requires_grad_())
        hooks = [(Site("pattern", la), patterns.append) for la in range(self.model.info.n_layers)]
        with self.model.undo.kept(), self.model.gradients():
            loss = self._residual(self.tokens[:1], [start, *hooks]).float().square().sum()
            gradients: Any = torch.autograd.grad(loss, patterns, allow_unused=True)
        for layer, gradient in enumerate(gradients):
            if gradient is None or not gradient.any():
                raise ModelError(
                    f"The quantised weights of block {layer} pass no gradients on, because they "
                    "were packed for inference. Load the model by its name, or pass it before "
                    "its first use."
                )


def _zeroing(rows: Sequence[int]) -> HookFunction:
    """A hook that sets these rows of a pattern to zero."""

    def hook(pattern: Tensor) -> Tensor:
        edited = pattern.clone()
        edited[rows] = 0
        return edited

    return hook


KEPT = 500
"""Number of cached records; older ones are deleted."""


def checks_folder() -> Path | None:
    """The folder of cached records; None: nothing is cached."""
    return cache_folder() / "checks"


class Checks:
    """Cached results of the checks for one model that is being loaded.

    Attributes:
        key: Digest of everything that determines the checks; "" if they must be run in any case.
        notes: Notes of the checks when they were passed; None if they are not known to have been passed.
    """

    def __init__(self, *, again: bool = False) -> None:
        self.again = again
        self.key = ""
        self.notes: tuple[str, ...] | None = None

    def recognise(self, hf_model: torch.nn.Module) -> bool:
        """True if this model passed before; to be called before it is wrapped."""
        watch, place = Watch(hf_model), checks_folder()
        if place is not None and not watch.foreign_hooks():
            self.key = _digest(_deciding(hf_model, watch))
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads((place / f"{self.key}.json").read_text(encoding="utf-8"))
                notes = tuple(map(str, record["notes"]))
                if record["passed"] == self.key and record["check"] == _digest(notes):
                    self.notes = None if self.again else notes
        return self.notes is not None

    def keep(self, notes: tuple[str, ...]) -> None:
        """Record that the checks were passed; if the folder cannot be written, nothing is kept."""
        place = checks_folder()
        if place is None or not self.key:
            return
        record = {"passed": self.key, "notes": notes, "check": _digest(notes)}
        partial = place / f".{uuid.uuid4().hex}"
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            try:
                partial.write_text(json.dumps(record), encoding="utf-8")
                partial.replace(place / f"{self.key}.json")
            finally:
                partial.unlink(missing_ok=True)
            known = sorted(place.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for old in known[:-KEPT]:
                old.unlink(missing_ok=True)


def _deciding(model: torch.nn.Module, watch: Watch) -> dict[str, Any]:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return {
        "weights": watch.weights(exact=True),
        "settings": watch.settings(),
        "code": sorted({_code(type(part)) for part in model.modules()}),
        "own code": _own_code(),
        "versions": [version(package) for package in VERSIONED],
        "machine": [platform.platform(), torch.backends.cpu.get_cpu_capability()],
        "devices": sorted(f"{device} {_name_of(device)}" for device in devices),
    }


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def _code(module_class: type[torch.nn.Module]) -> str:
    """Digest of a class and the code of its `forward`, including replaced and wrapped ones."""
    words: list[Any] = [module_class.__module__, module_class.__qualname__]
    forward: Any = module_class.forward
    while forward is not None:
        code = getattr(forward, "__code__", None)
        words += [
            forward.__module__,
            code and (code.co_filename, code.co_code.hex(), code.co_names),
        ]
        forward = getattr(forward, "__wrapped__", None)
    return _digest(words)


@cache
def _own_code() -> str:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return _digest([file.read_text(encoding="utf-8") for file in files])


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
