"""Code shared by the isolation measurements: formulas, variants, checks and runs.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate
from icl_mech.interventions.cut import Mode
from icl_mech.interventions.isolate import Tokens
from icl_mech.interventions.token_sets import Redraw, random_positions
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.predictions import check_top_k
from icl_mech.measurements.reading import (
    PredictionReading,
    Read,
    answer_names,
    predicted,
    same_answer,
)
from icl_mech.metrics import Interval, word_overlap
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.results import Result
from icl_mech.results.figures import Definition

SOURCE = "Wang et al. 2023, Label Words are Anchors, §2.2"


LABEL_LOYALTY = Definition(
    "label loyalty",
    r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = \hat{y}_n^{\text{isolated}}\right]",
    "Fraction of the N prompts whose predicted class ŷ, the label word with the largest logit, is "
    "the same with and without isolation.",
    SOURCE,
)


WORD_LOYALTY = Definition(
    "word loyalty",
    r"\frac{1}{N} \sum_{n=1}^{N} "
    r"\frac{|V_n \cap V_n^{\text{isolated}}|}{|V_n \cup V_n^{\text{isolated}}|}",
    "Mean Jaccard overlap of the sets V of the k most probable next tokens with and without "
    "isolation.",
    SOURCE,
)


ISOLATION = Definition(
    "isolation",
    r"s_{l,h}[p, j] = -\infty \quad \text{for } j < p,\ l \in \Lambda",
    "In the layers Λ, the attention scores s from the isolated tokens p (the first token of each "
    "label word, or as many random tokens of the demonstrations) to all earlier tokens are set to "
    "minus infinity before the softmax. The variant “zero” sets the pattern to 0 after it.",
    SOURCE,
)


DEFINITIONS = (ISOLATION, LABEL_LOYALTY, WORD_LOYALTY)


R = TypeVar("R", bound=Result)


Loyalty = Literal["label_loyalty", "word_loyalty"]


LOYALTIES: tuple[Loyalty, ...] = get_args(Loyalty)


Key = tuple[str, int, str]
"""Side, depth and tokens of a window in the first or last layers."""

Window = tuple[Sequence[int], Tokens]
"""Isolated layers, and the tokens isolated in them."""


USUAL = (1, 3, 5, 7)
"""Numbers of isolated layers in the paper."""


NextWords = tuple[tuple[str, ...], ...]
"""The top next words of some prompts, best first."""

EXAMPLES = 3
"""Number of prompts, the first ones, whose top next words are kept as text."""

NEARLY_ALWAYS = 0.8
"""Fraction of a single class from which answers under a window count as nearly constant."""

UNITS = {
    "label_loyalty": "fraction of unchanged predicted classes",
    "word_loyalty": "overlap of the top {k} next tokens",
    "log_prob": "change of the log-probability (nats)",
}


@dataclass(frozen=True)
class Agreement:
    """Agreement of isolated runs with the plain one, averaged over draws.

    Attributes:
        predicted: Class predicted without isolation.
        label_kept: Whether the predicted class is unchanged.
        word_overlap: Jaccard overlap of the top next tokens.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        draw_overlap: Word loyalty of each draw, likewise.
        isolated: Class predicted under isolation, for each draw.
        words: Top next words of the first prompts, without isolation and then with the isolation of
            each window (its first draw).
        log_prob: Log-probability of the answer under isolation minus that without, averaged over
            draws; None where answers are classes.
        labels: Names of the possible answers.
    """

    predicted: Int[Tensor, " batch"]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]
    draw_overlap: Float[Tensor, "window draw"]
    isolated: Int[Tensor, "window draw batch"]
    words: tuple[NextWords, ...] = ()
    log_prob: Float[Tensor, "window batch"] | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class OfIsolation(Measurement[R]):
    """Options shared by all measurements with isolated tokens.

    Attributes:
        mode: `mask` sets scores to -inf before softmax (the reference code), `zero` sets the
            pattern to 0 after it (the paper's text).
        redraw: Random tokens: one draw per demonstration `set`, per `prompt` or per `layer`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Seed of the first draw.
    """

    mode: Mode = "mask"
    redraw: Redraw = "set"
    draws: Count = 5
    top_k: int = 5
    seed: Natural = 0

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    @abstractmethod
    def windows(self, n_layers: int) -> list[Window]:
        """Windows of layers and the tokens isolated in them, in the order of the result."""

    def cuts(self, window: Window) -> list[tuple[Isolate]]:
        """One set of interventions per draw; label words need only one."""
        layers, tokens = window
        seeds = range(self.seed, self.seed + (self.draws if tokens == "random" else 1))
        return [
            (Isolate(layers, tokens, mode=self.mode, redraw=self.redraw, seed=seed),)
            for seed in seeds
        ]

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts and options for which isolation or the comparison is undefined.

        Raises:
            RunError: `top_k` outside the vocabulary.
            PromptError: prompts without demonstrations, or with too few other tokens.
        """
        check_top_k(self.top_k, model)
        check_demonstrations(data, "isolation")
        if any(tokens == "random" for _, tokens in self.windows(model.info.n_layers)):
            for prompt in data:
                random_positions(prompt, self.redraw, self.seed, 0)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """The plain run and all isolated ones, on one path, since ranks of close numbers are compared."""
        cuts = [cut for window in self.windows(model.info.n_layers) for cut in self.cuts(window)]
        reading = PredictionReading(self.top_k)
        return [Variants(data, [reading], variants=[(), *cuts], title="isolation")]

    def agreement(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Agreement:
        """Per-prompt agreement of every window, from the values the passes read."""
        (plain,), *isolated = read[0]
        answered, words = predicted(plain[0], plain[2], data), plain[2]
        of_answer = None
        if data.answer_kind != "classes" and all(prompt.answer is not None for prompt in data):
            of_answer = data.answers[:, None]
        reads: Iterator[Read] = (values for (values,) in isolated)
        kept, overlaps, classes, changes = [], [], [], []
        said = [next_words(model, words)]
        for window in self.windows(model.info.n_layers):
            drawn = [next(reads) for _ in self.cuts(window)]
            classes.append(torch.stack([predicted(r[0], r[2], data) for r in drawn]))
            kept.append(torch.stack([same_answer(r, plain, data).double() for r in drawn]))
            if of_answer is not None:
                moved = torch.stack([r[1] - plain[1] for r in drawn]).double().mean(0)
                changes.append(moved.gather(1, of_answer)[:, 0])
            overlaps.append(torch.stack([word_overlap(r[2], words) for r in drawn]))
            said.append(next_words(model, drawn[0][2]))
        most = max(len(values) for values in kept)

        def by_draw(values: list[Tensor]) -> Tensor:
            # Label words have one draw, which is repeated in every column.
            return torch.stack([tensor.expand(most, *tensor.shape[1:]) for tensor in values])

        return Agreement(
            predicted=answered,
            label_kept=torch.stack([values.mean(0) for values in kept]),
            word_overlap=torch.stack([values.mean(0) for values in overlaps]),
            draw_loyalty=by_draw([values.mean(1) for values in kept]),
            draw_overlap=by_draw([values.mean(1) for values in overlaps]),
            isolated=by_draw(classes),
            words=tuple(said) if all(said) else (),
            log_prob=torch.stack(changes) if changes else None,
            labels=answer_names(data),
        )


def chosen_depths(given: Sequence[int] | None, info: ModelInfo) -> tuple[int, ...]:
    """Numbers of layers, ascending, each once; by default the paper's numbers up to L/2."""
    usual = tuple(k for k in USUAL if k <= info.n_layers / 2) or (1,)
    return usual if given is None else tuple(sorted(set(given)))


def check_depths(depths: Sequence[int], info: ModelInfo, what: str) -> None:
    """Reject numbers of layers the model does not have, and an empty list.

    Raises:
        RunError: none, or one outside 1...L.
    """
    if not depths or not all(1 <= depth <= info.n_layers for depth in depths):
        raise RunError(
            f"{what}={tuple(depths)}, but {info.name!r} has {info.n_layers} layers; give numbers "
            f"between 1 and {info.n_layers}."
        )


def with_draws(found: Interval, drawn: Float[Tensor, " draw"]) -> Interval:
    """Widen an interval over prompts by the uncertainty of the mean over draws.

    `drawn` are the values of single draws; t times their standard error and the distance of each
    end are added in quadrature.
    """
    from scipy.stats import t

    count = len(drawn)
    spread = float(drawn.double().std()) if count > 1 else 0.0
    if spread == 0:
        return found
    half = float(t.ppf(0.975, count - 1)) * spread / math.sqrt(count)
    value, low, high = found
    return Interval(
        value, value - math.hypot(value - low, half), value + math.hypot(high - value, half)
    )


def next_words(model: LanguageModel, top: Int[Tensor, "batch k"]) -> NextWords:
    """The texts of the top next tokens of the first prompts; none without a tokenizer."""
    if not callable(model.tokenizer):
        return ()
    pieces = TextTokenizer(model.tokenizer)
    return tuple(pieces.words(tuple(row)) for row in top[:EXAMPLES].tolist())


def class_name(labels: Sequence[str], place: int) -> str:
    """Name of a class, with a fallback where a file does not hold it."""
    if place < len(labels):
        return labels[place]
    return "another token" if labels[:1] == ("next token",) else f"class {place}"


class Answered(NamedTuple):
    """An answer and the number of prompts that get it.

    Attributes:
        name: The class.
        prompts: Number of prompts that get it.
        before: Number of prompts that got it without isolation.
    """

    name: str
    prompts: int
    before: int

    @classmethod
    def commonest(
        cls, answers: Int[Tensor, " batch"], before: Int[Tensor, " batch"], labels: Sequence[str]
    ) -> "Answered":
        """The most frequent answer."""
        place = int(answers.mode().values)
        counts = (int((classes == place).sum()) for classes in (answers, before))
        return cls(class_name(labels, place), *counts)


def constant_answer(
    answers: Int[Tensor, " batch"], before: Int[Tensor, " batch"], labels: Sequence[str]
) -> Answered | None:
    """The answer that nearly all prompts get under isolation, unless there is none or all had it before."""
    commonest, n = Answered.commonest(answers, before, labels), len(answers)
    nearly_all = n > 1 and commonest.prompts >= NEARLY_ALWAYS * n
    return commonest if nearly_all and commonest.before < n else None
