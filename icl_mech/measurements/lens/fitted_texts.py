"""Figures and words of lenses that were fitted: their held-out KL beside the logit lens'."""

from typing import TYPE_CHECKING

from icl_mech.measurements.lens.words import AFTER
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure, Result
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    from icl_mech.results.samples import Samples

TUNED = Definition(
    "tuned lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(h_\ell + W_\ell h_\ell + b_\ell) + b_U, "
    r"\quad \ell < L",
    "The residual stream h_l is mapped by a translator of its own before it is read out as the model's "
    "last layer is. W and b minimise KL(model || lens) on prompts set apart for this; the last entry "
    "has none.",
    "Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens",
)

JACOBIAN = Definition(
    "Jacobian lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(J_\ell h_\ell) + b_U, \quad "
    r"J_\ell = \mathbb{E}\Big[\sum_{t' \ge t} \partial h_L[t'] / \partial h_\ell[t]\Big]",
    "The residual stream h_l is mapped by the mean effect that a small change of it has on the last "
    "residual, at its own and all later positions; the mean is over positions t, then prompts.",
    "TransformerLens 4.3, tools/analysis/jacobian_lens.py",
)

HELD_OUT_KL = Definition(
    "held-out KL",
    r"\operatorname{KL}(p \,\|\, q_\ell) = \sum_v p(v) \log \frac{p(v)}{q_\ell(v)}",
    "How far the next-token distribution q that a lens reads at layer l is from the model's own p, over "
    "the whole vocabulary, in nats; of prompts the lens was not fitted on.",
)

NAMES = {"logit": "logit lens", "tuned": "tuned lens", "jacobian": "Jacobian lens"}
"""How lenses are called."""


def lens_name(result: Result) -> str:
    """How the lens is called that a result was read with, by its provenance."""
    used = result.provenance.get("variants", {}).get("lens")
    return NAMES[used["lens"] if used else "logit"]


def noted(result: Result) -> str:
    """A fitted lens before the note of a figure; nothing for the logit lens."""
    name = lens_name(result)
    return "" if name == NAMES["logit"] else f"{name}; "


LIMITS = (
    "that the model itself uses what the lens finds: a fitted map may read what no later block reads. "
    "Nor anything of texts unlike those it was fitted on."
)


def kl_curves(kind: str, found: "Samples", prompts: int) -> LayerCurves:
    """Held-out KL by layer, of a fitted lens and of the logit lens."""
    return LayerCurves(
        title="How far each layer's reading is from the model's own answer",
        names=(NAMES[kind], NAMES["logit"]),
        values=found.values,
        low=found.low,
        high=found.high,
        y_title=found.unit,
        x_title=AFTER,
        note=f"{counted(prompts, 'held-out prompt')}, 95 % intervals over prompts",
        meanings=("label", "reference"),
    )


def kl_figure(
    kind: str, *, better: int, clearly: int, layers: int, means: list[float], prompts: int
) -> Figure:
    """What the held-out KL says.

    Args:
        kind: Of the fitted lens.
        better: Layers in which it lies below the logit lens'.
        clearly: Layers in which the interval of the difference lies above 0.
        layers: Number of layers with a map.
        means: Mean KL over these layers, of the fitted and of the logit lens.
        prompts: Number of held-out prompts.
    """
    status: Status = "supported" if 2 * clearly > layers else "not shown"
    if prompts < FEWEST_PROMPTS:
        status = "cannot be judged"
    few = f" from {counted(prompts, 'prompt')}" if status == "cannot be judged" else ""
    return Figure(
        "",
        f"Does the {NAMES[kind]} read layers better than the logit lens?",
        f"{OPENINGS[status]}{few}: on held-out prompts its KL lies below the logit lens' in {better} of "
        f"{layers} layers, clearly in {clearly} (mean over these layers {told(means[0])} against "
        f"{told(means[1])} nats).",
        "**KL between the model's own next-token distribution and what a lens reads after each layer**, "
        f"over the whole vocabulary, on {counted(prompts, 'prompt')} it was not fitted on. Layer 0 is the "
        "embedding; at the last one both are the model itself. Bands (each point for itself): 95 % "
        "intervals over prompts.",
        "that a fixed linear map brings layers closer to the answer, on texts like these."
        if status == "supported"
        else "",
        LIMITS,
        f"Fit of the {NAMES[kind]}",
    )


def compared_figure(
    kind: str,
    *,
    above: int,
    below: int,
    best: int,
    gain: Interval,
    layers: int,
    prompts: int,
    given: str,
) -> Figure:
    """Where a fitted lens finds right answers that the logit lens does not.

    Args:
        kind: Of the fitted lens.
        above: Layers whose paired difference lies clearly above 0.
        below: Layers whose paired difference lies clearly below 0.
        best: Layer of the largest difference.
        gain: That difference.
        layers: Number of layers before the last entry.
        prompts: Number of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    return Figure(
        "",
        "Do earlier layers hold the answer in other directions than the last layer's?",
        f"The {NAMES[kind]} is clearly more accurate in {above} of {layers} layers, clearly less in "
        f"{below}; the largest difference is {said(gain, sign=True)} at layer {best}, chosen among all.",
        "**Share of prompts whose true label word has the largest logit, by layer and lens**, and the "
        "paired difference. Bands (each point for itself): 95 % intervals over "
        f"{counted(prompts, 'prompt')}{given}. At the last layer both are the model's own answer.",
        "",
        LIMITS,
        "Two lenses",
    )
