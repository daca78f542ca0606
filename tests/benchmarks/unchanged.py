"""Does a change of the code change a number?

`store` runs every public function on small random models, the planted model and SmolLM2-135M,
and writes what they give; `compare` says where two such folders differ:

    PYTHONPATH=. python tests/benchmarks/unchanged.py store before
    ... change the code, or go to another checkout ...
    PYTHONPATH=. python tests/benchmarks/unchanged.py store after
    python tests/benchmarks/unchanged.py compare before after

Only the public names are used, so the code on both sides may be laid out differently. Numbers are
those of a result's fields, properties, table and figure. Numbers on both sides are compared;
those on one side only, and texts that differ, are notes and no failures. Provenance and times
are left out. `store` needs about five minutes on one core; `--models` stores some models only.
"""

import argparse
import importlib
import json
import re
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import chain, product
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import icl_mech as icl
from icl_mech.measurements import CompressContext

LIMIT = 1e-6
LEFT_OUT = ("provenance", "speed", "_")
"""Fields whose names begin so are not compared."""

ROLES = (
    "bos", "narrative", "format", "demo_text", "label_word", "query_text", "target", "unknown",
)  # fmt: skip
ERRORS = (icl.IclMechError, TypeError, ValueError, AttributeError, RuntimeError, LookupError)
QUIET = {"progress": False}
METHODS = ("hidden_anchor", "text_anchor", "hidden_random", "hidden_random_top")

TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")
TWO = icl.Task(
    "two",
    icl.Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(icl.Example(f"{text} {n}", i % 2) for n in range(2) for i, text in enumerate(TEXTS)),
    tuple(icl.Example(f"{text} {n}", i % 2) for n in range(6) for i, text in enumerate(TEXTS)),
)
OBJECTS = (
    "stocks fell", "green leaves", "the home team won", "a Business story", "wheat", "a match",
    "prices", "basil and thyme", "the final", "who wrote it?", "moss", "rowing",
)  # fmt: skip
THREE = icl.Task(
    "three",  # with label words of one and of several tokens
    icl.Template("{text}: {label}.", separator="\n\n"),
    ("World", "plant/vegetable", "Sports"),
    tuple(icl.Example(text, i % 3) for i, text in enumerate(OBJECTS)),
    tuple(icl.Example(f"{text} {n}", i % 3) for n in range(3) for i, text in enumerate(OBJECTS)),
)


# --- what a function gave, as numbers and texts by name ---


@dataclass
class Book:
    """All values of one model: `function|field` -> tensor or text; errors by function."""

    model: str
    numbers: dict[str, Tensor] = field(default_factory=dict)
    texts: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, case: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run it, write down what it gives, and give it back (None if it raised)."""
        try:
            result = function(*args, **options)
        except ERRORS as error:
            self.errors[case] = f"{type(error).__name__}: {error}"
            return None
        for part, value in parts(case, result):
            for name, found in readings(value):
                if isinstance(found, Tensor):
                    self.numbers[f"{part}|{name}"] = found.detach().cpu().contiguous().clone()
                else:
                    self.texts[f"{part}|{name}"] = found
        return result

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.numbers, folder / f"{self.model}.safetensors")
        texts = {"errors": self.errors, "texts": self.texts}
        (folder / f"{self.model}.json").write_text(json.dumps(texts, indent=1, sort_keys=True))

    @classmethod
    def load(cls, folder: Path, model: str) -> "Book":
        texts = json.loads((folder / f"{model}.json").read_text())
        numbers = load_file(folder / f"{model}.safetensors")
        return cls(model, numbers, texts["texts"], texts["errors"])

    def by_case(self) -> dict[str, dict[str, Tensor | str | None]]:
        """Function -> name -> value."""
        cases: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, value in chain(self.numbers.items(), self.texts.items()):
            case, name = key.split("|", 1)
            cases[case][name] = value
        return cases


def parts(case: str, result: Any) -> Iterator[tuple[str, Any]]:
    """The result itself, or each result of a study."""
    studied = getattr(result, "results", None)
    if not isinstance(studied, Mapping):
        yield case, result
        return
    yield f"{case}: notes", {"notes": result.notes, "title": result.title}
    for name, value in studied.items():
        yield f"{case}: {name}", value


def readings(result: Any) -> Iterator[tuple[str, Tensor | str | None]]:
    """Fields, public properties, numeric columns of the table, figure and summary."""
    if isinstance(result, icl.PromptBatch):
        yield from layout(result)
    elif not is_dataclass(result):
        yield from flat(result, "")
        return
    else:
        yield from flat(result, "")
    for name in dir(type(result)):
        if isinstance(getattr(type(result), name), property | cached_property):
            yield from flat(attempt(lambda n=name: getattr(result, n)), name)
    if hasattr(result, "to_pandas"):
        yield from columns(attempt(result.to_pandas))
    if hasattr(result, "drawing"):
        shape = attempt(result.drawing)
        yield from ((name, x) for name, x in flat(shape, "drawing") if isinstance(x, Tensor))
    if hasattr(result, "summary"):
        yield "summary", re.sub("speed-up[^,;]*", "speed-up", result.summary())


def attempt(get: Callable[[], Any]) -> Any:
    """What it gives; nothing where this result has no such thing."""
    try:
        return get()
    except icl.IclMechError:
        return {}


def columns(table: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(table, Mapping):
        return
    for name in table.select_dtypes(("number", "bool")).columns:
        if not left_out(str(name)):
            yield f"table.{name}", torch.from_numpy(table[name].to_numpy().copy())


def layout(prompts: icl.PromptBatch) -> Iterator[tuple[str, Tensor]]:
    """Token ids and spans; the other numbers are properties of the batch."""
    for i, prompt in enumerate(prompts):
        yield f"tokens/{i}", torch.tensor(prompt.tokens)
        rows = [
            (ROLES.index(span.role), -1 if span.demo is None else span.demo, span.start, span.stop)
            for span in prompt.spans
        ]
        yield f"spans/{i}", torch.tensor(rows)
        false = prompt.false_answer
        yield f"false_answer/{i}", torch.tensor(-1 if false is None else false)
        yield f"label_words/{i}", torch.tensor(list(chain(*prompt.label_words)))
        yield f"exact/{i}", torch.tensor(prompt.exact)


def flat(value: Any, name: str) -> Iterator[tuple[str, Tensor | str | None]]:
    """Tensors and texts inside a value: `field.field` and `field/index`."""
    if value is None or isinstance(value, Tensor | str):
        yield name, value
    elif isinstance(value, Number):
        yield name, torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    elif isinstance(value, Mapping):
        yield from members(value.items(), name)
    elif is_dataclass(value):
        yield from members(((f.name, getattr(value, f.name)) for f in fields(value)), name)
    elif isinstance(value, Sequence) and not timed(value):
        numbers = as_numbers(value)
        if numbers is not None:
            yield name, numbers
        else:
            yield from chain(*(flat(item, f"{name}/{i}") for i, item in enumerate(value)))


def members(items: Any, name: str) -> Iterator[tuple[str, Tensor | str | None]]:
    for key, value in items:
        if not left_out(str(key)):
            yield from flat(value, f"{name}.{key}" if name else str(key))


def as_numbers(value: Sequence[Any]) -> Tensor | None:
    """A list of numbers, or of equally long lists of them, as a tensor."""
    try:
        numbers = torch.tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return torch.tensor(value, dtype=torch.float64) if numbers.is_floating_point() else numbers


def left_out(name: str) -> bool:
    return name.startswith(LEFT_OUT)


def timed(row: Sequence[Any]) -> bool:
    """A row of a table of texts that holds a time."""
    return bool(row) and isinstance(row[0], str) and "speed" in row[0]


# --- models and prompts ---


class Sets(NamedTuple):
    """Prompts of one model: with shared demonstrations, and pairs of true and false ones."""

    shared: icl.PromptBatch
    true: icl.PromptBatch
    false: icl.PromptBatch
    train: icl.PromptBatch


def sets(model: Any, shared: Any, paired: Any, *, shots: int, n: int, n_pairs: int) -> Sets:
    options = {"shots": shots, "n": n_pairs, "demonstrations": "per_prompt"}
    return Sets(
        icl.build_prompts(shared, model, shots=shots, n=n),
        *icl.build_prompt_pairs(paired, model, **options),
        icl.build_prompts(shared, model, shots=1, n=6, seed=1, split="train"),
    )


def store_tiny(book: Book, family: str) -> None:
    from tests.tiny import tiny_model

    model = tiny_model(family)
    given = sets(model, TWO, THREE, shots=2, n=16, n_pairs=12)
    store_prompts(book, model)
    store_predictions(book, model, given)
    store_flow(book, model, given)
    store_isolation(book, model, given)
    store_extraction(book, model, given)
    store_lens(book, model, given)
    store_pairs(book, model, given)
    store_heads(book, model, given)
    store_ablation(book, model, given)
    store_compression(book, model, given)
    store_confusion(book, model, given)
    store_reweighting(book, model, given)
    store_studies(book, model, given)
    store_methods(book, model, given)


def store_planted(book: Book) -> None:
    """False induction heads are known here, so that pairs of prompts differ."""
    from tests.planted import planted_model, planted_task

    model, task = planted_model(), planted_task()
    given = sets(model, task, task, shots=2, n=18, n_pairs=18)
    store_pairs(book, model, given)
    store_heads(book, model, given)
    store_ablation(book, model, given)
    book.add("find_false_induction_heads, task", icl.find_false_induction_heads, model, task,
             shots=2, n=18, **QUIET)  # fmt: skip
    book.add("analyze overthinking", icl.analyze, model, (given.true, given.false),
             study="overthinking", heads_from=given.false, **QUIET)  # fmt: skip


def store_smollm2(book: Book) -> None:
    """A trained model, with few prompts; what takes long is left to the small ones."""
    model = icl.load_model()
    given = sets(model, "headlines", "questions", shots=1, n=8, n_pairs=6)
    shared, true, false, train = given
    store_prompts(book, model, "headlines", "questions", shots=1)
    some = edits(model, shared)
    book.add("predict", icl.predict, model, shared, **QUIET)
    for name in ("Isolate", "ZeroHeads mean target", "ZeroLayers mlp reference target", "Reweight"):
        book.add(f"predict, {name}", icl.predict, model, shared[:4], interventions=[some[name]],
                 **QUIET)  # fmt: skip
    book.add("predict, score=sum", icl.predict, model, true[:3], score="sum", **QUIET)
    book.add("flow_scores", icl.flow_scores, model, shared[:4], **QUIET)
    book.add("flow_scores, pairs", icl.flow_scores, model, true[:4], loss="vocab",
             reduction="abs_then_sum", **QUIET)  # fmt: skip
    book.add("saliency_maps", icl.saliency_maps, model, shared[:1], **QUIET)
    book.add("isolation", icl.isolation, model, shared[:4], depths=(1, 3), draws=2, **QUIET)
    book.add("extraction", icl.extraction, model, shared, **QUIET)
    for per in ("layer", "head"):
        book.add(f"logit_lens, {per}", icl.logit_lens, model, true[:4], per=per, **QUIET)
    accuracy = book.add("layer_accuracy", icl.layer_accuracy, model, true, false, **QUIET)
    book.add("early_exit", icl.early_exit, accuracy)
    book.add("context_accuracy", icl.context_accuracy, model, true, false, **QUIET)
    scores = book.add("head_scores", icl.head_scores, model, false, **QUIET)
    book.add("matching_by_layer", icl.matching_by_layer, model, true, false, **QUIET)
    book.add("head_attention", icl.head_attention, model, false[:2], scores.top(3), **QUIET)
    book.add("ablation", icl.ablation, model, true, false, start=20, heads=scores.top(2), draws=1,
             **QUIET)  # fmt: skip
    book.add("compare_compression", icl.compress_demonstrations, model, shared, method=METHODS, draws=2, **QUIET)  # fmt: skip
    context = book.add("compress_context", CompressContext(), model, shared)
    book.add("CompressedContext.predict", lambda: context.predict(model, shared))
    book.add("diagnose_confusion", icl.diagnose_confusion, model, shared, components=3, **QUIET)
    fitted = book.add("fit_reweighting", icl.fit_reweighting, model, train[:4], epochs=1, **QUIET)
    book.add("evaluate_reweighting", icl.evaluate_reweighting, model, fitted, shared, **QUIET)


MODELS: dict[str, Callable[[Book], None]] = {
    "tiny-gpt2": lambda book: store_tiny(book, "gpt2"),
    "tiny-llama": lambda book: store_tiny(book, "llama"),
    "planted": store_planted,
    "smollm2": store_smollm2,
}


# --- the public functions ---


def edits(model: Any, prompts: icl.PromptBatch) -> dict[str, Any]:
    """Every kind of intervention, by name."""
    layers, heads = model.cfg.n_layers, model.cfg.n_heads
    generator = torch.Generator().manual_seed(0)
    beta = 0.5 * torch.randn(layers, heads, prompts.n_labels, generator=generator)
    made: dict[str, Any] = {
        "Isolate": icl.Isolate((0, 1)),
        "Isolate zero": icl.Isolate((1,), mode="zero"),
        "Isolate positions": icl.Isolate((1,), positions=[(2, 5)] * len(prompts)),
        "Reweight": icl.Reweight(beta),
    }
    for redraw in ("set", "prompt", "layer"):
        made[f"Isolate random {redraw}"] = icl.Isolate((0, 1), tokens="random", redraw=redraw)
    for kind, at in product(("zero_output", "uniform_attention", "mean"), ("target", "all")):
        chosen = ((0, 1), (layers - 1, 2))
        made[f"ZeroHeads {kind} {at}"] = icl.ZeroHeads(chosen, kind=kind, at=at)
    whats = [("block", "zero_output"), *product(("attention", "mlp"), ("zero_output", "reference"))]
    for (part, kind), at in product(whats, ("target", "all")):
        made[f"ZeroLayers {part} {kind} {at}"] = icl.ZeroLayers(layers // 2, part, kind, at)
    return made


def few_edits(model: Any, prompts: icl.PromptBatch) -> dict[str, list[Any]]:
    """Interventions for functions that only pass them on."""
    made = edits(model, prompts)
    both = [made["Isolate random prompt"], made["Reweight"]]
    return {"": [], ", ZeroHeads mean": [made["ZeroHeads mean target"]], ", two edits": both}


def store_prompts(
    book: Book, model: Any, first: Any = TWO, second: Any = THREE, shots: int = 2
) -> None:
    settings = {"shots": shots, "n": 6}
    settings_of = {
        "": {},
        ", per_prompt": {"demonstrations": "per_prompt", "seed": 3},
        ", half_permuted": {"labels": "half_permuted"},
        ", random": {"labels": "random"},
        ", random_incorrect": {"labels": "random_incorrect"},
        ", train": {"split": "train", "shots": 1},
        ", zero-shot": {"shots": 0, "balanced": False},
        ", bos": {"bos": True},
    }
    for (name, options), task in product(settings_of.items(), (first, second)):
        case = f"build_prompts {getattr(task, 'name', task)}{name}"
        book.add(case, icl.build_prompts, task, model, **{**settings, **options})
    for labels, side in product(("permuted", "random"), (0, 1)):
        case = f"build_prompt_pairs, {labels}, {('true', 'false')[side]}"
        book.add(case, pair_side, second, model, side, false_labels=labels, **settings)
    text = "Review: a good film\nSentiment: Positive\nReview: so bad\nSentiment:"
    for before in (None, "Sentiment:"):
        book.add(f"prompts_from_text, before={before}", icl.prompts_from_text,
                 [text, f"Review: boring\nSentiment: Negative\n{text}"], ["Negative", "Positive"],
                 model, [0, "Positive"], before=before)  # fmt: skip


def pair_side(task: Any, model: Any, side: int, **options: Any) -> icl.PromptBatch:
    return icl.build_prompt_pairs(task, model, **options)[side]


def store_predictions(book: Book, model: Any, given: Sets) -> None:
    for score in ("first", "sum", "mean"):
        book.add(f"predict, score={score}", icl.predict, model, given.true, score=score, **QUIET)
    book.add("predict, batch_size=3", icl.predict, model, given.shared, batch_size=3, top_k=7,
             **QUIET)  # fmt: skip
    for name, edit in edits(model, given.shared).items():
        book.add(f"predict, {name}", icl.predict, model, given.shared, interventions=[edit],
                 **QUIET)  # fmt: skip
    for name, edit in edits(model, given.true).items():
        book.add(f"predict sums, {name}", icl.predict, model, given.true, interventions=[edit],
                 score="sum", batch_size=5, **QUIET)  # fmt: skip


def store_flow(book: Book, model: Any, given: Sets) -> None:
    reductions, losses = ("sum_then_abs", "abs_then_sum"), ("label", "prediction", "vocab")
    for reduction, loss in product(reductions, losses):
        options = {"reduction": reduction, "loss": loss, **QUIET}
        book.add(f"flow_scores, {reduction}, {loss}", icl.flow_scores, model, given.shared,
                 **options)  # fmt: skip
        book.add(f"saliency_maps, {reduction}, {loss}", icl.saliency_maps, model, given.true[:3],
                 **options)  # fmt: skip
    for name, edit in few_edits(model, given.true).items():
        book.add(f"flow_scores, pairs{name}", icl.flow_scores, model, given.true,
                 interventions=edit, **QUIET)  # fmt: skip
        book.add(f"saliency_maps, pairs{name}", icl.saliency_maps, model, given.false[:2],
                 interventions=edit, **QUIET)  # fmt: skip


def store_isolation(book: Book, model: Any, given: Sets) -> None:
    shared, true = given.shared, given.true
    settings = {
        "": {}, ", mode=zero": {"mode": "zero"}, ", redraw=prompt": {"redraw": "prompt"},
        ", redraw=layer": {"redraw": "layer"}, ", seed": {"seed": 4, "draws": 2, "top_k": 3},
    }  # fmt: skip
    for name, options in settings.items():
        book.add(f"isolation{name}", icl.isolation, model, shared, depths=(1, 2), **options,
                 **QUIET)  # fmt: skip
        book.add(f"isolation, pairs{name}", icl.isolation, model, true[:6], **options, **QUIET)
        book.add(f"isolation_map{name}", icl.isolation_map, model, shared, **options, **QUIET)
    book.add("isolation_map, random", icl.isolation_map, model, true[:6], tokens="random",
             widths=(1, 2), **QUIET)  # fmt: skip


def store_extraction(book: Book, model: Any, given: Sets) -> None:
    kept = []
    for truth, two in product(("prediction", "gold"), ("normalised", "reference")):
        for name, prompts in (("", given.shared), (", three classes", given.true)):
            kept.append(book.add(
                f"extraction, {truth}, {two}{name}", icl.extraction, model, prompts, truth=truth,
                two_classes=two, **QUIET,
            ))  # fmt: skip
    for name, edit in few_edits(model, given.true).items():
        book.add(f"extraction{name}", icl.extraction, model, given.true, interventions=edit,
                 **QUIET)  # fmt: skip


def store_lens(book: Book, model: Any, given: Sets) -> None:
    for at, variant in product(("target", "demonstrations"), ("sound", "reference")):
        book.add(f"logit_lens, layer, {at}, {variant}", icl.logit_lens, model, given.true, at=at,
                 variant=variant, **QUIET)  # fmt: skip
    for per, norm in product(("head", "mlp"), ("frozen", "own")):
        book.add(f"logit_lens, {per}, {norm}", icl.logit_lens, model, given.true, per=per,
                 norm=norm, **QUIET)  # fmt: skip
    for (name, edit), per in product(few_edits(model, given.true).items(), ("layer", "head")):
        book.add(f"logit_lens, {per}{name}", icl.logit_lens, model, given.true, per=per,
                 interventions=edit, vocabulary=False, **QUIET)  # fmt: skip


def store_pairs(book: Book, model: Any, given: Sets) -> None:
    true, false = given.true, given.false
    for variant, interval in product(("sound", "reference"), ("bootstrap", "reference")):
        options = {"variant": variant, "interval": interval, **QUIET}
        name = f"{variant}, {interval}"
        found = book.add(f"layer_accuracy, {name}", icl.layer_accuracy, model, true, false,
                         **options)  # fmt: skip
        book.add(f"context_accuracy, {name}", icl.context_accuracy, model, true, false, **options)
        book.add(f"early_exit, {name}", icl.early_exit, found, variant=variant)
        book.add(f"early_exit, two, {name}", icl.early_exit, [found, found], seed=2)
    for name, edit in few_edits(model, true).items():
        options = {"interventions": edit, **QUIET}
        book.add(f"layer_accuracy{name}", icl.layer_accuracy, model, true, false, **options)
        book.add(f"context_accuracy{name}", icl.context_accuracy, model, true, false, **options)


def store_heads(book: Book, model: Any, given: Sets) -> None:
    true, false = given.true, given.false
    for norm, over in product(("frozen", "own"), ("labels", "before_labels")):
        book.add(f"head_scores, {norm}, {over}", icl.head_scores, model, false, norm=norm,
                 over=over, permutations=5, seed=1, **QUIET)  # fmt: skip
    heads = ((0, 1), (1, 3), (2, 0))
    for name, edit in few_edits(model, false).items():
        options = {"interventions": edit, **QUIET}
        book.add(f"head_scores{name}", icl.head_scores, model, false, **options)
        book.add(f"matching_by_layer{name}", icl.matching_by_layer, model, true, false, **options)
        book.add(f"head_attention{name}", icl.head_attention, model, false[:3], heads, **options)
    found = book.add("find_false_induction_heads, prompts", icl.find_false_induction_heads, model,
                     false, top=3, **QUIET)  # fmt: skip
    book.add("false induction heads, top", lambda: {"top": found.top, "heads": found.heads})


def store_ablation(book: Book, model: Any, given: Sets) -> None:
    pair, heads = (given.true, given.false), ((1, 1), (2, 2))
    for kind in ("zero_output", "uniform_attention", "mean"):
        book.add(f"ablation, {kind}", icl.ablation, model, *pair, start=1, heads=heads, kind=kind,
                 draws=3, seed=2, **QUIET)  # fmt: skip
    book.add("ablation, parts", icl.ablation, model, *pair, ("late MLPs",), start=2, **QUIET)
    book.add("ablation, heads", icl.ablation, model, *pair, heads, draws=2, variant="reference",
             **QUIET)  # fmt: skip
    own = {name: [edit] for name, edit in edits(model, given.true).items() if "Isolate" not in name}
    book.add("ablation, own", icl.ablation, model, *pair, own, **QUIET)


def store_compression(book: Book, model: Any, given: Sets) -> None:
    shared, true = given.shared, given.true
    for method, position in product(METHODS, ("true", "overlap")):
        options = {"method": method, "position": position, "draws": 3}
        for name, prompts in (("", shared), (", pairs", true[:6])):
            book.add(f"compress_demonstrations, {method}, {position}{name}",
                     icl.compress_demonstrations, model, prompts, **options, **QUIET)  # fmt: skip
        context = book.add(f"compress_context, {method}, {position}", CompressContext(**options), model,
                           shared)  # fmt: skip
        book.add(f"CompressedContext.predict, {method}, {position}",
                 lambda c=context: c.predict(model, shared))  # fmt: skip
    kept = shared[0].label_positions
    book.add("compress_demonstrations, keep", icl.compress_demonstrations, model, shared,
             keep=kept, **QUIET)  # fmt: skip
    context = book.add("compress_context, keep", CompressContext(keep=kept), model, shared)
    book.add("CompressedContext.queries", lambda: context.queries(model, ["a film", "so bad"]))
    for name, prompts in (("", shared), (", pairs", true[:6])):
        book.add(f"compare_compression{name}", icl.compress_demonstrations, model, prompts, seed=1,
                 method=METHODS, draws=3, **QUIET)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        book.add("load_compressed_context", lambda: loaded(context, folder))
    book.add("load_compressed_context, predict",
             lambda: context.predict(model, shared, batch_size=3, top_k=3))  # fmt: skip


def loaded(context: Any, folder: str) -> Any:
    context.save(Path(folder) / "context")
    return type(context).load(Path(folder) / "context")


def store_confusion(book: Book, model: Any, given: Sets) -> None:
    for name, prompts in (("", given.true), (", shared", given.shared)):
        book.add(f"diagnose_confusion{name}", icl.diagnose_confusion, model, prompts, **QUIET)
    book.add("diagnose_confusion, options", icl.diagnose_confusion, model, given.true, layer=1,
             components=4, contexts=given.false, context=2, query_prompts=given.true[:8],
             **QUIET)  # fmt: skip


def store_reweighting(book: Book, model: Any, given: Sets) -> None:
    fitted = book.add("fit_reweighting", icl.fit_reweighting, model, given.train, epochs=3,
                      **QUIET)  # fmt: skip
    held_out = book.add("fit_reweighting, validation", icl.fit_reweighting, model, given.shared[:8],
                        lr=0.1, epochs=4, batch_size=3, seed=2, patience=2,
                        validation=given.shared[8:12], **QUIET)  # fmt: skip
    book.add("fit_reweighting, in order", icl.fit_reweighting, model, given.true[:6], epochs=2,
             shuffle=False, **QUIET)  # fmt: skip
    more = icl.build_prompts(TWO, model, shots=3, n=16)
    test = given.shared
    book.add("evaluate_reweighting", icl.evaluate_reweighting, model, fitted, test,
             more_shots=more, **QUIET)  # fmt: skip
    book.add("evaluate_reweighting, held out", icl.evaluate_reweighting, model, held_out, test,
             batch_size=3, **QUIET)  # fmt: skip
    given_beta = edits(model, given.true)["Reweight"]
    book.add("evaluate_reweighting, given", icl.evaluate_reweighting, model, given_beta,
             given.true, **QUIET)  # fmt: skip
    book.add("predict, fitted", icl.predict, model, test, interventions=[fitted], **QUIET)


def store_studies(book: Book, model: Any, given: Sets) -> None:
    found = book.add("analyze", icl.analyze, model, given.shared, maps=2, **QUIET)
    with tempfile.TemporaryDirectory() as folder:
        book.add("load_analysis", lambda: reloaded(found, folder))
    for name, edit in few_edits(model, given.true).items():
        book.add(f"analyze, pairs{name}", icl.analyze, model, given.true, interventions=edit,
                 reduction="abs_then_sum", loss="vocab", **QUIET)  # fmt: skip
    book.add("analyze label_words", icl.analyze, model, given.shared, study="label_words",
             **QUIET)  # fmt: skip
    book.add("analyze overthinking", icl.analyze, model, (given.true, given.false),
             study="overthinking", heads_from=given.false, **QUIET)  # fmt: skip


def store_methods(book: Book, model: Any, given: Sets) -> None:
    """What results compute when asked; the other functions store what they hold and show."""
    shared, true, false = given.shared, given.true, given.false
    flow = icl.flow_scores(model, true, **QUIET)
    book.add("flow_scores, methods", methods, flow, *(
        (name, *args, third)
        for name, args in (("difference", ()), ("share", ("wp",)), ("share", ("pq",)))
        for third in ("first", "last")
    ))  # fmt: skip
    isolated = icl.isolation(model, shared, depths=(1,), **QUIET)
    keys = ("first", 1, "label"), ("last", 1, "random")
    book.add("isolation, methods", methods, isolated, ("difference", *keys))
    lens = icl.logit_lens(model, true, per="head", **QUIET)
    against = (true.answers + 1) % true.n_labels
    book.add("logit_lens, methods", methods, lens, ("contrast", true.answers, against))
    accuracy = icl.layer_accuracy(model, true, false, **QUIET)
    calls = product(("accuracy", "ends", "per_prompt"), ("true", "false"), accuracy.metrics)
    book.add("layer_accuracy, methods", methods, accuracy, *calls)
    scores = icl.head_scores(model, false, **QUIET)
    calls = product(("mean", "ends"), scores.per_prompt)
    book.add("head_scores, methods", methods, scores, ("top", 4), *calls)
    ablated = icl.ablation(model, true, false, start=1, **QUIET)
    calls = product(("reduction", "change_with_true"), ("late layers", "late MLPs"))
    book.add("ablation, methods", methods, ablated, *calls)
    table = icl.compress_demonstrations(model, shared, method=METHODS, draws=2, **QUIET)
    quantities = ("label_loyalty", "word_loyalty", "accuracy")
    calls = (("difference", *METHODS[:2], quantity) for quantity in quantities)
    book.add("compare_compression, methods", methods, table, *calls)
    confusion = icl.diagnose_confusion(model, true, **QUIET)
    book.add("diagnose_confusion, methods", methods, confusion, ("rank_correlation", 1))
    beta = edits(model, shared)["Reweight"]
    reweighted = icl.evaluate_reweighting(model, beta, shared, **QUIET)
    book.add("evaluate_reweighting, methods", methods, reweighted, ("difference",))


def methods(result: Any, *calls: tuple[Any, ...]) -> dict[str, Any]:
    """What these methods of a result give; those it does not have are left out."""
    found: dict[str, Any] = {"result": ""}
    for number, (name, *args) in enumerate(calls):
        if hasattr(result, name):
            found[f"{name} {number}"] = getattr(result, name)(*args)
    return found


def reloaded(analysis: Any, folder: str) -> Any:
    analysis.save(Path(folder) / "run")
    return icl.Analysis.load(Path(folder) / "run")


# --- comparison ---


class Row(NamedTuple):
    """One field on both sides; `relative` and `of_largest` are None if equal bit for bit."""

    case: str
    model: str
    field: str
    relative: float | None = None
    of_largest: float | None = None
    kind: str = ""

    def texts(self) -> tuple[str, ...]:
        if self.relative is None:
            return (self.case, self.model, self.field, "equal", "")
        if self.kind:
            return (self.case, self.model, self.field, self.kind, "")
        numbers = (f"{self.relative:.1e}", f"{self.of_largest:.1e}")
        return (self.case, self.model, self.field, *numbers)


def compare_models(first: Book, second: Book) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    notes: list[str] = []
    before, after = first.by_case(), second.by_case()
    for case in sorted({*before, *after, *first.errors, *second.errors}):
        place = f"{first.model}: {case}"
        if case in before and case in after:
            found, said = compare_case(case, first.model, before[case], after[case])
            rows += found
            notes += [f"{place}: {text}" for text in said]
        elif case in before:
            rows.append(Row(case, first.model, "-", float("inf"), None, "not given"))
            notes.append(f"{place}: {second.errors.get(case, 'nothing was stored')}")
        elif case in after:
            notes.append(f"{place}: new ({first.errors.get(case, 'was not stored')})")
        elif first.errors.get(case) != second.errors.get(case):
            notes.append(f"{place}: {first.errors.get(case)} -> {second.errors.get(case)}")
    return rows, notes


def compare_case(
    case: str, model: str, before: dict[str, Any], after: dict[str, Any]
) -> tuple[list[Row], list[str]]:
    """Rows of the fields on both sides; notes on the others and on texts."""
    old, new = grouped(before), grouped(after)
    rows: list[Row] = []
    notes: list[str] = []
    for name in sorted(old.keys() & new.keys()):
        pairs = [(old[name].get(key), new[name].get(key)) for key in {**old[name], **new[name]}]
        texts = [pair for pair in pairs if not any(isinstance(x, Tensor) for x in pair)]
        notes += changed_texts(name, texts)
        if len(texts) < len(pairs):
            numbers = [pair for pair in pairs if any(isinstance(x, Tensor) for x in pair)]
            rows.append(compare_field(case, model, name, numbers))
    added = sorted(new.keys() - old.keys())
    for name in sorted(old.keys() - new.keys()):
        twins = [other for other in added if same_values(old[name], new[other])]
        notes.append(f"{name} is missing" + (f" (its values are in {twins[0]})" if twins else ""))
    if added:
        notes.append(f"new: {', '.join(added)}")
    return rows, notes


def grouped(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The elements of a tuple belong together."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in values.items():
        groups[re.sub(r"/\d+", "[]", name)][name] = value
    return groups


def compare_field(case: str, model: str, name: str, pairs: list[tuple[Any, Any]]) -> Row:
    if not all(isinstance(value, Tensor) for pair in pairs for value in pair):
        return Row(case, model, name, float("inf"), None, "other values")
    if any(first.shape != second.shape for first, second in pairs):
        return Row(case, model, name, float("inf"), None, "other shape")
    unequal = [difference(*pair) for pair in pairs if not same_bits(*pair)]
    if not unequal:
        return Row(case, model, name)
    return Row(case, model, name, *(max(numbers) for numbers in zip(*unequal, strict=True)))


def same_bits(first: Tensor, second: Tensor) -> bool:
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return torch.equal(*(x.contiguous().reshape(-1).view(torch.uint8) for x in (first, second)))


def same_values(first: dict[str, Any], second: dict[str, Any]) -> bool:
    pairs = list(zip(first.values(), second.values(), strict=False))
    return len(first) == len(second) and all(
        same_bits(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b is None
        for a, b in pairs
    )


def difference(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Largest relative difference of two numbers, and of the largest number of the field."""
    a, b = first.double(), second.double()
    same = (a == b) | (a.isnan() & b.isnan())
    if same.all():
        return 0.0, 0.0
    a, b = a[~same], b[~same]
    gap, size = (a - b).abs(), torch.maximum(a.abs(), b.abs())
    largest = first.double().nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1e-300)
    ends = (gap / size).max(), gap.max() / largest
    relative, of_largest = (float(x.nan_to_num(torch.inf, torch.inf)) for x in ends)
    return relative, of_largest


def changed_texts(name: str, pairs: list[tuple[Any, Any]]) -> list[str]:
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    if not changed:
        return []
    before, after = (str(text)[:160] for text in changed[0])
    return [f"{len(changed)} of {len(pairs)} texts differ in {name}: {before!r} -> {after!r}"]


def shown(rows: list[Row], everything: bool) -> list[tuple[str, ...]]:
    """One line per function where all its fields are equal, otherwise one per other field."""
    if everything:
        return [row.texts() for row in rows]
    cases: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        cases[row.case, row.model].append(row)
    lines = []
    for (case, model), found in cases.items():
        unequal = [row for row in found if row.relative is not None]
        fine = len(found) - len(unequal)
        if fine:
            lines.append((case, model, f"{fine} of {len(found)} fields", "equal", ""))
        lines += [row.texts() for row in unequal]
    return lines


def print_table(lines: list[tuple[str, ...]]) -> None:
    head = ("function", "model", "field", "max relative", "of largest")
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


# --- commands ---


def store(folder: Path, models: Sequence[str], tie: float | None) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"icl_mech of {Path(icl.__file__).parent}")
    if tie is not None:
        set_tie(tie)
    for model in models:
        start = time.perf_counter()
        book = Book(model)
        MODELS[model](book)
        book.save(folder)
        print(f"{model}: {len(book.by_case())} results, {len(book.numbers)} tensors, "
              f"{time.perf_counter() - start:.0f} s")  # fmt: skip
        for case, error in book.errors.items():
            print(f"  {case} raised {error}")


def set_tie(tie: float) -> None:
    """Change the tolerance of ties, for code before and after that differs in it."""
    try:
        calibration = importlib.import_module("icl_mech.metrics.calibration")
    except ImportError:
        calibration = None
    if not hasattr(calibration, "TIE"):
        print("the tolerance of ties is not where it was; it stays as it is")
        return
    calibration.TIE = tie


def compare(folder: Path, other: Path, limit: float, everything: bool) -> bool:
    """Print the table; whether no number differs by more than the limit."""
    stored = [{path.stem for path in place.glob("*.safetensors")} for place in (folder, other)]
    rows: list[Row] = []
    notes = [f"{model} is stored on one side only" for model in sorted(stored[0] ^ stored[1])]
    for model in sorted(stored[0] & stored[1]):
        found, said = compare_models(Book.load(folder, model), Book.load(other, model))
        rows += found
        notes += said
    print_table(shown(rows, everything))
    if notes:
        print("\nNotes")
        print("\n".join(f"  {note}" for note in notes))
    equal = sum(row.relative is None for row in rows)
    wrong = sum(row.relative is not None and not row.relative <= limit for row in rows)
    print(f"\n{len(rows)} fields: {equal} equal bit for bit, {len(rows) - equal - wrong} within "
          f"{limit:g} relative, {wrong} differ; {len(notes)} notes")  # fmt: skip
    return bool(rows) and not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("store", help="write what every public function gives")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    writing.add_argument("--tie", type=float, help="tolerance of ties of calibrated scores")
    reading = commands.add_parser("compare", help="compare two such folders")
    reading.add_argument("folder", type=Path)
    reading.add_argument("other", type=Path)
    reading.add_argument("--limit", type=float, default=LIMIT, help="of relative differences")
    reading.add_argument("--all", action="store_true", help="a line for every field")
    given = parser.parse_args()
    if given.command == "store":
        store(given.folder, given.models, given.tie)
    elif not compare(given.folder, given.other, given.limit, given.all):
        sys.exit(1)


if __name__ == "__main__":
    main()
