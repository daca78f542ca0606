"""`LogitLens`: what each entry of the residual stream would answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.lens.fitted_texts import LIMITS as FITTED
from icl_mech.measurements.lens.fitted_texts import lens_name
from icl_mech.measurements.lens.words import AFTER, settled, word_table
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status, judged
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves, LensTable, Shape

if TYPE_CHECKING:
    import pandas as pd

LENS = Definition(
    "logit lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(h_\ell) + b_U, \quad \ell = 0 \dots L",
    "The residual stream at the last token of the prompt, read out as if the model ended there: "
    "h_0 is the embedding, h_l what layer l leaves behind. After the last layer this is the model's "
    "own answer.",
    "Halawi et al. 2023, Overthinking the Truth, §4",
)

LIMITS = {
    "logit lens": "that an earlier layer knows nothing else: the lens reads only what stands in the last "
    "layer's directions.",
    "tuned lens": FITTED,
    "Jacobian lens": FITTED,
}
"""What a lens does not establish, by its name."""


def answering(
    right: Interval | None, chance: float, prompts: int, classes: int, *, given: str, lens: str
) -> Figure:
    """Probability of the true label (or of all labels) by layer.

    Args:
        right: Accuracy over the label words after the last layer; None where nobody knows.
        chance: One over the number of classes.
        prompts: Number of prompts.
        classes: Number of classes.
        given: What the intervals take as given, with a comma before it, or nothing.
        lens: What the lens is called.
    """
    whose = "the true label word" if right is not None else f"each of the {classes} label words"
    answer = f"The true classes of the prompts are not known, so the figure shows {whose}."
    if right is not None:
        status = judged(right, null=chance, prompts=prompts)
        few = f" from {counted(prompts, 'prompt')}" if status == "cannot be judged" else ""
        side = {"supported": "above", "opposite": "below"}.get(status, "not clear of")
        answer = (
            f"{OPENINGS[status]}{few}: after the last layer {said(right)} of the prompts are answered right, "
            f"{side} chance ({told(chance)})."
        )
    return Figure(
        "curves",
        "Does the model come to the right answer, and where?",
        answer,
        f"**Probability of {whose} among the label words, read out after each layer** ({lens}). Layer 0 is the "
        "embedding, the last one the model's own answer. Bands (each point for itself): 95 % intervals over "
        f"{counted(prompts, 'prompt')}{given}. Dashes: chance.",
        "",
        LIMITS[lens],
        f"{lens[0].upper()}{lens[1:]}",
    )


def first_words(
    columns: Mapping[str, tuple[str, float, int]],
    *,
    prompt: int,
    prompts: int,
    labels: bool,
    lens: str,
) -> Figure:
    """Which word each layer would say next.

    Args:
        columns: The last layer's word, its probability, and from which layer on it is first.
        prompt: Which prompt is shown, from 0.
        prompts: Number of prompts measured.
        labels: Label words stand in bold.
        lens: What the lens is called.
    """
    parts = [
        f"{name}: “{word.strip() or repr(word)}” ({told(prob)}), first from layer {layer} on"
        for name, (word, prob, layer) in columns.items()
    ]
    which = "the only prompt" if prompts == 1 else f"prompt {prompt + 1} of {prompts}"
    return Figure(
        "words",
        "What would each layer say next?",
        f"On {which} the model ends with – {'; '.join(parts)}.",
        f"**The likeliest next word after each layer** (the {lens}), coloured by its probability over "
        f"the whole vocabulary, on {which}. Layer 0 is the embedding."
        + (" Label words are bold." if labels else "")
        + " Pointing shows the next words too.",
        "",
        f"anything of other prompts: it is an example. Nor {LIMITS[lens]}",
        "Top words by layer",
    )


def components(
    best: str, score: Interval | None, clear: int, count: int, prompts: int, *, heads: bool, given: str
) -> Figure:  # fmt: skip
    """What heads or MLPs add to the true label.

    Args:
        best: The part that adds most.
        score: How much; None where the true classes are not known.
        clear: Parts that add to it, corrected for looking at all of them.
        count: Number of parts.
        prompts: Number of prompts.
        heads: They are heads, not MLPs.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    what = "heads" if heads else "MLPs"
    if score is None:
        answer = "The true classes of the prompts are not known, so all labels are shown."
    else:
        status: Status = "supported" if clear else "not shown"
        if prompts < FEWEST_PROMPTS:
            status = "cannot be judged"
        few = f" from {counted(prompts, 'prompt')}" if status == "cannot be judged" else ""
        many = f"{clear} of {count} {what} do" if clear else f"none of {count} {what} clearly does"
        answer = (
            f"{OPENINGS[status]}{few}: {many}, corrected for looking at all of them; {best} adds most, "
            f"{said(score, sign=True)} logits."
        )
    return Figure(
        "",
        f"Which {what} push to the right answer?",
        answer,
        f"**What each of {count} {what} adds to the logit of the true label word above the mean of the "
        f"others**, means over {counted(prompts, 'prompt')}; brown adds to it, blue takes from it. Layers "
        f"count from 0. 95 % intervals over prompts{given}, for each part alone.",
        "",
        "what a part does by way of later layers: this is its direct effect on the logits only.",
        f"Lens of {what}",
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class LogitLens(Result):
    """What each entry of the residual stream would answer.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        log_sum: Log-sum-exp of each entry's logits over the vocabulary, or None.
        top_tokens: Ids of the C likeliest tokens, best first, or None.
        answers: True class of each query, or None.
        labels: Names of the classes.
        displayed: Class each demonstration displays, of lenses at demonstrations.
        top_logits: Logits of `top_tokens`; None without the vocabulary, and in results that were
            saved without them.
        words: Text of these tokens, by id.
        label_words: Text of the first token of each label word.
    """

    title: ClassVar[str] = "Logit lens"
    shows: ClassVar[tuple[str, ...]] = ("curves", "words")
    definitions: ClassVar[tuple[Definition, ...]] = (LENS,)

    label_logits: Float[Tensor, "batch *demo layer label"]
    log_sum: Float[Tensor, "batch *demo layer"] | None = None
    top_tokens: Int[Tensor, "batch *demo layer label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    displayed: Int[Tensor, "batch demo"] | None = None
    top_logits: Float[Tensor, "batch *demo layer label"] | None = None
    words: dict[str, str] = field(default_factory=dict)
    label_words: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Probabilities among the label words: of the true or displayed one, and of each.

        Behind them whether the entry is right, the probabilities over the whole vocabulary, and
        the logits.
        """
        probs = self.label_probs.double()
        at_target = probs.ndim == 3
        dims = ("layer",) if at_target else ("demo", "layer")
        unit = "probability among the label words"
        found = {}
        classes = self.answers if at_target else self.displayed
        if classes is not None:
            index = classes[..., None, None].expand(*probs.shape[:-1], 1)
            name = "true_label" if at_target else "displayed_label"
            found[name] = Quantity(dims, probs.gather(-1, index)[..., 0], unit=unit)
            if at_target:
                right = self.label_logits.argmax(-1) == classes[:, None]
                found["accuracy"] = Quantity(dims, right, unit="accuracy over label words")
        found["label_prob"] = Quantity((*dims, "label"), probs, unit=unit)
        if self.log_sum is not None:
            found["prob"] = Quantity(
                (*dims, "label"), self.probs, unit="probability over the vocabulary"
            )
        found["label_logit"] = Quantity((*dims, "label"), self.label_logits, unit="logit")
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes; layers are entries, 0 the embedding."""
        return {"label": self.labels}

    @property
    def page_title(self) -> str:
        """The lens it was read with."""
        name = lens_name(self)
        return f"{name[0].upper()}{name[1:]}"

    @property
    def probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities of the label words over the whole vocabulary.

        Raises:
            ResultError: read with `vocabulary=False`.
        """
        if self.log_sum is None:
            raise ResultError("Probabilities need the vocabulary; use logit_lens(vocabulary=True).")
        return (self.label_logits.double() - self.log_sum.double()[..., None]).exp()

    @property
    def label_probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities over the label words alone."""
        return self.label_logits.softmax(-1)

    def drawing(self, show: str = "curves", prompt: int = 0) -> Shape:
        """Probability of the true label after each layer, or the likeliest words of one prompt.

        Where the true classes are not known: the probability of each label. At demonstrations: of
        the label each of them displays.

        Args:
            show: `curves` or `words`.
            prompt: Which prompt's words.

        Raises:
            ResultError: no such prompt, no words in the result, or unknown `show`.
        """
        self.check_show(show)
        if show == "words":
            return self._table(prompt)
        found = self.sel()
        if self.label_logits.ndim != 3:
            return found.drawing()
        names = self.labels if self.answers is None else ("true label",)
        values, low, high = (
            end.T if self.answers is None else end[None]
            for end in (found.values, found.low, found.high)
        )
        chance = 1 / len(self.labels)
        return LayerCurves(
            title=f"{self.page_title}: what each layer would answer",
            names=names,
            values=values,
            low=low,
            high=high,
            y_title=found.unit,
            x_title=AFTER,
            note=basis(self),
            meanings=() if self.answers is None else ("label",),
            levels=((chance, f"chance {told(chance)}"),),
            y_range=(-0.03, 1.05),
        )

    def _table(self, prompt: int) -> LensTable:
        if self.top_tokens is None or self.top_logits is None or self.log_sum is None:
            raise ResultError(
                "This result holds no top words: it was read without the vocabulary, or saved before "
                "they were kept. Measure again with logit_lens(vocabulary=True)."
            )
        if not 0 <= prompt < len(self.top_tokens):
            raise ResultError(f"prompt={prompt}; there are {len(self.top_tokens)}, counted from 0.")
        tokens, logits, log_sum = (
            part[prompt] for part in (self.top_tokens, self.top_logits, self.log_sum)
        )
        probs = (logits.double() - log_sum.double()[..., None]).exp()
        columns: tuple[str, ...] = ("last token",)
        if tokens.ndim == 2:
            tokens, probs = tokens[None], probs[None]
        else:
            columns = tuple(f"before label {demo + 1}" for demo in range(len(tokens)))
        return word_table(
            columns, tokens, probs, self.words, title="Likeliest next word after each layer",
            labels=self.label_words, note=f"prompt {prompt + 1} of {len(self.top_tokens)}",
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """Curves over layers and, where words were kept, the table of the first prompt."""
        n, classes = len(self.label_logits), len(self.labels) or self.label_logits.shape[-1]
        right = None
        if self.answers is not None and self.label_logits.ndim == 3:
            right = self.interval("accuracy", layer=self.label_logits.shape[1] - 1)
        shown = [answering(right, 1 / classes, n, classes, given=given(self), lens=lens_name(self))]
        if self.top_logits is not None:
            table = self._table(0)
            last = {
                name: (words[-1][0], float(probs[-1, 0]), settled(tokens[:, 0]))
                for name, words, probs, tokens in zip(
                    table.columns, table.words, table.probs, self._tokens(), strict=False
                )
            }
            shown.append(
                first_words(
                    last, prompt=0, prompts=n, labels=bool(table.bold), lens=lens_name(self)
                )
            )
        return shown

    def _tokens(self) -> Tensor:
        """Top tokens of the first prompt, `[column, layer, k]`."""
        tokens = torch.zeros(0) if self.top_tokens is None else self.top_tokens[0]
        return tokens[None] if tokens.ndim == 2 else tokens

    def summary(self) -> str:
        """Accuracy at the first, middle and last entry, where answers are known."""
        entries, right = self.label_logits.shape[-2], self.quantities().get("accuracy")
        if right is None:
            return f"label logits of {entries} entries, {len(self.label_logits)} prompts"
        places, shares = (0, entries // 2, entries - 1), right.value()
        return "; ".join(f"entry {i}: accuracy {float(shares[i]):.3g}" for i in places)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per prompt, entry and label (and demonstration)."""
        logits = self.to_xarray()["label_logit"].rename("logit")
        return logits.to_dataframe().reset_index()
