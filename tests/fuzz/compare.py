"""A case run by the package and by plain Hugging Face, and how far apart they are."""

import copy
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.measurements import Extraction, Flow, Isolation, Lens, Predict, Saliency
from icl_mech.measurements.compression.kept import parts
from icl_mech.measurements.extraction.label_words import AttentionReading
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.prompts import PromptBatch
from tests.fuzz import reference
from tests.fuzz.cases import Case, Values, beta, interventions
from tests.fuzz.hooks import place_hook
from tests.fuzz.reference import Cut, Edit, Heads, Hide, Layers, Plain, Scale, Text
from tests.tiny import tiny_tokenizer

TOLERANCES = {"float32": 2e-5, "float64": 1e-5, "bfloat16": 0.2}
"""Of the largest number of its kind; float64 is less than that in norms and rotary angles of
Hugging Face, which are float32 whatever the model is."""

OF_GRADIENTS = 20.0
"""Times as much: saliency is what is left of heads that cancel out."""

DRAWS = 2


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
        return f"{self.case} | " + (self.error or (gaps if self.gaps else f"refused: {self.refused}"))


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


class Comparison:
    """One case: the package's model, the plain one, and the prompts of both."""

    def __init__(self, case: Case, found: Outcome) -> None:
        self.case, self.found = case, found
        inner = case.model.make()
        self.inner_parameters = dict(inner.named_parameters())
        self.inner = inner
        self.plain = Plain(case.model.make())
        self.hooked_inner = place_hook(inner, self.plain, case.hook) if case.hook else None
        tokenizer = copy.deepcopy(tiny_tokenizer(case.model.tokenizer))
        self.model = icl.load_model(inner, tokenizer=tokenizer)
        self.hooked_plain = place_hook(self.plain.model, self.plain, case.hook) if case.hook else None
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
                    self._prepared_before = self._prepare()
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
                        rows = {
                            layer: list(made.isolated(prompt, number, layer))
                            if own["tokens"] == "random" else text.positions
                            for layer in own["layers"]
                        }  # fmt: skip
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
        return interventions(self.changes, self.case.model, len(self.texts[0].words))

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
                labels = [row[:, reference.firsts(t)] for row, t in zip(rows, self.texts, strict=True)]
                self.compare("lens", result.label_logits, torch.stack(labels))
                self.compare("lens log sum", result.log_sum, torch.stack(rows).logsumexp(-1))
            case "extraction":
                rows = [self.plain.attention(t, e) for t, e in pairs]
                self.compare("extraction", result.attention, torch.stack(rows))
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
            expected = reference.flow(maps, text)
            self.compare("flow", result.per_prompt[number], expected, OF_GRADIENTS)
            if text.roles:
                roles = reference.by_role(maps, text, result.roles)
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

    # Doors

    def measurement(self, name: str) -> Any:
        """The measurement of a quantity."""
        own = self.case.options
        return {
            "predict": Predict(own["score"], 3),
            "flow": Flow(own["loss"], own["reduction"], 2),
            "maps": Saliency(own["loss"], own["reduction"]),
            "lens": Lens(),
            "extraction": Extraction(),
            "isolation": Isolation(own["mode"], own["redraw"], DRAWS, 3),
        }[name]

    def asked(self, name: str) -> Any:
        """A quantity by its function."""
        own = self.case.options
        given = {"interventions": self.made(), "progress": False, **self.options}
        saliency = {"loss": own["loss"], "reduction": own["reduction"]}
        match name:
            case "predict":
                return icl.predict(self.model, self.prompts, score=own["score"], top_k=3, **given)
            case "flow":
                return icl.flow_scores(self.model, self.prompts, draws=2, **saliency, **given)
            case "maps":
                return icl.saliency_maps(self.model, self.prompts, **saliency, **given)
            case "lens":
                return icl.logit_lens(self.model, self.prompts, **given)
            case "extraction":
                return icl.extraction(self.model, self.prompts, **given)
            case _:
                return icl.isolation(
                    self.model, self.prompts, mode=own["mode"], redraw=own["redraw"], draws=DRAWS,
                    top_k=3, **given,
                )  # fmt: skip

    def _by_function(self) -> None:
        for name in self.case.quantities:
            self.check(name, self.asked(name))

    def _by_measure(self, **given: Any) -> None:
        analysis = icl.measure(
            self.model, self.prompts, *map(self.measurement, self.case.quantities),
            interventions=self.made(), progress=False, **self.options, **given,
        )  # fmt: skip
        for name, result in zip(self.case.quantities, analysis.results.values(), strict=True):
            self.check(name, result)

    def _by_kept(self) -> None:
        self._by_measure(out=self.out)

    def _by_variants(self) -> None:
        labels = len(self.texts[0].words)
        readings = [PredictionReading(3), AttentionReading(labels)]
        variants = [self.made(), [], [icl.ZeroLayers(self.plain.n_layers - 1, "mlp")]]
        read = run_variants(self.model, self.prompts, readings, variants, progress=False, **self.options)
        last: list[Edit] = [Layers(self.plain.n_layers - 1, "mlp", "zero_output", "target")]
        ways = [self.edits(), [[] for _ in self.texts], [last for _ in self.texts]]
        for ((logits, *_), attention), edits in zip(read, ways, strict=True):
            pairs = list(zip(self.texts, edits, strict=True))
            self.logits(logits, pairs)
            rows = [self.plain.attention(text, own) for text, own in pairs]
            self.compare("extraction", attention, torch.stack(rows))

    _prepared_before: Any = None

    def _prepare(self) -> Any:
        if self.case.door == "prepared":
            own = {name: self.options[name] for name in ("batch_size", "memory")}
            return prepare(self.model, self.prompts, **own)
        return None

    def _by_prepared(self) -> None:
        prepared = self._prepared_before or self._prepare()
        if prepared.prompts is not self.prompts:
            prepared = self._prepare()
        readings = [PredictionReading(3), AttentionReading(len(self.texts[0].words))]
        (logits, *_), attention = run(
            self.model, prepared, readings, self.made(), progress=False, **self.options
        )
        pairs = list(zip(self.texts, self.edits(), strict=True))
        self.logits(logits, pairs)
        rows = [self.plain.attention(text, edits) for text, edits in pairs]
        self.compare("extraction", attention, torch.stack(rows))

    def _by_compress(self) -> None:
        generator = torch.Generator().manual_seed(self.case.seed)
        start = parts(self.prompts[0]).query
        kept = torch.rand(start, generator=generator) < 0.7
        keep = [number for number in range(start) if kept[number]] or [0]
        own = {name: self.options[name] for name in ("batch_size", "memory")}
        result = icl.compress_demonstrations(
            self.model, self.prompts, keep=[keep] * len(self.prompts), measure_speed=False,
            progress=False, **own,
        )  # fmt: skip
        self.logits(result.label_logits, [(text, [Hide(start, keep)]) for text in self.texts])

    def _by_threads(self) -> None:
        results: dict[int, Any] = {}

        def work(number: int, changed: bool) -> None:
            try:
                results[number] = icl.predict(
                    self.model, self.prompts, interventions=self.made() if changed else [],
                    top_k=3, progress=False, **self.options,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001
                results[number] = error

        threads = [threading.Thread(target=work, args=(n, n % 2 == 0)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pairs = list(zip(self.texts, self.edits(), strict=True))
        for number, result in results.items():
            if isinstance(result, Exception):
                raise result
            plain = [(text, []) for text in self.texts]
            self.logits(result.label_logits, pairs if number % 2 == 0 else plain)


def _text(prompt: Any) -> Text:
    roles = [span.role for span in prompt.spans for _ in range(span.start, span.stop)]
    text = Text(
        list(prompt.tokens), prompt.target, list(prompt.label_positions),
        list(prompt.label_classes), [list(word) for word in prompt.label_words], prompt.answer, roles,
    )  # fmt: skip
    for place, label in zip(text.positions, text.classes, strict=True):
        assert text.tokens[place] == text.words[label][0]
    return text


def counted(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many cases of each kind were compared."""
    counts: Counter[str] = Counter()
    for own in outcomes:
        case = own.case
        state = "refused" if own.refused else "failed" if own.failed else "agree"
        counts[state] += 1
        if own.refused:
            continue
        counts[f"door {case.door}"] += 1
        counts[f"dtype {case.model.dtype}"] += 1
        counts[f"family {case.model.family}"] += 1
        counts[f"choice {case.choice['how']}"] += 1
        counts[f"between {case.between}"] += 1
        counts[f"hook {case.hook['at'] if case.hook else 'none'}"] += 1
        for change in case.changes or [{"kind": "none"}]:
            counts[f"change {change['kind']}"] += 1
        for gap in own.gaps:
            counts[f"quantity {gap.removeprefix('before: ')}"] += 1
        if (case.changes or case.hook) and own.moved > 1:
            counts["changes that move numbers"] += 1
    return counts
