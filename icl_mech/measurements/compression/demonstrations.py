"""Demonstration compression: which short stand-in answers like the whole demonstrations?

Each method keeps a few of the demonstrations' tokens; BOS, narrative and whatever precedes
the first demonstration stay, and then only the query is read:

* `hidden_anchor`: keys and values of format tokens and label words, computed with the full
  text present, in every layer;
* `text_anchor`: the same tokens as a prompt, without the text;
* `hidden_random`: as `hidden_anchor`, but each label's first token is replaced by a random
  text token of the same demonstration;
* `hidden_random_top`: of several such draws, all different, the one with the highest label
  loyalty (the first on ties) on these very prompts.

Label loyalty is the share of prompts whose predicted class is that of full in-context
learning, word loyalty the mean Jaccard overlap of the likeliest next tokens.

In layers with a sliding window (Gemma) the window counts the cached columns: behind a
compressed cache those layers see kept tokens that were outside their window in the full
prompt, as they would with a shorter context.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements._old import provenance
from icl_mech.measurements.compression.kept import Method
from icl_mech.measurements.compression.methods import Comparison, check_options, compress_by
from icl_mech.measurements.compression.stand_in import Position
from icl_mech.metrics import Interval, mean_interval, wilson_interval
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressionResult(Result):
    """How well a stand-in replaces the demonstrations.

    Attributes:
        method: How the stand-in was made.
        kept: Positions kept of each prompt.
        label_logits: Logits of the label words' first tokens behind the stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        correct: The predicted class is the true one; None without answers.
        full_correct: That of the full prompt is.
        full_predicted: Class predicted from the full prompt.
        demonstration_share: Kept tokens / tokens of the demonstrations.
        prompt_share: Tokens left, query included / tokens of the prompt.
        speed_up: Time of full prompts without a cache / of queries behind the compressed
            cache, whose building is not counted; None if not measured.
        speed_up_cached: Time of queries behind the full cache of the demonstrations / behind
            the compressed one.
        labels: Names of the classes.
    """

    method: str
    kept: tuple[tuple[int, ...], ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"]
    word_overlap: Float[Tensor, " batch"]
    correct: Bool[Tensor, " batch"] | None = None
    full_correct: Bool[Tensor, " batch"] | None = None
    full_predicted: Int[Tensor, " batch"]
    demonstration_share: Float[Tensor, " batch"]
    prompt_share: Float[Tensor, " batch"]
    speed_up: float | None = None
    speed_up_cached: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def predicted(self) -> Int[Tensor, " batch"]:
        """Class with the largest label logit."""
        return self.label_logits.argmax(-1)

    @property
    def label_loyalty(self) -> Interval:
        """Share of prompts whose predicted class is kept, with Wilson interval."""
        return wilson_interval(self.label_kept)

    @property
    def constant_loyalty(self) -> float:
        """Label loyalty of always answering what most full prompts are answered with.

        Where it is high, label loyalty tells little: the model hardly looks at the queries.
        """
        counts = torch.bincount(self.full_predicted)
        return int(counts.max()) / len(self.full_predicted)

    @property
    def word_loyalty(self) -> Interval:
        """Mean overlap of the likeliest next tokens, with bootstrap interval."""
        return mean_interval(self.word_overlap)

    @property
    def accuracy(self) -> Interval:
        """Share of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        return wilson_interval(_known(self.correct))

    @property
    def full_accuracy(self) -> Interval:
        """That of full in-context learning.

        Raises:
            ResultError: if the true classes are not known.
        """
        return wilson_interval(_known(self.full_correct))

    def drawing(self) -> Bars:
        """Label loyalty, word loyalty and accuracy, beside the accuracy of the full prompts."""
        found = {"label loyalty": self.label_loyalty, "word loyalty": self.word_loyalty}
        if self.correct is not None:
            found |= {"accuracy": self.accuracy, "accuracy, full prompt": self.full_accuracy}
        value, low, high = torch.tensor([list(interval) for interval in found.values()]).T
        conditional = self.provenance.get("conditional_on_demonstrations")
        return Bars(
            "Demonstrations replaced by a stand-in",
            tuple(found),
            (self.method,),
            value[:, None],
            low[:, None],
            high[:, None],
            "share of prompts; overlap",
            note=f"{len(self.label_kept)} prompts, 95 % intervals"
            + (" given their shared demonstrations" if conditional else "")
            + f"; {self._costs()}",
        )

    def summary(self) -> str:
        """Loyalties, accuracy and what the stand-in costs."""
        parts = [
            f"label loyalty {self.label_loyalty} (constant answer {self.constant_loyalty:.3g})",
            f"word loyalty {self.word_loyalty}",
        ]
        if self.correct is not None:
            parts.append(f"accuracy {self.accuracy} (full prompt {self.full_accuracy})")
        return f"{self.method}: {', '.join(parts)}; {self._costs()}"

    def _costs(self) -> str:
        share = f"{float(self.demonstration_share.mean()):.0%} of the demonstrations' tokens kept"
        if self.speed_up is None or self.speed_up_cached is None:
            return share
        return (
            f"{share}, {self.speed_up:.2g} times as fast as full prompts, "
            f"{self.speed_up_cached:.2g} times as queries behind the full cache"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per prompt."""
        import pandas as pd

        table: dict[str, list[Any]] = {
            "predicted": [self.labels[c] for c in self.predicted.tolist()],
            "label_kept": self.label_kept.tolist(),
            "word_overlap": self.word_overlap.tolist(),
            "tokens_kept": [len(kept) for kept in self.kept],
            "demonstration_share": self.demonstration_share.tolist(),
            "prompt_share": self.prompt_share.tolist(),
        }
        if self.correct is not None and self.full_correct is not None:
            table["correct"] = self.correct.tolist()
            table["full_correct"] = self.full_correct.tolist()
        return pd.DataFrame(table)


def _known(correct: Tensor | None) -> Tensor:
    if correct is None:
        raise ResultError("These prompts have no answers; accuracy needs them.")
    return correct


def compress_demonstrations(
    model: Any,
    prompts: PromptBatch,
    *,
    method: Method = "hidden_anchor",
    position: Position = "true",
    keep: Any = None,
    seed: int = 0,
    draws: int = 20,
    top_k: int = 5,
    batch_size: int | None = None,
    memory: str | int | None = None,
    measure_speed: bool = True,
    progress: bool | None = None,
) -> CompressionResult:
    """Predictions behind a stand-in for the demonstrations, compared with full prompts.

    Demonstrations that prompts share are run once, cut, and seen by all their queries.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with demonstrations.
        method: `hidden_anchor`, `text_anchor`, `hidden_random` or `hidden_random_top`.
        position: Position id of the query's first token: as in the full prompt (`true`) or 0
            (`overlap`; the published code's choice for GPT-2). Text anchors are a prompt of
            their own and numbered as such.
        keep: Positions to keep instead of those the roles give: one ascending row per prompt,
            or one for all (lists, arrays or tensors). In prompts made from bare positions the query begins right behind
            the last of them.
        seed: Of the random methods; a draw depends on it and on the demonstrations alone.
        draws: Of `hidden_random_top`; fewer where the texts do not have that many.
        top_k: Number of likeliest next tokens compared.
        batch_size: Prompts per batch at most.
        memory: Budget, see `icl_mech.engine.run`.
        measure_speed: Also time the first prompts, one after the other. Not done with models that
            count positions themselves (HookedTransformer): there nothing is cut, only hidden.
        progress: Show a progress bar.

    Raises:
        RunError: unknown or contradictory options, or `overlap` with a model that counts
            positions itself.
        PromptError: prompts without demonstrations, without roles while `keep` is not given,
            or with positions in `keep` that are out of range, of the query or not ascending.

    Source: Wang et al. 2023, §3.2.
    """
    check_options([method], position, keep, draws)
    adapted = adapt(model)
    compared = compress_by(
        adapted, prompts, [method], position=position, keep=keep, seed=seed, draws=draws,
        top_k=top_k, batch_size=batch_size, memory=memory, measure=measure_speed,
        progress=progress,
    )  # fmt: skip
    origin = provenance(
        adapted, prompts, method=method, position=position, seed=seed, top_k=top_k,
        positions="roles" if keep is None else "given", cache="cut" if compared.cut else "hidden",
    )  # fmt: skip
    return _result(compared, prompts, origin)


def _result(
    compared: Comparison, prompts: PromptBatch, origin: dict[str, Any]
) -> CompressionResult:
    (found,) = compared.methods
    speed = compared.speed
    if found.draws:
        origin["variants"] |= found.choice
    if speed is not None:
        origin["speed"] = speed.to_dict()
    answers = prompts.answers if prompts.has_answers else None
    return CompressionResult(
        method=found.method,
        kept=found.kept,
        label_logits=found.label_logits,
        label_kept=found.label_kept,
        word_overlap=found.word_overlap,
        correct=None if answers is None else found.label_logits.argmax(-1) == answers,
        full_correct=None if answers is None else compared.full_predicted == answers,
        full_predicted=compared.full_predicted,
        demonstration_share=compared.shares[0].clone(),
        prompt_share=compared.shares[1].clone(),
        speed_up=None if speed is None else speed.up,
        speed_up_cached=None if speed is None else speed.up_cached,
        labels=prompts.labels,
        provenance=origin,
    )
