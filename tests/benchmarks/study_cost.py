"""What a study runs, as a multiple of one bare forward pass: `python -m tests.benchmarks.study_cost`.

Counted, not timed: token rows that go through a block, over those of one forward pass over the same
prompts. Rows that are recomputed count again; a backward pass is counted beside. With `--narrow` the
model has the same tokenizer, layers and heads, random weights and 4 numbers a head: rows are the same,
CPU seconds say nothing.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.studies.bench import Bench

Counts = dict[str, int]

STUDIES = ("label_words", "overthinking", "causal")


class Counter:
    """Rows through blocks since it was last asked, forward and backward."""

    def __init__(self, model: Any) -> None:
        self.rows: Counts = defaultdict(int)
        layers = model.original_model.model.layers
        for block in layers:
            # Not the block itself, which is called also where a run enters above it; and not by
            # a hook, where there is one prompts share nothing.
            vars(block.mlp)["forward"] = self._counted(block.mlp.forward)
        self.blocks = len(layers)

    def _counted(self, forward: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            self._forward(output)
            return output

        # Where a model has hooks of one's own, prompts share nothing.
        run.__module__ = "torch"
        return run

    def _forward(self, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        self.rows["forward"] += hidden.shape[0] * hidden.shape[1]
        if hidden.requires_grad:
            count = hidden.shape[0] * hidden.shape[1]
            hidden.register_hook(lambda _: self._back(count))

    def _back(self, count: int) -> None:
        self.rows["backward"] += count

    def taken(self) -> Counts:
        """Rows so far; begins anew."""
        rows, self.rows = dict(self.rows), defaultdict(int)
        return rows


@contextmanager
def each_measurement(counter: Counter, table: dict[str, list[float]]) -> Iterator[None]:
    """Measurements of a bench one by one, so that each has its own count."""
    usual = Bench.measure

    def apart(
        bench: Bench, data: Any, *given: AnyMeasurement, optional: Any = (), **more: Any
    ) -> None:
        for number, own in enumerate((*given, *optional)):
            before = time.process_time()
            kinds: dict[str, Any] = {"optional": (own,)} if number >= len(given) else {}
            usual(bench, data, *(() if kinds else (own,)), **kinds, **more)
            rows = counter.taken()
            name = type(own).__name__
            table[name] = [
                rows.get("forward", 0), rows.get("backward", 0), time.process_time() - before
            ]  # fmt: skip

    Bench.measure = apart  # type: ignore[method-assign]
    try:
        yield
    finally:
        Bench.measure = usual  # type: ignore[method-assign]


def report(study: str, data: Any, model: Any, counter: Counter, *, apart: bool) -> None:
    """Run a study and print its table."""
    sides = data if isinstance(data, tuple) else (data,)
    bare = counter.blocks * sum(int(side.lengths.sum()) for side in sides)
    counter.taken()
    start = time.process_time()
    icl.predict(model, sides[0], path="whole", progress=False)
    passed = time.process_time() - start
    passed *= bare / (counter.blocks * int(sides[0].lengths.sum()))
    counter.taken()
    table: dict[str, list[float]] = {}
    start = time.process_time()
    if apart:
        with each_measurement(counter, table):
            icl.analyze(model, data, study=study, progress=False)
    else:
        icl.analyze(model, data, study=study, progress=False)
        rows = counter.taken()
        table["whole study"] = [rows.get("forward", 0), rows.get("backward", 0)]
        table["whole study"].append(time.process_time() - start)
    for name, (forward, backward, seconds) in table.items():
        print(
            f"{study:<12} {name:<24} forward {forward / bare:6.2f}  backward {backward / bare:6.2f}"
            f"  cpu {seconds:7.1f} s = {seconds / passed:6.1f} passes"
        )
    total = [sum(own[place] for own in table.values()) for place in range(3)]
    print(
        f"{study:<12} {'total':<24} forward {total[0] / bare:6.2f}  backward {total[1] / bare:6.2f}"
        f"  cpu {total[2]:7.1f} s = {total[2] / passed:6.1f} passes"
    )


def narrow() -> Any:
    """A model of the shape of the offline one, but narrow."""
    from transformers import LlamaConfig, LlamaForCausalLM

    offline = icl.load_model()
    own = offline.cfg
    config = LlamaConfig(
        vocab_size=own.d_vocab, hidden_size=4 * own.n_heads, intermediate_size=32,
        num_hidden_layers=own.n_layers, num_attention_heads=own.n_heads,
        num_key_value_heads=own.n_key_value_heads, max_position_embeddings=own.n_ctx,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    return icl.load_model(LlamaForCausalLM(config).eval(), tokenizer=offline.tokenizer)


def main() -> None:
    """The studies of label words, overthinking and what acts, on one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--task", default="headlines")
    parser.add_argument("--study", choices=STUDIES)
    parser.add_argument("--apart", action="store_true", help="one count per measurement")
    parser.add_argument("--narrow", action="store_true", help="count rows only, in minutes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = narrow() if given.narrow else icl.load_model()
    counter = Counter(model)
    for study in STUDIES:
        if given.study not in (None, study):
            continue
        data: Any
        if study == "label_words":
            data = icl.build_prompts(given.task, model, shots=1, n=given.prompts)
        else:
            data = icl.build_prompt_pairs(
                given.task, model, shots=2, n=given.prompts, demonstrations="per_prompt"
            )
        report(study, data, model, counter, apart=given.apart)


if __name__ == "__main__":
    main()
