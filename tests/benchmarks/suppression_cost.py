"""Time of hiding every span of one text: with kept beginnings, and with one masked run per span.

    python -m tests.benchmarks.suppression_cost [--sentences 40] [--model smollm2-135m]

Both give the same divergences, which is checked first. The masked runs are those of `path="whole"`, in
batches, and one at a time as a loop over spans would make them. Times are CPU seconds of this process,
the plain run not counted apart.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import icl_mech as icl
from icl_mech.engine import Kept, Reading, run
from icl_mech.models import Site, adapt

SENTENCE = (
    "The {n} guest opened the {w} door and looked at the long table.",
    "Nobody had told her that {n} chairs were {w} and broken.",
    "She counted the {w} plates, wrote {n} into her book and left.",
)
WORDS = ("old", "green", "heavy", "small", "dark", "empty", "wooden")


class Residuals(Reading[Any]):
    """Residuals at every token."""

    def sites(self, info: Any) -> list[Site]:
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Any, segment: Any) -> Any:
        return activation

    def collect(self, kept: Kept) -> Any:
        return kept.stacked()[0, 0]


def text(sentences: int) -> str:
    """So many sentences, no two of them equal."""
    return " ".join(
        SENTENCE[i % len(SENTENCE)].format(n=i + 2, w=WORDS[i % len(WORDS)])
        for i in range(sentences)
    )


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its CPU seconds."""
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def one_by_one(model: Any, prompts: icl.PromptBatch) -> torch.Tensor:
    """One whole run and the divergence of every later token, for each span."""
    adapted = adapt(model)

    def log_probs(edits: Any) -> torch.Tensor:
        (residual,) = run(model, prompts, [Residuals()], edits, progress=False)
        return adapted.logits(residual).double().log_softmax(-1)

    with torch.no_grad():
        plain, found = log_probs([]), []
        for number in range(len(prompts[0].text_spans) - 1):
            moved = plain - log_probs([icl.Suppress([number])])
            found.append((plain.exp() * moved).sum(-1))
    return torch.stack(found)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--model", default="smollm2-135m")
    given = parser.parse_args()
    model = icl.load_model(given.model)
    prompts = icl.texts([text(given.sentences)], model)
    spans, length = prompts[0].text_spans, len(prompts[0])
    rows = sum(length - stop for _, stop in spans[:-1])
    (_, full) = timed(lambda: run(model, prompts, [Residuals()], progress=False))
    kept, shared = timed(lambda: icl.suppression(model, prompts, progress=False))
    whole, masked = timed(lambda: icl.suppression(model, prompts, path="whole", progress=False))
    plain, looped = timed(lambda: one_by_one(model, prompts))
    count = len(spans) - 1
    for other in (whole.by_token[0][:count], plain):
        assert float((kept.by_token[0][:count] - other).abs().max()) < 1e-4
    lines = (
        f"{count} suppressions, {length} tokens; rows run: {rows / (count * length):.2f} of all",
        f"one forward pass without unembedding: {full:.2f} s",
        f"kept beginnings: {shared:.1f} s",
        f"masked runs in batches: {masked:.1f} s, ratio {shared / masked:.2f}",
        f"masked runs one by one: {looped:.1f} s, ratio {shared / looped:.2f}",
    )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
