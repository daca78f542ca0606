"""`Asker`: numbers of an experiment for the page, one part at a time, with a cache.

One prompt is an example: nothing here has an interval. All numbers equal those of the public functions.
"""

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading, common_prefix, run
from icl_mech.engine.readings import OfEntries
from icl_mech.errors import IclMechError, RunError
from icl_mech.explorer import heads
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.board import Board
from icl_mech.explorer.changes import interventions
from icl_mech.explorer.experiment import Experiment, Query
from icl_mech.explorer.free_text import Texts
from icl_mech.explorer.reuse import Runs
from icl_mech.interventions import Intervention, Patch
from icl_mech.measurements.calibration.calibration import CONTENT_FREE
from icl_mech.measurements.calibration.content_free import replaced
from icl_mech.measurements.lens.components import Components, FrozenComponentReading, check_sum
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.saliency.flow import Flow, FlowScores
from icl_mech.measurements.saliency.saliency_maps import SaliencyMaps, SaliencyMapsResult
from icl_mech.metrics.calibration import calibrate_labels
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.plots.pieces import visible
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.segments import Segment
from icl_mech.studies import measure

AT_TARGET = ("heads", "to_target", "reweight")
"""Changes that affect only the target's row."""

KEPT, MAPS = 300, 24
"""Maximum number of cached answers, and of cached answers that contain maps of all edges."""

NEXT, PER_LAYER = 6, 5
"""Number of top next words shown for the answer, and for each layer."""

DECADES = 4
"""Decades below the largest edge that saliency maps show."""


@dataclass
class Rows(OfEntries, Reading[Tensor]):
    """The target's normed residual after the embedding and each block, through a fitted lens if there is one.

    They are unembedded later, all layers in one product: inside the hooks, the unembedding would be fetched from
    memory for every layer.
    """

    lens: FittedLens | None = None

    target_only: ClassVar[bool] = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The target's row as the unembedding receives it."""
        entry, rows = site.layer + (site.name == "resid_post"), segment.at_target(activation)
        return LayerLensReading(lens=self.lens).as_read(segment.model, entry, rows)


class HeadRows(Reading[Tensor]):
    """The pattern of one head."""

    def __init__(self, layer: int, head: int) -> None:
        """Read this head of this layer."""
        self.layer, self.head = layer, head

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The layer's pattern."""
        return [Site("pattern", self.layer)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Rows and columns of the head's pattern."""
        return activation[:, self.head]

    def collect(self, kept: Kept) -> Tensor:
        """The pattern in the first prompt."""
        return kept.by_site()[Site("pattern", self.layer)][0]


class Asker:
    """Answers about experiments with one model."""

    def __init__(self, model: LanguageModel, stage: Stage) -> None:
        """Start with an empty cache."""
        self.model, self.stage = model, stage
        self.runs = _runs(model, stage)
        self.board = Board(model, stage, self.filled)
        self.known: OrderedDict[tuple[object, ...], dict[str, Any]] = OrderedDict()
        self.pinned: set[Experiment] = set()
        self.epoch = 0
        self._state = self._weights()
        self._lock = threading.RLock()
        self._prompts: OrderedDict[Experiment, PromptBatch] = OrderedDict()
        self._built_one_at_a_time = threading.RLock()
        self._words: TextTokenizer | None = None

    def _weights(self) -> tuple[str, ...]:
        model = self.model
        points = getattr(model.wrapped, "hook_dict", {})
        hooks = (
            f"{name} {id(handle.hook)}"
            for name, point in points.items()
            for handle in (*point.fwd_hooks, *point.bwd_hooks)
            if not handle.is_permanent
        )
        return (model.fingerprint(), model.settings, *model.watch.foreign_hooks(), *hooks)

    def check_current(self) -> None:
        """Clear the cache if weights, settings or hooks of the model have changed."""
        with self._lock:
            self.model.refresh()
            if (state := self._weights()) != self._state:
                self._state, self.epoch = state, self.epoch + 1
                self.known.clear()
                if isinstance(self.stage.task, Texts):
                    self.stage.task.forget()
                    self._prompts.clear()
                self.runs = _runs(self.model, self.stage)
                self.board = Board(self.model, self.stage, self.filled)

    # --- prompts and changes ---

    def prompts(self, experiment: Experiment) -> PromptBatch:
        """The prompt of an experiment.

        Raises:
            PromptError: it is too long, or a demonstration has the text of the query.
        """
        key = experiment.plain
        with self._built_one_at_a_time:
            if key not in self._prompts:
                self._prompts[key] = experiment.prompts(self.stage.task, self.model)
            while len(self._prompts) > KEPT:
                self._prompts.popitem(last=False)
            return self._prompts[key]

    def tokens(self, experiment: Experiment) -> list[dict[str, Any]]:
        """Text, role and demonstration of every token."""
        prompt = self.prompts(experiment)[0]
        return [
            {"t": _shown(prompt.pieces[place]), "r": span.role, "d": span.demo}
            for span in prompt.spans
            for place in range(span.start, span.stop)
        ]

    def changes(
        self, experiment: Experiment, prompts: PromptBatch, queries: Sequence[Query] | None = None
    ) -> list[Intervention]:
        """The experiment's changes, as interventions on its prompts."""
        opposite = experiment.opposite(len(self.stage.task.labels))

        def others() -> PromptBatch:
            return opposite.prompts(self.stage.task, self.model, queries)

        return interventions(experiment.changes, prompts, self.model.info, others)

    def filled(
        self,
        experiment: Experiment,
        prompts: PromptBatch | None = None,
        queries: Sequence[Query] | None = None,
    ) -> list[Intervention]:
        """The experiment's changes, with patches' states from the cached run of the opposite prompt."""
        prompts = self.prompts(experiment) if prompts is None else prompts
        with self._lock:  # the board runs outside of `ask`
            return self._filled(self.changes(experiment, prompts, queries), prompts)

    def _filled(self, made: Sequence[Intervention], prompts: PromptBatch) -> list[Intervention]:
        for intervention in made:
            intervention.check(self.model.info)
            intervention.check_prompts(prompts)
        return [
            self._with_states(intervention, intervention.source)
            if isinstance(intervention, Patch) and intervention.source is not None
            else intervention
            for intervention in made
        ]

    def _with_states(self, patch: Patch, source: PromptBatch) -> Patch:
        rows = patch.place.rows(source)[0]
        if len(source) > 1 and int(rows.max()) >= common_prefix(source):
            return patch  # the engine reads them in every prompt
        entering = self.runs.plain(source[[0]]).entering
        values = torch.stack([entering[layer + 1][rows] for layer in patch.layers], dim=1)
        return replace(patch, source=None, values=values)

    # --- parts ---

    def ask(self, part: str, experiment: Experiment) -> dict[str, Any]:
        """One part of an experiment's numbers, see `PARTS`; a part's arguments follow its name.

        Raises:
            IclMechError: the package rejects the experiment.
        """
        key, (what, *more) = (part, experiment), part.split()
        if self.stage.of_texts and part in OF_LABELS:
            raise RunError(
                f"{part!r} needs demonstrations with label words, which texts do not have."
            )
        with self._lock:
            if key not in self.known:
                self.known[key] = PARTS[what](self, experiment, *more)
            self.known.move_to_end(key)
            self._let_go(KEPT, [*PARTS])
            self._let_go(MAPS, ["flow", "attention", "rows"])
            return self.known[key]

    def _let_go(self, most: int, parts: Sequence[str]) -> None:
        """Drop the oldest answers of these parts, except for pinned experiments."""
        keys = [key for key in self.known if str(key[0]).split()[0] in parts]
        spare = [key for key in keys[:-1] if key[1] not in self.pinned]
        for key in spare[: max(0, len(keys) - most)]:
            del self.known[key]

    def has(self, part: str, experiment: Experiment) -> bool:
        """True if a part is cached."""
        return (part, experiment) in self.known

    def read(self, experiment: Experiment) -> tuple[Float[Tensor, "entry d_vocab"], Components]:
        """Logits after the embedding and each block, and what each component adds."""
        prompts = self.prompts(experiment)
        rows, components = self.runs.values(prompts, self.filled(experiment, prompts))
        return self._logits(rows[0]), components

    def probs(self, experiment: Experiment) -> Float[Tensor, " label"]:
        """Probabilities of the label words, without the lens."""
        rows = self.runs.values(self.prompts(experiment), self.filled(experiment))[0][0, -1:]
        return self._among(self._logits(rows), self.labels(experiment))[0].exp()

    def _among(
        self, logits: Float[Tensor, "row d_vocab"], labels: list[int]
    ) -> Float[Tensor, "row label"]:
        """Log-probabilities among the label words; of a text's next tokens, in the whole vocabulary."""
        if self.stage.of_texts:
            return logits.log_softmax(-1)[:, labels]
        return logits[:, labels].log_softmax(-1)

    def _logits(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab"]:
        with torch.no_grad():
            return self.model.unembed(rows.to(self.model.device)).float().cpu()

    def labels(self, experiment: Experiment) -> list[int]:
        """First tokens of the label words, or of the choices if answers are free-form."""
        return list(self.prompts(experiment)[0].label_tokens)

    def names(self, experiment: Experiment) -> list[str]:
        """The label words or choices themselves."""
        return list(self.prompts(experiment)[0].labels)

    def answer(self, experiment: Experiment) -> dict[str, Any]:
        """Answer, next words, lens and heads, from one forward pass."""
        logits, components = self.read(experiment)
        labels = self.labels(experiment)
        among = self._among(logits, labels)
        heads: Any = []
        with suppress(IclMechError):  # without all parts of the model, the page shows no heads
            check_sum(components, self.model)
            heads = rounded(self.contrast(components.heads[0], experiment))
        best, ids = logits.topk(NEXT, dim=-1)
        log_sum = logits.logsumexp(-1, keepdim=True)
        probs = (best - log_sum).exp()
        words = self.words(ids)
        named = [[*zip(*pair, strict=True)] for pair in zip(words, rounded(probs), strict=True)]
        return {
            "probs": rounded(among[-1].exp()),
            "logits": rounded(among[-1]),
            "next": named[-1],
            "lens": rounded(among.exp()),
            "mass": rounded((logits[:, labels] - log_sum).exp().sum(-1)),
            "top": [layer[:PER_LAYER] for layer in named],
            "heads": heads,
            "contrast": self.against(experiment),
        }

    def contrast(
        self, heads: Float[Tensor, "layer head label"], experiment: Experiment
    ) -> Float[Tensor, "layer head"]:
        """Each head's contribution to the true answer's logit minus the mean of the others'."""
        answer = experiment.query.answer
        others = [label for label in range(heads.shape[-1]) if label != answer]
        return heads[..., answer] - heads[..., others].mean(-1)

    def against(self, experiment: Experiment) -> str:
        """Description of `contrast`."""
        labels, answer = self.names(experiment), experiment.query.answer
        others = [label for number, label in enumerate(labels) if number != answer]
        rest = others[0] if len(others) == 1 else "mean of the others"
        rest = f"that of “{rest}”" if self.stage.of_texts else rest
        return f"logit of “{labels[answer]}” minus {rest}"

    def calibrated(self, experiment: Experiment) -> dict[str, Any]:
        """Probabilities divided by their mean over content-free queries with the same demonstrations."""
        probs = torch.tensor(self.ask("now", experiment)["logits"]).double().softmax(-1)
        return {
            "probs": rounded(
                calibrate_labels(probs[None], self._without_content(experiment)[:, -1])[0]
            )
        }

    def prior(self, experiment: Experiment) -> dict[str, Any]:
        """What the lens shows whatever the query says: without demonstrations, over all queries, and calibrated by layer.

        A quantity that is not defined, as for free-form answers, is None.
        """
        zero = mean = calibrated = None
        n = 0
        with suppress(IclMechError):
            zero = self.ask("now", replace(experiment, demos=(), changes=()))["lens"]
        if not self.stage.task.is_open:  # free-form answers differ from query to query
            with suppress(IclMechError):
                every = self.board.lenses(experiment).values()
                lenses = [lens for lens in every if lens is not None]
                if n := len(lenses):
                    mean = rounded(torch.stack(lenses).softmax(-1).double().mean(0))
            with suppress(IclMechError):
                lens = torch.tensor(self.ask("now", experiment)["lens"])
                without = self._without_content(experiment).transpose(0, 1)
                calibrated = rounded(calibrate_labels(lens, without))
        return {"zero": zero, "mean": mean, "n": n, "calibrated": calibrated}

    def _without_content(self, experiment: Experiment) -> Float[Tensor, "text entry label"]:
        """The lens of content-free queries after the same demonstrations."""
        # The query's isolated tokens disappear with its text.
        experiment = experiment.asking(experiment.query)

        def prompts(variant: Experiment) -> PromptBatch:
            return replaced(self.prompts(variant), CONTENT_FREE, self.model.tokenizer).prompts

        asked = prompts(experiment)
        others = partial(prompts, experiment.opposite(len(self.stage.task.labels)))
        changes = interventions(experiment.changes, asked, self.model.info, others)
        if all(change.what in AT_TARGET for change in experiment.changes):
            rows = [self.runs.values(asked[[i]], changes)[0][0] for i in range(len(asked))]
            labels = asked.choice_tokens.to(self.model.device)
            with torch.no_grad():
                normed = torch.stack(rows).to(self.model.device)
                logits = self.model.unembed_labels(normed, labels).float().cpu()
        else:  # early rows change: run them all, after one shared prefix
            reading = LayerLensReading(vocabulary=False, lens=self.stage.lens)
            (lens,) = run(self.model, asked, [reading], changes, progress=False)
            logits = lens.label_logits[:, 0]
        return logits.double().softmax(-1)

    def pair(self, experiment: Experiment) -> dict[str, Any]:
        """The lens with all true and with all false labels."""
        classes = len(self.stage.task.labels)
        sides = [experiment.relabelled(shift, classes) for shift in (0, 1)]
        true, false = (self.ask("now", side)["lens"] for side in sides)
        return {"true": true, "false": false}

    def flow(self, experiment: Experiment) -> dict[str, Any]:
        """Flow by layer, if there are demonstrations, and saliency of every edge, from one backward pass."""
        prompts = self.prompts(experiment)
        changes = self.filled(experiment, prompts)
        what: list[Any] = [SaliencyMaps(), *([Flow()] if experiment.demos else [])]
        report = measure(self.model, prompts, *what, interventions=changes, progress=False)
        saliency: SaliencyMapsResult = report[SaliencyMapsResult]
        scores: FlowScores | None = report[FlowScores] if experiment.demos else None
        maps = saliency.values[0].float().tril(-1)
        top = float(maps.max())
        # 255 log steps below the largest edge of all layers.
        steps = (maps / max(top, 1e-30)).clamp(min=1e-30).log10() / DECADES + 1
        random = None
        if scores is not None and scores.null is not None:
            # Not through `sel`, which also draws thousands of samples for an interval over one prompt.
            share = scores.quantities()["null_share"].value()
            random = rounded(share[scores.scores.index("pq")])
        return {
            "values": [] if scores is None else rounded(scores.values),
            "edges": [] if scores is None else rounded(scores.quantities()["saliency"].value()),
            "random": random,
            "top": top,
            "maps": packed(steps.clamp(0, 1)),
            "t": maps.shape[1],
        }

    def attention(self, experiment: Experiment, layer: str, head: str) -> dict[str, Any]:
        """The attention pattern of a head, every row."""
        prompts = self.prompts(experiment)
        reading = HeadRows(int(layer), int(head))
        changes = self.filled(experiment, prompts)
        (rows,) = run(self.model, prompts, [reading], changes, progress=False)
        return {
            "layer": int(layer),
            "head": int(head),
            "maps": packed(rows.float()),
            "t": len(rows),
        }

    def words(self, ids: Tensor) -> list[list[str]]:
        """Text of tokens, row by row."""
        if self._words is None:
            self._words = TextTokenizer(self.model.tokenizer)
        flat = self._words.words(tuple(ids.flatten().tolist()))
        width = ids.shape[1]
        return [list(flat[row : row + width]) for row in range(0, len(flat), width)]


def _shown(piece: str) -> str:
    """The text of a token, with visible symbols if it could not be seen otherwise; empty if it continues a character."""
    seen = not piece or any(letter.isprintable() or letter.isspace() for letter in piece)
    return piece if seen else visible(piece)


def _runs(model: LanguageModel, stage: Stage) -> Runs:
    return Runs(model, [Rows(stage.lens), FrozenComponentReading()])


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "now": Asker.answer,
    "cal": Asker.calibrated,
    "pair": Asker.pair,
    "prior": Asker.prior,
    "attention": Asker.attention,
    "flow": Asker.flow,
    "heads": lambda asker, experiment, mode: {
        "mode": mode,
        "values": rounded(heads.values(asker, experiment, mode)),
    },
    "null": heads.null,
    "rows": heads.rows,
}
"""Parts by name, most important first."""

OF_LABELS = ("cal", "pair", "prior", *(f"heads {mode}" for mode in heads.ROLES))
"""Parts that texts do not have."""


def rounded(values: Tensor) -> Any:
    """Nested lists with four significant digits; None where a value is not finite, which JSON cannot say."""
    if values.ndim > 1:
        return [rounded(row) for row in values]
    return [float(f"{value:.4g}") if isfinite(value) else None for value in values.tolist()]


def packed(shares: Float[Tensor, "*layer row column"]) -> str:
    """Lower triangles, row by row, in 255 steps from 0 to 1."""
    rows, columns = torch.tril_indices(*shares.shape[-2:])
    # Re-weighted attention can exceed 1.
    small = (shares[..., rows, columns].clamp(0, 1) * 255).round().to(torch.uint8)
    return base64.b64encode(small.numpy().tobytes()).decode()
