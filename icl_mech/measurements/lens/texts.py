"""What a page says about the logit lens, from its numbers."""

from collections.abc import Mapping

from icl_mech.measurements.lens.fitted_texts import LIMITS as FITTED
from icl_mech.metrics import Interval
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status, judged
from icl_mech.results.wording import counted, said, told

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
