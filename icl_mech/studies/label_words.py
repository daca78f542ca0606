"""The study of *Label Words are Anchors*, §§2-3, on the user's own model and prompts."""

from dataclasses import dataclass, field

from icl_mech.measurements.compression.table import CompareCompression
from icl_mech.measurements.confusion.diagnosis import Confusion
from icl_mech.measurements.extraction.label_words import Extraction
from icl_mech.measurements.isolation.map import IsolationWindows
from icl_mech.measurements.isolation.windows import Isolation
from icl_mech.measurements.reweighting.evaluation import Reweighting
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from icl_mech.studies.default import GIVEN, FlowStudy
from icl_mech.studies.nulls import PROMPTS, Wanted, add_untrained
from icl_mech.studies.published import label_words_numbers

ORDER = (
    "predictions", "flow", "untrained", "saliency", "isolation", "isolation_map", "extraction", "compression",
    "confusion", "reweighting", "published",
)  # fmt: skip
"""Of the results on a page."""


@dataclass(frozen=True)
class LabelWords:
    """Everything the paper measures; what prompts cannot give is left out with a note.

    Attributes:
        flow: What is measured of the information flow.
        seed: Of random controls.
        nulls: Untrained networks beside the flow; None: three of models that are not large.
    """

    flow: FlowStudy = field(default_factory=FlowStudy)
    seed: int = 0
    nulls: int | None = None

    def run(self, bench: Bench, prompts: PromptBatch) -> None:
        """Put everything that these prompts give on the bench."""
        width = max(1, bench.model.info.n_layers // 6)
        bench.measure(
            prompts,
            *self.flow.measurements(),
            Isolation(seed=self.seed),
            IsolationWindows(widths=(width,), step=width, seed=self.seed),
            Extraction(),
            optional=(
                CompareCompression(seed=self.seed),
                Confusion(),
                Reweighting(seed=self.seed),
            ),
        )
        beside: Wanted = {
            "flow": (self.flow.flow, PROMPTS),
            "isolation": (Isolation(seed=self.seed), PROMPTS),
            "extraction": (Extraction(), 3 * PROMPTS),
        }
        add_untrained(bench, prompts, beside, self.nulls)
        if prompts.has_answers:
            bench.keep("published", label_words_numbers(bench.results))
        if prompts.source.get("demonstrations") == "shared":
            bench.notes.append(GIVEN)
        bench.order(ORDER)
