"""A case run by the package and by plain Hugging Face, and how far apart they are."""

import copy
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import icl_mech as icl
from tests.fuzz import reference
from tests.fuzz.cases import Case, Values, beta, interventions
from tests.fuzz.doors import DRAWS, Doors
from tests.fuzz.flows import by_role, flow
from tests.fuzz.hooks import place_hook
from tests.fuzz.reference import Cut, Edit, Heads, Layers, Plain, Scale, Text
from tests.tiny import tiny_tokenizer

TOLERANCES = {"float32": 2e-5, "float64": 1e-5, "bfloat16": 0.4}
"""Of the largest number of its kind; float64 is less than that in norms and rotary angles of
Hugging Face, which are float32 whatever the model is."""

OF_GRADIENTS = 20.0
"""Times as much: saliency is what is left of heads that cancel out."""

AS_LOADED = ("GPT-2", "GPT-NeoX", "Phi 3")
"""Families whose bridge scales attention by what the configuration said at load, not by the module's
own factor: a change of that is not seen."""


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        case: The case.
        gaps: By quantity, in units of the tolerance: above 1 is a failure.
        refused: What the package said when it refused.
        error: Another error than its own.
        moved: By how much, in units of the tolerance, changes and hooks move the label logits.
    """

    case: Case
    gaps: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    error: str = ""
    moved: float = 0.0

    @property
    def failed(self) -> bool:
        """True if something is wrong."""
        return bool(self.error) or any(not gap <= 1 for gap in self.gaps.values())

    def __str__(self) -> str:
        """One line: seed, settings, gaps."""
        gaps = ", ".join(f"{name} {gap:.3g} tolerances" for name, gap in self.gaps.items())
        return f"{self.case} | " + (
            self.error or (gaps if self.gaps else f"refused: {self.refused}")
        )


def outcome(case: Case) -> Outcome:
    """The case, run."""
    found = Outcome(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Comparison(case, found).run()
        except icl.IclMechError as error:
            found.refused = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001
            found.error = f"{type(error).__name__}: {error}"
    return found


class Comparison(Doors):
    """One case: the package's model, the plain one, and the prompts of both."""

    def __init__(self, case: Case, found: Outcome) -> None:
        self.case, self.found = case, found
        inner = case.model.make()
        self.inner_parameters = dict(inner.named_parameters())
        self.inner = inner
        self.scaled = {
            (layer, name): module
            for layer, block in enumerate(Plain.blocks_of(inner))
            for name, module in block.named_modules()
        }
        self.plain = Plain(case.model.make())
        self.hooked_inner = place_hook(inner, self.plain, case.hook) if case.hook else None
        tokenizer = copy.deepcopy(tiny_tokenizer(case.model.tokenizer))
        self.model = icl.load_model(inner, tokenizer=tokenizer)
        if case.hook and case.hook["late"]:
            with suppress(AttributeError):  # a bridge has no such part: the one before it stays
                self.hooked_inner = place_hook(inner, self.plain, case.hook)
        self.hooked_plain = (
            place_hook(self.plain.model, self.plain, case.hook) if case.hook else None
        )
        everything = case.batch()
        self.prompts, numbers = case.chosen(everything)
        self.texts = [_text(everything[number]) for number in numbers]
        self.changes = list(case.changes)
        self.options = {name: case.options[name] for name in ("batch_size", "memory", "path")}
        self.tolerance = TOLERANCES[case.model.dtype]
        self.handles: list[Any] = []
        self.out: Path | None = None

    def run(self) -> None:
        """Once, or before and after something changes."""
        case = self.case
        if case.hook and case.between != "hook on":
            self.hook()
        door: Callable[[], None] = getattr(self, f"_by_{case.door}")
        with tempfile.TemporaryDirectory() as folder:
            self.out = Path(folder) / "out"
            if case.between == "nothing" and case.door != "kept":
                door()
            else:
                if case.door in ("prepared", "compress"):
                    self.kept = self.prepared()
                else:
                    try:
                        door()
                    except icl.IclMechError:
                        if case.door != "kept":
                            raise
                self.found.gaps = {f"before: {k}": v for k, v in self.found.gaps.items()}
                self.change()
                door()
        self.found.moved = self.moved()

    # What changes

    def hook(self) -> None:
        """Put the user's hook on both models."""
        assert self.hooked_inner is not None
        assert self.hooked_plain is not None
        self.handles = [self.hooked_inner(), self.hooked_plain()]

    def change(self) -> None:
        """What happens between two calls."""
        match self.case.between:
            case "weights":
                self._change_weights()
            case "hook on":
                self.hook()
            case "hook off":
                for handle in self.handles:
                    handle.remove()
                self.handles = []
            case "changes":
                self.changes = [] if self.changes else [
                    {"kind": "zero_layers", "start": 0, "part": "mlp", "how": "zero_output",
                     "at": "all"}
                ]  # fmt: skip
            case "prompts" if len(self.texts) > 1:
                self.prompts, self.texts = self.prompts[::-1][:-1], self.texts[::-1][:-1]
            case "settings":
                self._change_settings()
            case "options":
                self.options["batch_size"] = 1
                self.options["path"] = "whole"

    def _change_weights(self) -> None:
        generator = torch.Generator().manual_seed(self.case.seed)
        names = list(self.inner_parameters)
        matrices = [name for name in names if self.inner_parameters[name].ndim > 1]
        pick = torch.randint(len(matrices), (2,), generator=generator).tolist()
        state = {}
        for name in {matrices[place] for place in pick} | {names[-1]}:
            own = self.inner_parameters[name]
            fresh = own.detach().float() * (1 + 0.5 * torch.randn(own.shape, generator=generator))
            fresh = fresh.to(own.dtype)
            match self.case.how:
                case "data":
                    own.data.copy_(fresh)
                case "numpy" if own.dtype is not torch.bfloat16:
                    own.detach().numpy()[:] = fresh.numpy()
                case _:
                    with torch.no_grad():
                        own.copy_(fresh)
            state[name] = fresh
        with torch.no_grad():
            for name, fresh in state.items():
                self.plain.parameters[name].copy_(fresh.double())

    def _change_settings(self) -> None:
        """Another factor of attention, where the model holds one and the bridge reads it."""
        if self.case.model.family.startswith(AS_LOADED):
            return
        for layer, block in enumerate(self.plain.blocks):
            for name, module in block.named_modules():
                if "scaling" in vars(module):
                    theirs = self.scaled[layer, name]
                    theirs.scaling = module.scaling = 1.7 * module.scaling

    # Truth

    def edits(self, texts: Sequence[Text] | None = None) -> list[list[Edit]]:
        """For each prompt what its plain pass changes."""
        texts = self.texts if texts is None else texts
        found: list[list[Edit]] = [[] for _ in texts]
        for own, made in zip(self.changes, self.made(), strict=True):
            means = None
            if own["kind"] == "zero_heads" and own["how"] == "mean":
                means = self.plain.means(texts, own["heads"])
            for number, text in enumerate(texts):
                match own["kind"]:
                    case "isolate":
                        prompt = self.prompts[number]
                        drawn = own["given"] or own["tokens"] == "random"
                        rows = {
                            layer: list(made.isolated(prompt, number, layer))
                            if drawn
                            else text.positions
                            for layer in own["layers"]
                        }
                        found[number].append(Cut(rows, own["mode"]))
                    case "zero_heads":
                        found[number].append(Heads(own["heads"], own["how"], own["at"], means))
                    case "zero_layers":
                        found[number].append(
                            Layers(own["start"], own["part"], self._how(own), own["at"])
                        )
                    case _:
                        scale = beta(own, self.case.model, len(text.words))
                        found[number].append(Scale(scale))
        return found

    def _how(self, own: Values) -> str:
        gptj = self.case.model.family == "GPT-J" and own["part"] == "attention"
        return "zero_output" if gptj else str(own["how"])

    def made(self) -> list[Any]:
        """The package's interventions."""
        return interventions(self.changes, self.case.model, self.prompts)

    def moved(self) -> float:
        """By how much the changes move the label logits."""
        if not (self.changes or self.handles):
            return 0.0
        with_changes = torch.stack(
            [self.plain.label_logits(t, e) for t, e in zip(self.texts, self.edits(), strict=True)]
        )
        for handle in self.handles:
            handle.remove()
        without = torch.stack([self.plain.label_logits(text) for text in self.texts])
        return float((with_changes - without).abs().max() / without.abs().max() / self.tolerance)

    def compare(self, name: str, found: Tensor, expected: Tensor, factor: float = 1.0) -> None:
        """Note a gap."""
        found = found.double()
        if found.shape != expected.shape:
            self.found.gaps[name] = float("inf")
            return
        scale = expected.abs().max().clamp(min=1e-30)
        gap = float((found - expected).abs().max() / scale / self.tolerance / factor)
        self.found.gaps[name] = max(gap, self.found.gaps.get(name, 0.0)) if gap == gap else gap

    def check(self, name: str, result: Any) -> None:
        """Compare one result with the plain model."""
        pairs = list(zip(self.texts, self.edits(), strict=True))
        options = self.case.options
        match name:
            case "predict":
                self.logits(result.label_logits, pairs)
                probs = [self.plain.log_probs(t, e, options["score"]) for t, e in pairs]
                self.compare("log probs", result.log_probs, torch.stack(probs))
            case "flow":
                self.saliency(name, result, pairs)
            case "maps":
                self.saliency(name, result, pairs)
            case "lens":
                rows = [self.plain.lens(t, e) for t, e in pairs]
                labels = [
                    row[:, reference.firsts(t)] for row, t in zip(rows, self.texts, strict=True)
                ]
                self.compare("lens", result.label_logits, torch.stack(labels))
                self.compare("lens log sum", result.log_sum, torch.stack(rows).logsumexp(-1))
            case "extraction":
                rows = torch.stack([self.plain.attention(t, e) for t, e in pairs])
                # Behind a window there is nothing to attend to: no number, where the plain model gives 0.
                nothing = result.attention.isnan() & (rows == 0)
                self.compare("extraction", result.attention.masked_fill(nothing, 0), rows)
            case "isolation":
                self.isolation(result, pairs)

    def logits(self, found: Tensor, pairs: Sequence[tuple[Text, list[Edit]]]) -> None:
        expected = torch.stack([self.plain.label_logits(text, edits) for text, edits in pairs])
        self.compare("label logits", found, expected)

    def loss(self) -> str:
        own = self.case.options["loss"]
        return "label" if own is None else str(own)

    def saliency(self, name: str, result: Any, pairs: Sequence[tuple[Text, list[Edit]]]) -> None:
        reduction = self.case.options["reduction"]
        for number, (text, edits) in enumerate(pairs):
            if self.loss() == "prediction":
                two = self.plain.label_logits(text, edits).topk(2).values
                if two[0] - two[1] < 20 * self.tolerance * two.abs().max():
                    continue
            maps = self.plain.maps(text, edits, self.loss(), reduction)
            if name == "maps":
                self.compare("maps", result.values[number], maps, OF_GRADIENTS)
                continue
            # A prompt whose loss is flat has scores of rounding errors only.
            expected = flow(maps, text)
            self.compare("flow", result.per_prompt[number], expected, OF_GRADIENTS)
            if text.roles:
                roles = by_role(maps, text, result.roles)
                self.compare("flow by role", result.role_saliency[number], roles, OF_GRADIENTS)

    def isolation(self, result: Any, pairs: Sequence[tuple[Text, list[Edit]]]) -> None:
        """Predicted classes and kept top tokens, where they do not hang on the last bits."""
        top = result.top_k
        wrong = 0
        for number, (text, edits) in enumerate(pairs):
            plain = self.plain.run(text, edits).logits[text.target]
            for window, (side, depth, tokens) in enumerate(result.windows):
                n = self.plain.n_layers
                layers = range(depth) if side == "first" else range(n - depth, n)
                for draw in range(DRAWS if tokens == "random" else 1):
                    made = icl.Isolate(
                        layers, tokens, redraw=self.case.options["redraw"], seed=draw,
                    )  # fmt: skip
                    rows = {n: list(made.isolated(self.prompts[number], number, n)) for n in layers}
                    cut = Cut(rows, self.case.options["mode"])
                    logits = self.plain.run(text, [*edits, cut]).logits[text.target]
                    if self._sure(logits[reference.firsts(text)], 1):
                        best = int(logits[reference.firsts(text)].argmax())
                        wrong += best != int(result.isolated[window, draw, number])
                if tokens == "label" and self._sure(plain, top) and self._sure(logits, top):
                    one, two = (set(own.topk(top).indices.tolist()) for own in (plain, logits))
                    overlap = len(one & two) / len(one | two)
                    wrong += abs(overlap - float(result.word_overlap[window, number])) > 1e-6
        self.found.gaps["isolation"] = float("inf") if wrong else 0.0

    def _sure(self, values: Tensor, count: int) -> bool:
        """True if the `count` largest are clear."""
        best = values.topk(count + 1).values
        return bool(best[-2] - best[-1] > 4 * self.tolerance * values.abs().max())


def _text(prompt: Any) -> Text:
    roles = [span.role for span in prompt.spans for _ in range(span.start, span.stop)]
    text = Text(
        list(prompt.tokens), prompt.target, list(prompt.label_positions),
        list(prompt.label_classes), [list(word) for word in prompt.label_words], prompt.answer, roles,
    )  # fmt: skip
    for place, label in zip(text.positions, text.classes, strict=True):
        assert text.tokens[place] in text.words[label]
    return text
