"""A case: everything that is drawn from one seed, and the line that tells it."""

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

import icl_mech as icl
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.tasks import Example, Task, Template
from tests.fuzz.models import Architecture
from tests.tiny import tiny_tokenizer

Values = dict[str, Any]

TEMPLATES = (
    Template("Review: {text}\nSentiment: {label}"),
    Template("{text}: {label}.", separator="\n\n", narrative="Sort them."),
    Template("Q {text} A: {label}", separator=" ; "),
)
# One token, then several, in both tokenizers; no two share their first.
LABELS = (
    ("Positive", "Negative"),
    ("World", "Sports", "Business", "Technology"),
    ("movie", "quickly", "Article"),
    ("animal", "Personal", "x9"),
)
WORDS = [
    "the",
    "movie",
    "was",
    "good",
    "bad",
    "and",
    "of",
    "is",
    "a",
    "story",
    "river",
    "quick",
    "7",
    "Sports",
    "zebra",
    "plot,",
    "hope;",
    "vegetable",
]

DOORS = ("function", "function", "measure", "variants", "prepared", "kept", "compress", "threads")
QUANTITIES = ("predict", "flow", "maps", "lens", "extraction", "isolation")
CHANGES = (
    "weights",
    "weights",
    "settings",
    "hook on",
    "hook off",
    "changes",
    "prompts",
    "options",
    "nothing",
)
CHOICES = (
    "all", "slice", "numbers", "array", "tensor",
    "mask list", "mask array", "mask tensor", "mask numpy",
)  # fmt: skip
PLACES = (
    "block",
    "attention",
    "mlp",
    "norm",
    "attention out",
    "mlp out",
    "embedding",
    "final norm",
    "head",
)


@dataclass
class Case:
    """What a seed stands for.

    Attributes:
        seed: The seed.
        model: Family, sizes, number format.
        prompts: How they are made.
        choice: How some of them are chosen, and which.
        changes: Interventions, as plain values.
        door: By which function numbers are asked for.
        quantities: Which numbers.
        options: Batch size, memory, path and variants.
        hook: A hook of the user's: where, of which kind, doing what.
        between: What changes after a first call.
        how: How weights are changed.
    """

    seed: int
    model: Architecture
    prompts: Values
    choice: Values
    changes: list[Values]
    door: str
    quantities: list[str]
    options: Values
    hook: Values | None = None
    between: str = "nothing"
    how: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int) -> "Case":
        """That of a seed."""
        draw = random.Random(seed)
        model = Architecture.drawn(draw)
        door = draw.choice(DOORS)
        n = draw.randint(2, 6)
        hook = _hook(draw, model) if draw.random() < 0.3 else None
        between = draw.choice(CHANGES) if door == "kept" or draw.random() < 0.35 else "nothing"
        quantities = draw.sample(QUANTITIES, draw.randint(1, 3))
        if door in ("prepared", "compress"):
            quantities = ["predict"]
        case = cls(
            seed=seed,
            model=model,
            prompts=_prompts(draw, n, shared=door == "compress"),
            choice={"how": draw.choice(CHOICES), "mask": [draw.random() < 0.6 for _ in range(n)]},
            changes=_changes(draw, model, door),
            door=door,
            quantities=quantities,
            options=_options(draw),
            hook=hook,
            between=between,
            how=draw.choice(("data", "counted", "numpy", "load_state")),
        )
        case.choice["mask"][draw.randrange(n)] = True
        return case.settled()

    def settled(self) -> "Case":
        """Without what would leave two readings of the same words."""
        if self.between.startswith("hook") and self.hook is None:
            self.hook = {"at": "mlp", "layer": 0, "kind": "places", "factor": 0.5, "pre": False,
                         "late": True}  # fmt: skip
        if self.hook is not None:
            if self.door == "compress":
                self.hook, self.between = None, "nothing"
            elif self.door == "prepared":
                # It is told that positions are others there.
                self.hook["kind"] = "all"
        if self.hook is not None:
            # Which of two changes of one activation comes first is not said anywhere.
            kinds = {change["kind"] for change in self.changes}
            unclear = kinds & {"zero_layers", "zero_heads"} or "lens" in self.quantities
            if unclear and self.hook["at"] not in ("norm", "embedding"):
                self.hook["at"] = "norm"
        if self.model.dtype == "bfloat16":
            # Gradients through three blocks in eight bits of precision agree in nothing.
            self.quantities = [q for q in self.quantities if q not in ("flow", "maps")] or [
                "predict"
            ]
        if self.prompts["kind"] == "built" and not self.prompts["shots"]:
            self.quantities = [q for q in self.quantities if q in ("predict", "lens")] or [
                "predict"
            ]
            self.changes = [c for c in self.changes if c["kind"] not in ("isolate", "reweight")]
        if self.door == "compress" and self.between not in ("nothing", "weights"):
            self.between = "nothing"
        return self

    def __str__(self) -> str:
        """One line that says everything."""
        model = " ".join(f"{k}={v}" for k, v in asdict(self.model).items())
        rest = " | ".join(
            f"{item.name}={getattr(self, item.name)}"
            for item in fields(self)
            if item.name not in ("seed", "model", "notes")
        )
        return f"seed {self.seed}: {model} | {rest}"

    # What the package is given

    def batch(self) -> PromptBatch:
        """All prompts, before some are chosen."""
        own, tokenizer = self.prompts, tiny_tokenizer(self.model.tokenizer)
        if own["kind"] == "built":
            return icl.build_prompts(
                _task(own), tokenizer, shots=own["shots"], n=own["n"], seed=own["seed"],
                labels=own["labels"], demonstrations=own["demonstrations"],
                balanced=False,
            )  # fmt: skip
        return _bare(own, len(tokenizer))

    def chosen(self, prompts: PromptBatch) -> tuple[PromptBatch, list[int]]:
        """Some of the prompts, as a user takes them, and their numbers by plain Python."""
        mask = (self.choice["mask"] * len(prompts))[: len(prompts)]
        numbers = [number for number, taken in enumerate(mask) if taken]
        match self.choice["how"]:
            case "all":
                return prompts, list(range(len(prompts)))
            case "slice":
                return prompts[1:], list(range(len(prompts)))[1:]
            case "numbers":
                index: Any = numbers[::-1]
            case "array":
                index = torch.tensor(numbers[::-1]).numpy()
            case "tensor":
                index = torch.tensor(numbers[::-1])
            case "mask list":
                index = mask
            case "mask array":
                index = torch.tensor(mask).numpy()
            case "mask numpy":
                index = list(torch.tensor(mask).numpy())
            case _:
                index = torch.tensor(mask)
        taken = numbers if "mask" in self.choice["how"] else numbers[::-1]
        return prompts[index], taken


def beta(values: Values, model: Architecture, labels: int) -> torch.Tensor:
    """Factors of a `reweight`."""
    generator = torch.Generator().manual_seed(values["seed"])
    return torch.randn(model.layers, model.heads, labels, generator=generator)


def given_positions(own: Values, prompts: PromptBatch) -> list[list[int]] | None:
    """Positions an `isolate` names prompt by prompt, if it does."""
    if not own["given"]:
        return None
    draw = random.Random(own["seed"])
    return [sorted(draw.sample(range(1, len(p)), min(2, len(p) - 1))) for p in prompts]


def interventions(changes: list[Values], model: Architecture, prompts: PromptBatch) -> list[Any]:
    """As the package makes them."""
    made: list[Any] = []
    for own in changes:
        other = ("kind", "how", "seed", "given")
        rest = {name: value for name, value in own.items() if name not in other}
        match own["kind"]:
            case "isolate":
                places = given_positions(own, prompts)
                made.append(icl.Isolate(**rest, seed=own["seed"], positions=places))
            case "zero_heads":
                made.append(icl.ZeroHeads(kind=own["how"], **rest))
            case "zero_layers":
                made.append(icl.ZeroLayers(kind=own["how"], **rest))
            case _:
                made.append(icl.Reweight(beta(own, model, prompts.n_labels)))
    return made


def _changes(draw: random.Random, model: Architecture, door: str) -> list[Values]:
    kinds = ["isolate", "zero_heads", "zero_layers", "reweight"]
    if door == "prepared":
        kinds = kinds[1:]
    if door == "compress":
        return []
    count = draw.choice((0, 1, 1, 1, 2))
    return [_change(draw, kind, model, door) for kind in draw.sample(kinds, count)]


def _change(draw: random.Random, kind: str, model: Architecture, door: str) -> Values:
    at = "target" if door == "prepared" else draw.choice(("target", "all"))
    layers = draw.sample(range(model.layers), draw.randint(1, model.layers))
    match kind:
        case "isolate":
            return {
                "kind": kind, "layers": layers, "tokens": draw.choice(("label", "label", "random")),
                "mode": draw.choice(("mask", "zero")),
                "redraw": draw.choice(("set", "prompt", "layer")), "seed": draw.randrange(100),
                "given": draw.random() < 0.2,
            }  # fmt: skip
        case "zero_heads":
            heads = [(layer, draw.randrange(model.heads)) for layer in layers]
            how = draw.choice(("zero_output", "uniform_attention", "mean"))
            return {"kind": kind, "heads": heads, "how": how, "at": at}
        case "zero_layers":
            part = draw.choice(("block", "attention", "mlp"))
            how = "zero_output" if part == "block" else draw.choice(("zero_output", "reference"))
            start = draw.randrange(model.layers)
            return {"kind": kind, "start": start, "part": part, "how": how, "at": at}
        case _:
            return {"kind": kind, "seed": draw.randrange(100)}


def _hook(draw: random.Random, model: Architecture) -> Values:
    return {
        "at": draw.choice(PLACES),
        "layer": draw.randrange(model.layers),
        "kind": draw.choice(("all", "places", "last", "first")),
        "factor": draw.choice((0.5, 2.0, -1.0)),
        "pre": draw.random() < 0.3,
        "late": draw.random() < 0.5,
    }


def _options(draw: random.Random) -> Values:
    return {
        "batch_size": draw.choice((None, None, 1, 2, 3)),
        "memory": draw.choice((None, None, "1GB", "4MB", "1MB")),
        "path": draw.choice(("auto", "auto", "whole")),
        "loss": draw.choice((None, "label", "prediction", "vocab")),
        "reduction": draw.choice(("sum_then_abs", "sum_then_abs", "abs_then_sum")),
        "score": draw.choice(("first", "sum", "mean")),
        "at": "target",
        "depths": None,
        "redraw": draw.choice(("set", "prompt")),
        "mode": draw.choice(("mask", "zero")),
    }


def _prompts(draw: random.Random, n: int, *, shared: bool) -> Values:
    seed = draw.randrange(1000)
    if shared or draw.random() < 0.5:
        return {
            "kind": "built", "n": n, "seed": seed, "labels_of": draw.randrange(len(LABELS)),
            "template": draw.randrange(len(TEMPLATES)),
            "shots": draw.choice((1, 1, 1, 2)) if shared else draw.choice((0, 1, 1, 2)),
            "labels": draw.choice(("correct", "permuted", "random")),
            "demonstrations": "shared" if shared else draw.choice(("shared", "per_prompt")),
        }  # fmt: skip
    return {
        "kind": "bare", "n": n, "seed": seed, "classes": draw.randint(2, 4),
        "common": draw.choice((0, 0, 1, 4, 15)), "behind": draw.choice((0, 0, 3)),
        "same": draw.random() < 0.3,
    }  # fmt: skip


def _task(own: Values) -> Task:
    draw = random.Random(own["seed"])
    labels = LABELS[own["labels_of"]]

    def examples() -> tuple[Example, ...]:
        return tuple(
            Example(" ".join(draw.choices(WORDS, k=draw.randint(1, 7))) + f" {n}", label)
            for label in range(len(labels))
            for n in range(4)
        )

    return Task("fuzz", TEMPLATES[own["template"]], labels, examples(), examples())


def _bare(own: Values, vocabulary: int) -> PromptBatch:
    """Random tokens with label words of one to three tokens, demonstrations unevenly many."""
    draw = random.Random(own["seed"])
    labels = draw.sample(range(vocabulary - 20, vocabulary), own["classes"])
    text = lambda count: [draw.randrange(4, vocabulary - 20) for _ in range(count)]  # noqa: E731
    common, length = text(own["common"]), draw.randint(2, 12)
    prompts = []
    for _ in range(own["n"]):
        tokens, positions, classes, lengths = list(common), [], [], []
        for _ in range(draw.randint(1, 4)):
            tokens += text(draw.randint(1, 6))
            positions.append(len(tokens))
            classes.append(draw.randrange(own["classes"]))
            lengths.append(draw.randint(1, 3))
            tokens += [labels[classes[-1]], *text(lengths[-1] - 1)]
        tokens += text(length if own["same"] else draw.randint(1, 12))
        target = len(tokens) - 1
        tokens += text(own["behind"])
        prompts.append(
            Prompt.from_positions(
                tokens,
                label_positions=positions,
                label_classes=classes,
                label_tokens=labels,
                label_lengths=lengths,
                answer=draw.randrange(own["classes"]),
                target=target,
            )
        )
    return PromptBatch(tuple(prompts))
