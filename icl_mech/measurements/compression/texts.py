"""What a page says about compression, written from its numbers."""

from typing import Any

import torch

from icl_mech.measurements.compression.numbers import ANCHORS, ComparedMethods
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import OPENINGS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, percent, said, told

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.2"

NAMES = {
    "hidden_anchor": "anchor states",
    "text_anchor": "anchor tokens as text",
    "hidden_random": "random states",
    "hidden_random_top": "random states, best draw",
}

WORDS = {
    "hidden_anchor": "the keys and values of label words and template, computed with the texts there",
    "text_anchor": "the same tokens as a prompt without the texts",
    "hidden_random": "as anchor states, a random text token in place of each label word's first",
    "hidden_random_top": "the best of several such draws, picked on these very prompts",
}

DEFINITIONS = (
    Definition(
        "label loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = \hat{y}_n^{\text{stand-in}}\right]",
        "Share of the N prompts whose predicted class ŷ is that of the full prompt.",
        SOURCE,
    ),
    Definition(
        "word loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} "
        r"\frac{|V_n \cap V_n^{\text{stand-in}}|}{|V_n \cup V_n^{\text{stand-in}}|}",
        "Mean Jaccard overlap of the sets V of likeliest next tokens with those of the full prompt.",
        SOURCE,
    ),
    Definition(
        "speed-up",
        r"\frac{t_{\text{full}}}{t_{\text{compressed}}}",
        "Time of full prompts without a cache over that of queries behind the compressed cache, "
        "whose building is not counted; beside it queries behind the full cache of the "
        "demonstrations over queries behind the compressed one. Medians of repeats.",
        SOURCE,
    ),
)


def name_of(method: str) -> str:
    """A method as figures name it."""
    return NAMES.get(method, method.replace("_", " "))


def constant(result: ComparedMethods) -> str:
    """The answer that most full prompts get, in words."""
    place = int(torch.bincount(result.full_predicted).argmax())
    return f"always “{result.labels[place]}”" if place < len(result.labels) else "a constant answer"


def speed_of(result: ComparedMethods) -> dict[str, Any]:
    """What was timed, prompt by prompt; empty in files of before, or where nothing was."""
    speed = result.provenance.get("speed", {})
    return speed if speed.get("tokens") and speed.get("each") else {}


def figures(result: ComparedMethods) -> list[Figure]:
    """Loyalties, accuracies, speed and the same numbers as a table."""
    found = [_loyalties(result)]
    if result.correct is not None:
        found.append(_accuracies(result))
    if speed_of(result):
        found.append(_speed(result))
    return found


def answer(result: ComparedMethods) -> str:
    """What anchors keep, and by how much more than the controls."""
    n = counted(len(result.full_predicted), "prompt")
    if ANCHORS not in result.methods:
        return f"Cannot be judged: anchor states were not run; compared were {listed(map(name_of, result.methods))}."
    own = result.status
    kept = said(result.label_loyalty(ANCHORS))
    if not result.controls:
        return f"Cannot be judged: anchor states keep {kept} of the answers ({n}), but nothing was run to compare them with."
    lead = listed(
        f"{said(result.difference(ANCHORS, other), sign=True)} against {name_of(other)}"
        for other in result.controls
    )
    words = listed(
        f"{said(result.difference(ANCHORS, other, 'word_loyalty'), sign=True)} against {name_of(other)}"
        for other in result.controls
    )
    opening = f"{OPENINGS[own]} from {n}:" if own == "cannot be judged" else f"{OPENINGS[own]}."
    text = (
        f"{opening} {'the' if opening.endswith(':') else 'The'} states of label words and template keep "
        f"{kept} of the answers ({lead}) and {said(result.word_loyalty(ANCHORS))} of the likely next words "
        f"({words})."
    )
    if result.label_loyalty(ANCHORS).low <= result.constant_loyalty:
        text += (
            f" But {constant(result)} alone keeps {told(result.constant_loyalty)} of the answers."
        )
    return text


def _loyalties(result: ComparedMethods) -> Figure:
    n = counted(len(result.full_predicted), "prompt")
    methods = "; ".join(f"{name_of(own)}: {WORDS[own]}" for own in result.methods if own in WORDS)
    share = float(result.demonstration_share.mean())
    return Figure(
        "loyalty",
        "Can the label words' states stand for the demonstrations?",
        answer(result),
        f"**How many answers (label loyalty) and likely next words (word loyalty) stay the same when the "
        f"demonstrations are replaced by a stand-in** of {percent(share)} of their tokens. {methods[:1].upper()}{methods[1:]}. "
        f"Bars: 95 % intervals over {n}{given(result)} (Wilson; word loyalty with an effective n). "
        f"Dashed: what {constant(result)} keeps of the answers.",
        establishes="the texts of the demonstrations are no longer needed once label words and template "
        "have read them."
        if result.status == "supported"
        else "",
        limits="which of the kept tokens matter: template tokens are kept with the label words.",
        short="Compressing demonstrations",
    )


def _accuracies(result: ComparedMethods) -> Figure:
    n = counted(len(result.full_predicted), "prompt")
    full = result.full_accuracy
    parts = [f"{name_of(own)} {said(result.accuracy(own))}" for own in result.methods]
    return Figure(
        "accuracy",
        "Does the stand-in answer as well as the full prompt?",
        f"Full prompts: {said(full)} right; {', '.join(parts)} ({n}).",
        f"**Accuracy behind each stand-in and with full prompts.** Bars: 95 % Wilson intervals over {n}"
        f"{given(result)}.",
        limits="that a stand-in of equal accuracy gives equal answers; that is label loyalty.",
        short="Accuracy when compressed",
    )


def _speed(result: ComparedMethods) -> Figure:
    speed = speed_of(result)
    count, repeats = len(speed["tokens"]), len(speed["full"])
    least, most = min(speed["tokens"]), max(speed["tokens"])
    length = counted(least, "token") if least == most else f"{least} to {most} tokens"
    up, cached = result.speed_up or float("nan"), result.speed_up_cached or float("nan")
    return Figure(
        "speed",
        "How much faster are queries behind the stand-in?",
        f"{told(up)} times as fast as full prompts without a cache, {told(cached)} times as queries behind "
        f"the full cache ({counted(count, 'prompt')} of {length}).",
        f"**Speed-up by length of the prompt**, one point for each of the first {counted(count, 'prompt')}: "
        f"medians of {counted(repeats, 'repeat')}, one prompt at a time, building the cache not counted.",
        limits="other machines, batches or lengths.",
        short="Speed-up",
    )
