"""How often something is found in planted controls, where there is nothing.

    python -m tests.benchmarks.planted_rates [--seeds 200] [--only confusion anchors]

Every seed is a control model of its own (noise in all heads, no anchors) with prompts of its own.
`confusion` also draws six classes whose distances have nothing to do with their confusion: the
planted model has four, which are too few for a verdict. `anchors` also counts what anchor tokens
find in models with anchors.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import torch

import icl_mech as icl
from icl_mech.results.judging import judged
from tests.measurements.confusion.test_diagnosis import made
from tests.test_planted_anchors import build, found_and_others, measures

Found = Iterator[tuple[str, str]]
"""Statements and what they say."""


def anchoring(seed: int) -> Found:
    """Isolation and extraction."""
    model = icl.planted_model(anchors=False, seed=seed)
    _, isolated, read = measures(model, seed)
    yield "isolation", isolated.status
    yield "extraction", read.status


def confusion(seed: int) -> Found:
    """Distances and confusion: in the control, and of six classes in places drawn for either."""
    model = icl.planted_model(anchors=False, seed=seed)
    found = icl.diagnose_confusion(model, build(model, n=24, seed=seed), progress=False)
    yield "confusion, control", found.status
    yield "confusion, control: interval over prompts alone", judged(found.rank_correlation())
    generator = torch.Generator().manual_seed(seed)
    keys, places = 4 * torch.rand(2, 6, 2, generator=generator).double()
    answers = torch.arange(6).repeat(20)
    seen = places[answers] + torch.randn(120, 2, generator=generator)
    drawn = made(-torch.cdist(seen, places), answers, torch.cdist(keys, keys)[None, None])
    yield "confusion, six classes", drawn.status
    yield "confusion, six classes: interval over prompts alone", judged(drawn.rank_correlation())


def anchors(seed: int) -> Found:
    """Anchor tokens, with and without a circuit."""
    for planted in (False, True):
        model = icl.planted_model(anchors=planted, seed=seed)
        prompts = build(model, n=24, seed=seed, demonstrations="per_prompt")
        for of in ("saliency", "attention")[: 2 - planted]:
            name = f"anchor tokens by {of}{', planted' * planted}"
            found, labels, others, strongest = found_and_others(model, prompts, of=of)
            yield f"{name}: label words stand out", found.status
            alone = judged(found.interval("score_difference"))
            yield f"{name}: interval over prompts alone", alone
            for which, tokens in (("label words", labels), ("others", others)):
                yield from [(f"{name}: tokens", which)] * sum(map(len, tokens))
            for own, other, best in zip(labels, others, strongest, strict=True):
                wrong = bool(other) if planted else bool(own or other)
                yield f"{name}: prompts with a false one", str(wrong)
                yield f"{name}: prompts whose strongest token is a label word", str(best)
            yield from [(f"{name}: {own}", str(hit)) for own, hit in _read(prompts, labels)]


def _read(prompts: icl.PromptBatch, labels: list[set[int]]) -> Found:
    """Whether the label word that fits the query, and the others, are anchors."""
    for prompt, own in zip(prompts, labels, strict=True):
        for place, label in zip(prompt.label_positions, prompt.label_classes, strict=True):
            weak = prompt.labels[label] == icl.planted.WEAK_CLASS
            which = "other label words" if label != prompt.answer else "label words that fit"
            yield f"{which}{' (weak class)' * weak}", str(place in own)


PARTS = {"anchoring": anchoring, "confusion": confusion, "anchors": anchors}


def main() -> None:
    """Print how often each statement was made, by its status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    found: dict[str, Counter[str]] = {}
    for part in given.only:
        for seed in range(given.seeds):
            for name, own in PARTS[part](seed):
                found.setdefault(name, Counter())[own] += 1
    for name, counts in found.items():
        print(f"| {name} | {dict(counts)} | {sum(counts.values())} |")


if __name__ == "__main__":
    main()
