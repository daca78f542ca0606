"""What a page says about re-weighting, written from its numbers."""

import math

import torch

from icl_mech.measurements.reweighting.numbers import ReweightingNumbers
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import OPENINGS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, percent, said, told

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.1"

DEFINITIONS = (
    Definition(
        "re-weighting",
        r"\hat{A}_{l,h}[q, p_c] = \exp(\beta_{l,h,c}) \, A_{l,h}[q, p_c]",
        "Attention A of the target q to the label word p of class c is multiplied by a factor for "
        "each layer l, head h and class c, after the softmax and without normalising again. β = 0 is "
        "the plain model.",
        SOURCE,
    ),
    Definition(
        "training",
        r"\beta^* = \arg\min_\beta \; -\sum_n \log P(y_n \mid x_n, \beta)",
        "Cross-entropy of the true class y over the label words on extra prompts x; the model is "
        "frozen, Adam starts at β = 0.",
        SOURCE,
    ),
    Definition(
        "accuracy",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = y_n\right]",
        "Share of the N test prompts, none of them trained on, whose predicted class ŷ is the true y.",
        SOURCE,
    ),
)


def figures(result: ReweightingNumbers) -> list[Figure]:
    """The accuracies, the factors and, if they were learned here, their training."""
    found = [_accuracy(result), _factors(result)]
    if result.losses is not None:
        found.append(_training(result))
    return found


def halves(result: ReweightingNumbers) -> str:
    """On how many prompts the factors were learned and judged."""
    judged_on = counted(len(result.answers), "prompt")
    learned = result.learned_from
    return f"learned from {learned}, judged on {judged_on}" if learned else f"judged on {judged_on}"


def answer(result: ReweightingNumbers) -> str:
    """The paired difference, both accuracies and the sizes of the held-out halves."""
    own, sizes = result.status, halves(result)
    if "reweighted" not in result.conditions or "plain" not in result.conditions:
        return "Cannot be judged: plain and re-weighted were not both run."
    effect = (
        f"accuracy changes by {said(result.difference(), sign=True)}, from "
        f"{said(result.accuracy('plain'))} to {said(result.accuracy('reweighted'))} ({sizes})"
    )
    if own == "cannot be judged":
        why = (
            f"{result.seen_in_training} of the {counted(len(result.answers), 'prompt')} were also learned from"
            if result.seen_in_training
            else "too few prompts"
        )
        return f"{OPENINGS[own]}, {why}: {effect}."
    than = "" if own in ("supported", "opposite") else "; the interval includes or touches 0"
    return f"{OPENINGS[own]}. Re-weighted, {effect}{than}."


def _accuracy(result: ReweightingNumbers) -> Figure:
    n = counted(len(result.answers), "prompt")
    more = ""
    if "more_shots" in result.conditions:
        more = f" With {result.demonstrations[result.conditions.index('more_shots')]} demonstrations instead: {said(result.accuracy('more_shots'))}."
    return Figure(
        "accuracy",
        "Does re-weighting attention to label words help?",
        answer(result) + more,
        f"**Share of right answers with and without learned factors on attention to label words** "
        f"({halves(result)}). Bars: 95 % Wilson intervals over {n}{given(result)}; the difference is "
        "paired, with a score interval.",
        establishes="such factors can be learned from few prompts and hold on others."
        if result.status == "supported"
        else "",
        limits="that label words are the only place where such factors would help; no other tokens "
        "were re-weighted.",
        short="Re-weighting",
    )


def _factors(result: ReweightingNumbers) -> Figure:
    beta = result.beta.double()
    low, high = float(beta.min()), float(beta.max())
    if low == high == 0:
        text = "All factors are 1 (β = 0): this is the plain model."
    else:
        place = int(beta.abs().mean(-1).argmax())
        layer, head = divmod(place, beta.shape[1])
        raised = float((beta > 0).double().mean())
        text = (
            f"β lies between {told(low, sign=True)} and {told(high, sign=True)}, and {percent(raised)} of the "
            f"factors raise attention to label words; head {layer}.{head} is changed most (mean over "
            f"classes {told(float(beta[layer, head].mean()), sign=True)})."
        )
    return Figure(
        "beta",
        "Which heads get other factors?",
        text,
        "**Logarithm β of the factors by layer and head**, mean over classes: attention from the target to "
        "label words is multiplied by exp β.",
        limits="which heads matter: small steps from 0 spread over all factors, and no interval is known "
        "from one training.",
        short="Learned factors",
    )


def _training(result: ReweightingNumbers) -> Figure:
    losses = torch.as_tensor(result.losses, dtype=torch.float64)
    epochs = int(result.training.get("epochs_run", 1))
    means = losses.reshape(epochs, -1).mean(1)
    uniform = math.log(len(result.labels))
    text = f"The mean loss falls from {told(float(means[0]))} in the first epoch to {told(float(means[-1]))} in the last"
    if means[-1] >= means[0]:
        text = f"The mean loss does not fall: {told(float(means[0]))} in the first epoch, {told(float(means[-1]))} in the last"
    held = "; no prompts were held out"
    if result.held_out_losses is not None and len(result.held_out_losses):
        ends = result.held_out_losses[0], result.held_out_losses[-1]
        held = f"; on held-out prompts {told(float(ends[0]))} at the start and {told(float(ends[1]))} at the end"
    return Figure(
        "training",
        "How did the training go?",
        f"{text} (a uniform guess: {told(uniform)}){held}.",
        "**Cross-entropy of the true class over the label words at each step**, its mean over each epoch"
        + (" and that of held-out prompts." if result.held_out_losses is not None else "."),
        limits="how the factors do on other prompts; that is their accuracy above.",
        short="Training",
    )
