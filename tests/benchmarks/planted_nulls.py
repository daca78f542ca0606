"""What is causally true of each planted null: the table of `docs/guides/planted.md`.

    python -m tests.benchmarks.planted_nulls

Each figure is a mean over seeds of the network and of its 48 prompts.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

import icl_mech as icl
from icl_mech.interventions import Cut, Intervention
from icl_mech.planted import NULLS, null_model, planted_task
from icl_mech.prompts import PromptBatch

DIAL = (0.0, 0.001, 0.01, 0.1, 1.0)
SEEDS = range(5)
N = 48
LABEL_WORDS = Cut("anchors", "target")


@cache
def network(kind, seed=0, share=0.0, switched=True):
    """A null, made once."""
    return null_model(kind, seed=seed, share=share, switched=switched)


@cache
def prompts(seed=0, n=N, **options) -> PromptBatch:
    """Prompts with demonstrations of their own; all nulls have one tokenizer."""
    options = {"shots": 1, "demonstrations": "per_prompt", **options}
    return icl.build_prompts(planted_task(), network("prior"), n=n, seed=seed, **options)


def answers(model, given: PromptBatch, edits: Sequence[Intervention] = ()):
    """Predictions under interventions."""
    return icl.predict(model, given, interventions=list(edits), progress=False)


class Change(NamedTuple):
    """What interventions do: accuracy before and with them, share of answers changed, change of P(right) among labels."""

    before: float
    accuracy: float
    changed: float
    right: float


def change(model, given: PromptBatch, *edits: Intervention) -> Change:
    """With interventions, against without."""
    plain, cut = answers(model, given), answers(model, given, edits)
    rows = torch.arange(len(given)), given.answers
    right, after = (own.label_logits.softmax(-1)[rows] for own in (plain, cut))
    changed = (plain.predicted != cut.predicted).double().mean()
    return Change(
        plain.accuracy.value, cut.accuracy.value, float(changed), float((after - right).mean())
    )


def figures(kind: str, share: float = 0.0, seed: int = 0) -> dict[str, float]:
    """Accuracies, and what cutting the edges from label words to the target changes."""
    model = network(kind, seed, share)
    false = prompts(seed, labels="permuted")
    followed = answers(model, false)
    taught = torch.tensor([own.false_answer for own in false])
    wrong = followed.predicted != false.answers
    cut = change(model, prompts(seed), LABEL_WORDS)
    return {
        "true": answers(model, prompts(seed)).accuracy.value,
        "zero-shot": answers(model, prompts(seed, shots=0)).accuracy.value,
        "shuffled": answers(model, prompts(seed, labels="shuffled")).accuracy.value,
        "false": followed.accuracy.value,
        "taught, of wrong": float((followed.predicted == taught)[wrong].double().mean()),
        "cut: accuracy": cut.accuracy,
        "cut: changed": cut.changed,
        "cut: right": cut.right,
    }


def main() -> None:
    """Print the table."""
    rows = [(kind, share) for kind in NULLS for share in (DIAL if kind == "decorative" else (0.0,))]
    for number, (kind, share) in enumerate(rows):
        found = [figures(kind, share, seed) for seed in SEEDS]
        if not number:
            print("kind", *found[0], sep=" | ")
        means = [sum(own[name] for own in found) / len(found) for name in found[0]]
        print(f"{kind} {share or ''}", *(f"{mean:.3f}" for mean in means), sep=" | ")


if __name__ == "__main__":
    main()
