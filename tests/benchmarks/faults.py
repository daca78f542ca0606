"""The seeded faults of `python -m tests.benchmarks.mutations`.

Each is a small change of the package that a careless hand might make, and which no type checker
would see. A fault is found by the words of the code, not by file and line, and white space counts
for nothing, so that code may be moved and laid out anew.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One fault.

    Attributes:
        name: What is wrong.
        old: What stands in the package, in one place.
        new: What is put there.
        tests: Where it should be noticed; the rest of the tests follows if it is not.
        families: Of models, as `TEST_FAMILIES`.
    """

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    families: str = "gpt2"


MEASURED = "tests/measurements/"
SALIENCY = (MEASURED + "saliency", MEASURED + "test_label_words_golden.py")
ISOLATION = (MEASURED + "isolation",)
EXTRACTION = ("tests/test_metrics_auc.py", MEASURED + "extraction")
REWEIGHTING = (MEASURED + "reweighting",)
COMPRESSION = (MEASURED + "compression",)
CONFUSION = (MEASURED + "confusion", "tests/metrics")
LENS = (MEASURED + "lens", MEASURED + "accuracy")
HEADS = (MEASURED + "heads", MEASURED + "test_overthinking_golden.py")
CALIBRATED = ("tests/test_metrics_overthinking.py", MEASURED + "accuracy")
METRICS = ("tests/metrics", "tests/test_metrics.py", "tests/test_metrics_family.py")
VERDICTS = ("tests/results/test_judging.py", "tests/studies", "tests/test_metrics_family.py")
ENGINE = ("tests/engine",)
STORAGE = ("tests/results", "tests/faults/test_storage.py")
IDENTITY = ("tests/studies/test_kept.py", "tests/sweeps", "tests/models/test_watching.py")

FAULTS = (
    # Formulas.
    Fault(
        "saliency: absolute value of each head before the sum",
        'product.sum(1).abs() if reduction == "sum_then_abs"',
        'product.abs().sum(1) if reduction == "sum_then_abs"',
        SALIENCY,
    ),
    Fault(
        "flow: a label word's attention to itself counts",
        "strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1) to_labels",
        "strict = saliency.tril(saliency.shape[2] - saliency.shape[1])\n    to_labels",
        SALIENCY,
    ),
    Fault(
        "flow: wrong number of all other edges",
        "pairs = short * (short + 1) // 2",
        "pairs = short * (short - 1) // 2",
        SALIENCY,
    ),
    Fault(
        "flow by role: destination and source exchanged",
        '"bir,bit->btr"',
        '"bir,bit->brt"',
        SALIENCY,
    ),
    Fault(
        "flow: random tokens are drawn anywhere, not near their label word",
        "near = left[np.abs(left - place) <= NEAR]",
        "near = left",
        SALIENCY,
    ),
    Fault(
        "extraction: R without chance taken off",
        "sums = _excess(auc).cumsum(-1)",
        "sums = auc.cumsum(-1)",
        EXTRACTION,
    ),
    Fault(
        "extraction: scores of two classes not brought to sum 1",
        "torch.where(total > 0, kept / total.clamp(min=tiny), 1 / len(classes))",
        "torch.where(total > 0, kept, 1 / len(classes))",
        EXTRACTION,
    ),
    Fault(
        "word loyalty: share of one set in place of Jaccard's",
        "common / (top_tokens.shape[1] + reference.shape[1] - common)",
        "common / top_tokens.shape[1]",
        (*ISOLATION, "tests/test_metrics.py"),
    ),
    Fault(
        "confusion: distances divided by their mean, not the largest",
        "largest = distances.amax((-2, -1), keepdim=True)",
        "largest = distances.mean((-2, -1), keepdim=True)",
        CONFUSION,
    ),
    Fault(
        "compression: overlapping queries stand where they stood",
        "shift=-query if self.overlap else 0",
        "shift=0",
        COMPRESSION,
    ),
    Fault(
        "compression: format tokens are no anchors",
        'if span.role not in ("demo_text", "rationale") for position in range(span.start, min(span.stop, end))',
        'if span.role not in ("demo_text", "rationale", "format")\n'
        "        for position in range(span.start, min(span.stop, end))",
        COMPRESSION,
    ),
    Fault(
        "batch calibration: mean over labels, not over prompts",
        "_divided(part, part.mean(0)) for part in parts",
        "_divided(part, part.mean(1, keepdim=True)) for part in parts",
        (MEASURED + "calibration", "tests/metrics/test_priors.py"),
    ),
    # Signs and denominators.
    Fault(
        "label promoting: sign",
        "heads[each, classes] - heads[each, answers]",
        "heads[each, answers] - heads[each, classes]",
        HEADS,
    ),
    Fault(
        "prefix matching: divided by C, not C - 1",
        "same - (total - same) / (n_labels - 1)",
        "same - (total - same) / n_labels",
        HEADS,
    ),
    Fault(
        "exact patching: sign",
        "torch.stack(differences[1:], dim=1) - differences[0][:, None]",
        "differences[0][:, None] - torch.stack(differences[1:], dim=1)",
        (MEASURED + "causal",),
    ),
    Fault(
        "heads with uniform attention: own value not counted",
        "uniform = earlier / (dest[:, None] + 1)",
        "uniform = earlier / dest[:, None].clamp(min=1)",
        ("tests/interventions", *HEADS),
    ),
    # Positions and layers.
    Fault(
        "isolation: label words do not see themselves",
        "(src[None] < dest[:, None] + cut.itself)",
        "(src[None] <= dest[:, None] + cut.itself)",
        ISOLATION,
    ),
    Fault(
        "isolation: random tokens may be label words",
        "candidates = [i for i in pool if i not in taken]",
        "candidates = list(pool)",
        ISOLATION,
    ),
    Fault(
        "isolation: the last layers begin one too early",
        'range(depth) if side == "first" else range(n_layers - depth, n_layers)',
        'range(depth) if side == "first" else range(n_layers - depth - 1, n_layers)',
        ISOLATION,
    ),
    Fault(
        "lens: demonstrations are read at their label word, not before it",
        "columns = segment.columns(segment.prompts.label_positions - 1)",
        "columns = segment.columns(segment.prompts.label_positions)",
        LENS,
    ),
    Fault(
        "lens: the reference's second norm in every layer",
        'twice = entry == model.info.n_layers and self.variant == "reference"',
        'twice = self.variant == "reference"',
        LENS,
    ),
    Fault(
        "late layers: the first one stays",
        "for layer in range(self.start, segment.model.info.n_layers):",
        "for layer in range(self.start + 1, segment.model.info.n_layers):",
        HEADS,
    ),
    Fault(
        "early exit: the last entry may be chosen",
        "(false_accuracy - false_accuracy[:, -1:]).mean(0)[:-1]",
        "(false_accuracy - false_accuracy[:, -1:]).mean(0)",
        CALIBRATED,
    ),
    Fault(
        "suppression: a span's own rows do not see it",
        "(range(group[-1] + 1, LAST), group)",
        "(range(group[0], LAST), group)",
        (MEASURED + "anchors", "tests/interventions"),
    ),
    # Axes, masks, padding, order of classes.
    Fault(
        "tuned lens: matrix not transposed",
        "return rows + rows @ weight.T + bias",
        "return rows + rows @ weight + bias",
        LENS,
    ),
    Fault(
        "confusion: heads and groups exchanged where heads share keys",
        "means.repeat_interleave(group, dim=2).flatten(2)",
        "means.repeat(1, 1, group, 1).flatten(2)",
        CONFUSION,
        "gemma3",
    ),
    Fault(
        "padding is seen",
        "return self.src != PADDING",
        "return torch.ones_like(self.src, dtype=torch.bool)",
        ENGINE,
    ),
    Fault(
        "false labels: shifted the other way",
        "permuted = (true + shift) % n_classes",
        "permuted = (true - shift) % n_classes",
        ("tests/test_corruption.py", "tests/prompts"),
    ),
    Fault(
        "calibrated accuracy: thresholds at 1 / C",
        "(n_labels - 1) / n_labels, axis=0",
        "1 / n_labels, axis=0",
        CALIBRATED,
    ),
    # Intervals and verdicts.
    Fault(
        "Wilson's interval: too wide",
        "(share * (1 - share) / n + Z**2 / (4 * n**2))",
        "(share * (1 - share) / n + Z**2 / (2 * n**2))",
        METRICS,
    ),
    Fault(
        "paired outcomes get the interval of values",
        'if kind == "change":',
        'if kind == "never":',
        METRICS,
    ),
    Fault(
        "Holm: no correction",
        "if p * left > level + ROUNDING:",
        "if p > level + ROUNDING:",
        VERDICTS,
    ),
    Fault(
        "verdicts: measures that disagree support the claim",
        'return statuses.pop() if len(statuses) == 1 else "mixed"',
        'return statuses.pop() if len(statuses) == 1 else "supported"',
        VERDICTS,
    ),
    Fault(
        "verdicts: few prompts are judged all the same",
        "if prompts is not None and prompts < FEWEST_PROMPTS:",
        "if prompts is not None and prompts < 2:",
        VERDICTS,
    ),
    # Seeds, shared work, hooks, identity, files, refusals.
    Fault(
        "random tokens: the seed counts for nothing",
        "np.random.default_rng([*seed, fingerprint])",
        "np.random.default_rng([*seed[1:], fingerprint])",
        ISOLATION,
    ),
    Fault(
        "shared beginning: values of the plain run under interventions",
        "plain.values[:start] + cache.values[start:]",
        "plain.values",
        ENGINE,
    ),
    Fault(
        "what was changed in a model stays changed",
        "yield finally: self._take_back([key])",
        "yield\n        finally:\n            pass",
        ("tests/engine", "tests/models"),
    ),
    Fault(
        "results are known again whatever the interventions were",
        '"false_prompts", "interventions", "versions",',
        '"false_prompts", "versions",',
        IDENTITY,
    ),
    Fault(
        "saved files: checksums are not compared",
        "if checksum in (None, digest(content)):",
        "if content:",
        STORAGE,
    ),
    Fault(
        "prompts longer than the context are not refused",
        "if longest > model.info.n_ctx:",
        "if longest > 10 * model.info.n_ctx:",
        ("tests/engine", "tests/prompts", "tests/bad_inputs"),
    ),
)  # fmt: skip
