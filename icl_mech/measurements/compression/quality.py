"""`StandInQuality`: what the results of compression share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import conformed, shown
from icl_mech.errors import ModelError, PromptError, ResultError
from icl_mech.measurements.compression.kept import Method, Positions
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch, Span
from icl_mech.prompts.assemble import RolePiece, lay_out, template_pieces, tidy_pieces
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.results import Quantity, Result
from icl_mech.results.wording import percent
from icl_mech.tasks import Example, Template

TITLE = "Demonstrations replaced by a stand-in"
UNIT = "share of prompts; overlap"


@dataclass(frozen=True, eq=False, kw_only=True)
class StandInQuality(Result):
    """Full in-context learning beside stand-ins for the demonstrations, and what those cost.

    Attributes:
        full_correct: The class predicted from the full prompt is the true one; None without
            answers.
        full_predicted: Class predicted from the full prompt.
        demonstration_share: Kept tokens / tokens of the demonstrations, the same for all methods.
        prompt_share: Tokens left, query included / tokens of the prompt.
        speed_up: Time of full prompts without a cache / of queries behind the compressed
            cache, whose building is not counted; None if not measured.
        speed_up_cached: Time of queries behind the full cache of the demonstrations / behind
            the compressed one.
    """

    full_correct: Bool[Tensor, " batch"] | None = None
    full_predicted: Int[Tensor, " batch"]
    demonstration_share: Float[Tensor, " batch"]
    prompt_share: Float[Tensor, " batch"]
    speed_up: float | None = None
    speed_up_cached: float | None = None

    @property
    def constant_loyalty(self) -> float:
        """Label loyalty of always answering what most full prompts are answered with.

        Where it is high, label loyalty tells little: the model hardly looks at the queries.
        """
        counts = torch.bincount(self.full_predicted)
        return int(counts.max()) / len(self.full_predicted)

    def quantities(self) -> dict[str, Quantity]:
        """Accuracy of full in-context learning, where it is known."""
        if self.full_correct is None:
            return {}
        return {"full_accuracy": Quantity((), self.full_correct, unit="share of prompts")}

    @property
    def full_accuracy(self) -> Interval:
        """Accuracy of full in-context learning, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        check_known(self.full_correct)
        return self.interval("full_accuracy")

    @property
    def kept_share(self) -> str:
        """How much of the demonstrations is left, in words."""
        return (
            f"{percent(float(self.demonstration_share.mean()))} of the demonstrations' tokens kept"
        )


def check_known(correct: Tensor | None) -> None:
    """Refuse accuracy of prompts whose true classes are not known.

    Raises:
        ResultError: without answers.
    """
    if correct is None:
        raise ResultError("These prompts have no answers; accuracy needs them.")


def qualities(
    dims: tuple[str, ...], kept: Tensor, overlap: Tensor, correct: Tensor | None
) -> dict[str, Quantity]:
    """Label loyalty, word loyalty and, where it is known, accuracy; prompt axis first."""
    found = {
        "label_loyalty": Quantity(dims, kept, unit="share of prompts"),
        "word_loyalty": Quantity(
            dims, overlap, unit="overlap of the likeliest next tokens", kind="outcome"
        ),
    }
    if correct is not None:
        found["accuracy"] = Quantity(dims, correct, unit="share of prompts")
    return found


@dataclass(frozen=True, eq=False)
class Compressed:
    """What came out of one method.

    Attributes:
        method: Its name.
        kept: Positions kept of each prompt.
        label_logits: At the target, behind the stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        draws: Label loyalty of every draw, where there were several.
        draw: The draw that was taken.
    """

    method: Method
    kept: tuple[Positions, ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"]
    word_overlap: Float[Tensor, " batch"]
    draws: tuple[float, ...] = ()
    draw: int = 0

    @property
    def choice(self) -> dict[str, Any]:
        """What provenance records of the draws."""
        return {"draw": self.draw, "label_loyalty_of_draws": list(self.draws)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out of several methods on the same prompts.

    Attributes:
        full_predicted: Class predicted from each full prompt.
        methods: By method, in the order asked for.
        shares: Kept tokens / tokens of the demonstrations, and (kept + query) / whole prompt;
            equal for all methods, which keep equally many tokens.
        cut: The cache was cut; False where columns could only be hidden.
    """

    full_predicted: Int[Tensor, " batch"]
    methods: tuple[Compressed, ...]
    shares: Float[Tensor, "share=2 batch"]
    cut: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What provenance records of it."""
        draws = {one.method: one.choice for one in self.methods if one.draws}
        return {"cache": "cut" if self.cut else "hidden", **({"draws": draws} if draws else {})}

    def common(self, prompts: PromptBatch) -> dict[str, Any]:
        """Fields of `StandInQuality`."""
        right = self.full_predicted == prompts.answers if prompts.has_answers else None
        return {
            "full_correct": right,
            "full_predicted": self.full_predicted,
            "demonstration_share": self.shares[0].clone(),
            "prompt_share": self.shares[1].clone(),
            "provenance": self.facts,
        }


def best(candidates: list[Compressed]) -> Compressed:
    """The candidate with the highest label loyalty, the first of them on ties."""
    if len(candidates) == 1:
        return candidates[0]
    loyalties = [float(found.label_kept.double().mean()) for found in candidates]
    draw = loyalties.index(max(loyalties))
    return replace(candidates[draw], draws=tuple(loyalties), draw=draw)


def behind_demonstrations(
    tokens: tuple[int, ...],
    spans: tuple[Span, ...],
    texts: Sequence[str | tuple[str, str]],
    task: dict[str, Any],
    tokenizer: Any,
) -> Iterator[tuple[tuple[int, ...], tuple[Span, ...]]]:
    """Tokens and spans of whole prompts, one per text, as `build_prompts` would lay them.

    Args:
        tokens: Everything before the query.
        spans: Roles of these tokens.
        texts: Query texts, or pairs of texts.
        task: Its template, as prompts record it.
        tokenizer: Hugging Face tokenizer.

    Raises:
        TaskError: an empty text, or one text where the template shows two.
        PromptError: what is no list of texts.
        ModelError: what is no tokenizer.
    """
    texts = conformed("texts", texts, Sequence[str | tuple[str, str]], PromptError)
    if not callable(tokenizer):
        raise ModelError(f"Expected a model or its tokenizer, got {shown(tokenizer)}.")
    template = Template(task["template"], task["separator"])
    pieces = PieceTokenizer(tokenizer)
    for text in texts:
        first, second = (text, None) if isinstance(text, str) else text
        query = template_pieces(template, [], Example(first, 0, second))
        # The separator may end in a blank that belongs to the query's first piece.
        tidy = tidy_pieces([RolePiece("format", 0, template.separator), *query])
        own = [piece for piece in tidy if piece.demo is None]
        yield lay_out(pieces, own, tokens, spans)
