"""The functions by which a case asks for numbers, each held against the plain model."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.measurements import Extraction, Flow, Isolation, LogitLens, Predict, SaliencyMaps
from icl_mech.measurements.compression.kept import parts
from icl_mech.measurements.extraction.extraction import AttentionReading
from icl_mech.measurements.reading import PredictionReading
from icl_mech.prompts import PromptBatch
from tests.fuzz.cases import Case, Values
from tests.fuzz.reference import Edit, Hide, Layers, Plain, Text

DRAWS = 2
"""Of random tokens, where a measurement makes several."""

Pairs = Sequence[tuple[Text, list[Edit]]]


class Doors:
    """What a comparison asks; how it compares is its own."""

    case: Case
    model: Any
    plain: Plain
    prompts: PromptBatch
    texts: list[Text]
    options: Values
    out: Path | None = None
    kept: Any = None

    def made(self) -> list[Any]:
        """The package's interventions."""
        raise NotImplementedError

    def edits(self) -> list[list[Edit]]:
        """For each prompt what its plain pass changes."""
        raise NotImplementedError

    def check(self, name: str, result: Any) -> None:
        """Compare one result with the plain model."""
        raise NotImplementedError

    def compare(self, name: str, found: Tensor, expected: Tensor) -> None:
        """Note a gap."""
        raise NotImplementedError

    def logits(self, found: Tensor, pairs: Pairs) -> None:
        """Compare label logits."""
        raise NotImplementedError

    def measurement(self, name: str) -> Any:
        """The measurement of a quantity."""
        own = self.case.options
        return {
            "predict": Predict(own["score"], 3),
            "flow": Flow(own["loss"], own["reduction"], 2),
            "maps": SaliencyMaps(own["loss"], own["reduction"]),
            "lens": LogitLens(),
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
        read = run_variants(
            self.model, self.prompts, readings, variants, progress=False, **self.options
        )
        last: list[Edit] = [Layers(self.plain.n_layers - 1, "mlp", "zero_output", "target")]
        ways = [self.edits(), [[] for _ in self.texts], [last for _ in self.texts]]
        for ((logits, *_), attention), edits in zip(read, ways, strict=True):
            pairs = list(zip(self.texts, edits, strict=True))
            self.logits(logits, pairs)
            rows = [self.plain.attention(text, own) for text, own in pairs]
            self.compare("extraction", attention, torch.stack(rows))

    def prepared(self) -> Any:
        if self.case.door == "prepared":
            own = {name: self.options[name] for name in ("batch_size", "memory")}
            return prepare(self.model, self.prompts, **own)
        return None

    def _by_prepared(self) -> None:
        prepared = self.kept or self.prepared()
        if prepared.prompts is not self.prompts:
            prepared = self.prepared()
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
        if self.case.model.windowed:
            keep = list(range(start))  # windows count the columns that are left
        own = {name: self.options[name] for name in ("batch_size", "memory")}
        result = icl.compress_demonstrations(
            self.model, self.prompts, keep=[keep] * len(self.prompts),
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
