"""What each method costs and how it looks, for its page in the reference: `python -m tests.benchmarks.cards`.

Costs are token rows through a block, over those of one forward pass over the same prompts, forward and
backward, counted on 12 prompts of `headlines` with a narrow model of the offline one's depth and heads;
they go to `docs/cards.json`. Figures are those of the planted model, whose circuit is known
(`docs/figures/methods`); of methods for texts and pairs of other kinds, of the narrow model none.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import CompressContext
from icl_mech.planted import rationale_model, rationale_task
from tests.benchmarks.study_cost import Counter, narrow

DOCS = Path(__file__).parents[2] / "docs"
QUIET = {"progress": False}
TEXT = (
    "The lighthouse stood on a cliff. Its keeper lit the lamp each night. One evening the lamp went dark. "
    "A ship was coming in from the north. The keeper ran up the stairs with a lantern. The ship turned away in time."
)


@dataclass
class Setting:
    """A model with a task, and what several methods need first."""

    model: Any
    task: Any
    n: int

    def prompts(self, **options: Any) -> icl.PromptBatch:
        """Prompts of the task."""
        return icl.build_prompts(self.task, self.model, **{"shots": 1, "n": self.n, **options})

    @cached_property
    def one(self) -> icl.PromptBatch:
        """Prompts with shared demonstrations."""
        return self.prompts()

    @cached_property
    def drawn(self) -> icl.PromptBatch:
        """Twice as many prompts, each with its own demonstrations: half of them choose, the others test."""
        return self.prompts(n=2 * self.n, demonstrations="per_prompt")

    @cached_property
    def rationales(self) -> icl.PromptBatch:
        """Prompts with rationales."""
        task = self.task if isinstance(self.task, icl.Task) else "comparisons"
        return icl.build_prompts(task, self.model, shots=1, n=self.n)

    @cached_property
    def pair(self) -> tuple[icl.PromptBatch, icl.PromptBatch]:
        """The same queries behind true and false demonstrations."""
        return icl.build_prompt_pairs(
            self.task, self.model, shots=2, n=self.n, demonstrations="per_prompt"
        )

    @cached_property
    def texts(self) -> icl.PromptBatch:
        """Texts without classes."""
        return icl.texts([TEXT] * 2, self.model)

    @cached_property
    def accuracy(self) -> Any:
        """Accuracy by layer."""
        return icl.layer_accuracy(self.model, *self.pair, **QUIET)

    @cached_property
    def scores(self) -> Any:
        """Scores of heads with false demonstrations."""
        return icl.head_scores(self.model, self.pair[1], **QUIET)

    @cached_property
    def mediation(self) -> Any:
        """Effects of heads."""
        shuffled = self.prompts(shots=2, labels="shuffled")
        return icl.head_mediation(self.model, self.pair[0], shuffled, **QUIET)

    @cached_property
    def train(self) -> icl.PromptBatch:
        """Prompts to learn from."""
        return icl.build_prompts(self.task, self.model, shots=1, n=8, seed=1, split="train")

    @cached_property
    def factors(self) -> Any:
        """Learned factors of attention."""
        return icl.fit_reweighting(self.model, self.train, epochs=1, **QUIET)

    @cached_property
    def tuned(self) -> Any:
        """A tuned lens."""
        return icl.fit_tuned_lens(self.model, self.train, **QUIET)

    @cached_property
    def vector(self) -> Any:
        """A function vector."""
        return icl.function_vector(self.model, self.mediation)


Call = Callable[[Setting], Any]

OF_RATIONALES = ("rationale_answers", "rationale_use")


def of_prompts(name: str, **more: Any) -> Call:
    """A method of one set of prompts."""
    return lambda own: getattr(icl, name)(own.model, own.one, **QUIET, **more)


def of_pairs(name: str, **more: Any) -> Call:
    """A method of true and false demonstrations."""
    return lambda own: getattr(icl, name)(own.model, *own.pair, **QUIET, **more)


def of_texts(name: str, **more: Any) -> Call:
    """A method of texts."""
    return lambda own: getattr(icl, name)(own.model, own.texts, **QUIET, **more)


CALLS: Mapping[str, tuple[tuple[str, ...], Call]] = {
    # What must be there first, and the call that is counted.
    **{
        name: ((), of_prompts(name))
        for name in ("predict", "flow_scores", "saliency_maps", "flow_by_demonstration", "leave_one_out", "one_false_demonstration", "gain", "guaranteed_exit",
                     "isolation", "isolation_map", "edge_cuts", "extraction", "logit_lens", "lens_table", "saliency_check", "calibration",
                     "compress_demonstrations", "diagnose_confusion", "anchor_tokens")
    },
    **{
        name: ((), lambda own, name=name: getattr(icl, name)(own.model, own.rationales, **QUIET))
        for name in OF_RATIONALES
    },
    "CompressContext": ((), lambda own: CompressContext()(own.model, own.one)),
    "task_vector": ((), of_prompts("task_vector")),
    "demonstration_steering": ((), of_prompts("demonstration_steering", texts=[])),
    **{
        name: ((), of_pairs(name))
        for name in ("layer_accuracy", "context_accuracy", "alignment", "attribution_patching", "transplant",
                     "matching_by_layer", "circuit_faithfulness")
    },
    "early_exit": (("accuracy",), lambda own: icl.early_exit(own.accuracy)),
    "head_scores": (("pair",), lambda own: icl.head_scores(own.model, own.pair[1], **QUIET)),
    # As the planted language has no other templates and label words, seeds and subsets only.
    "stability": (
        ("pair",),
        lambda own: icl.stability(own.model, own.pair, over=("seed", "subset"), k=3, **QUIET),
    ),
    "head_attention": (
        ("scores",),
        lambda own: icl.head_attention(own.model, own.pair[1], own.scores.top(3), **QUIET),
    ),
    "find_false_induction_heads": (
        (),
        lambda own: icl.find_false_induction_heads(own.model, own.task, shots=2, n=own.n, **QUIET),
    ),
    "ablation": (
        ("scores",),
        lambda own: icl.ablation(own.model, *own.pair, heads=own.scores.top(2), **QUIET),
    ),
    "head_mediation": (("pair",), lambda own: own.mediation),
    "function_vector": (("mediation",), lambda own: icl.function_vector(own.model, own.mediation)),
    "function_vector_by_demonstration": (
        (),
        lambda own: icl.function_vector_by_demonstration(
            own.model, own.one, k=3, mean="class" if own.n > 12 else "all", **QUIET
        ),
    ),
    "steer": (
        ("vector",),
        lambda own: icl.steer(own.model, own.prompts(shots=0), own.vector, **QUIET),
    ),
    "induction_scores": ((), lambda own: icl.induction_scores(own.model, **QUIET)),
    "compare_heads": (
        ("scores", "mediation"),
        lambda own: icl.compare_heads(
            own.model, *own.pair,
            {"false induction": own.scores.top(3), "function-vector": own.mediation.top(3)}, **QUIET,
        ),
    ),
    "task_heads": ((), lambda own: icl.task_heads(own.model, own.drawn, **QUIET)),
    **{name: ((), of_texts(name)) for name in ("span_flow", "suppression")},
    "anchor_agreement": ((), of_texts("anchor_agreement", proximity=2)),
    "generate": ((), lambda own: icl.generate(own.model, own.one, **QUIET)),
    "fit_reweighting": ((), lambda own: icl.fit_reweighting(own.model, own.one, **QUIET)),
    "evaluate_reweighting": (
        ("factors",),
        lambda own: icl.evaluate_reweighting(own.model, own.factors, own.one, **QUIET),
    ),
    "fit_tuned_lens": (("train",), lambda own: own.tuned),
    "fit_jacobian_lens": (("train",), lambda own: icl.fit_jacobian_lens(own.model, own.train, **QUIET)),
    "compare_lenses": (
        ("tuned",),
        lambda own: icl.compare_lenses(own.model, own.one, own.tuned, **QUIET),
    ),
}  # fmt: skip


def costs(names: list[str]) -> Iterator[tuple[str, dict[str, float] | str]]:
    """Passes of each method, or why it was not counted."""
    model = narrow()
    own, counter = Setting(model, "headlines", 12), Counter(model)
    for name in names:
        needs, call = CALLS[name]
        try:
            for need in needs:
                getattr(own, need)
            counter.taken()
            call(own)
        except icl.IclMechError as error:
            yield name, str(error)
            continue
        rows = counter.taken()
        bare = counter.blocks * rows_of(own, name)
        yield name, {kind: round(rows.get(kind, 0) / bare, 3) for kind in ("forward", "backward")}


def rows_of(own: Setting, name: str) -> int:
    """Tokens of the prompts that a method is about."""
    if name in ("span_flow", "suppression", "anchor_agreement"):
        return int(own.texts.lengths.sum())
    paired = ("layer_accuracy", "context_accuracy", "alignment", "attribution_patching", "ablation",
              "compare_heads", "find_false_induction_heads", "head_mediation", "transplant", "matching_by_layer",
              "circuit_faithfulness")  # fmt: skip
    if name in paired:
        return sum(int(side.lengths.sum()) for side in own.pair)
    if name == "task_heads":
        return int(own.drawn.lengths.sum())
    if name in OF_RATIONALES:
        return int(own.rationales.lengths.sum())
    if name in ("head_scores", "head_attention", "stability"):
        return int(own.pair[1].lengths.sum())
    if name in ("fit_tuned_lens", "fit_jacobian_lens"):
        return int(own.train.lengths.sum())
    return int(own.one.lengths.sum())


def figures(names: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """The figure of each method on the planted model; why there is none, where there is none."""
    usual = Setting(icl.planted_model(), icl.planted_task(), 24)
    special = {"task_heads": Setting(icl.planted_model(circuit="task"), icl.planted_task(), 24)}
    reasons = Setting(rationale_model(), rationale_task(), 24)
    special |= dict.fromkeys(OF_RATIONALES, reasons)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        needs, call = CALLS[name]
        own = special.get(name, usual)
        try:
            for need in needs:
                getattr(own, need)
            figure = call(own).plot()
        except (icl.IclMechError, AttributeError) as error:
            yield name, str(error)
            continue
        (folder / f"{name}.json").write_text(figure.to_json(), encoding="utf-8")
        yield name, ""


def main() -> None:
    """Count, draw, and say what could not be."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CALLS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kept = DOCS / "cards.json"
    cards = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for name, found in costs(given.names):
        if isinstance(found, str):
            print(f"{name}: not counted: {found}")
        else:
            cards[name] = found
            print(f"{name}: {found['forward']:.2f} forward, {found['backward']:.2f} backward")
    kept.write_text(json.dumps(dict(sorted(cards.items())), indent=1) + "\n", encoding="utf-8")
    for name, why in figures(given.names, DOCS / "figures" / "methods"):
        print(f"{name}: {'drawn' if not why else f'no figure: {why}'}")


if __name__ == "__main__":
    main()
