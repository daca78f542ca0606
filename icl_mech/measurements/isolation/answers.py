"""What isolated models answer: predicted classes, constant answers among them, and likely next words."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.measurements.reading import ANOTHER
from icl_mech.models import LanguageModel
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.results import Figure
from icl_mech.results.wording import counted, listed, told
from icl_mech.shapes import LabelMatrix, Table

EXAMPLES = 3
"""Of so many prompts, the first ones, the likeliest next words are kept as text."""

Words = tuple[tuple[str, ...], ...]
"""The likeliest next words of some prompts, best first."""

NEARLY_ALWAYS = 0.8
"""A window that answers one class so often hardly differs from a constant answer."""

MOST_CONSTANTS = 4
"""So many constant answers are drawn where predictions under isolation are not known."""

CLOSE = 0.05
"""Lines of constant answers closer than this are drawn as one."""

MOST_CLASSES = 12
"""So many classes have a column of their own; the others share one."""


def constants(
    predicted: Int[Tensor, " batch"],
    isolated: Int[Tensor, "window batch"] | None,
    labels: Sequence[str],
    kind: str = "classes",
) -> list[tuple[float, str]]:
    """Label loyalty that constant answers and chance keep, for those that matter, with words.

    They are the commonest answer without isolation, and every answer that a window (nearly)
    always gives; where that is not known, all answers if they are few.

    Args:
        predicted: Classes predicted without isolation.
        isolated: Those under isolation, one row per window.
        labels: Names of the classes.
        kind: What answers are. No answer is the same in prompts whose words differ; of texts there is no
            chance either.
    """
    if kind != "classes":
        chance = 1 / len(labels)
        return [(chance, f"chance {told(chance)}")] if kind == "choices" else []
    n = len(predicted)
    most = max(int(own.max()) for own in (predicted, isolated) if own is not None)
    shares = predicted.bincount(minlength=max(len(labels), most + 1)).double() / n
    matter = {int(shares.argmax())}
    if isolated is not None:
        matter |= {
            int(own.mode().values)
            for own in isolated
            if float((own == own.mode().values).double().mean()) >= NEARLY_ALWAYS
        }
    elif int((shares > 0).sum()) <= MOST_CONSTANTS:
        matter |= set(shares.nonzero()[:, 0].tolist())
    found = [(float(shares[c]), f"always “{class_name(labels, c)}”") for c in sorted(matter)]
    # Of a whole vocabulary chance is nothing.
    if len(labels) > 1 and ANOTHER not in labels:
        found.append((1 / len(labels), "chance"))
    return _merged(found)


def dashed(kind: str) -> str:
    """What a caption says of the lines of `constants`."""
    known = {"classes": "what chance and constant answers keep", "choices": "chance"}
    return f" Dashed: {known[kind]}." if kind in known else ""


def class_name(labels: Sequence[str], place: int) -> str:
    """Name of a class, also where a file does not hold it."""
    if place < len(labels):
        return labels[place]
    return "another token" if labels[:1] == ("next token",) else f"class {place}"


def _merged(levels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """A line at each height; where lines are closer than words are high, the upper one bears the words of all."""
    names: dict[float, list[str]] = {}
    for height, words in sorted(levels):
        names.setdefault(height, []).append(words)
    found: list[tuple[float, str]] = []
    for height, own in names.items():
        text = f"{listed(own)} {told(height)}"
        if found and height - found[-1][0] < CLOSE:
            below, above = found.pop()
            found.append((below, ""))
            text = f"{above}, {text}"
        found.append((height, text))
    return found


def became(
    own: Int[Tensor, " batch"], predicted: Int[Tensor, " batch"], labels: Sequence[str]
) -> str:
    """The answer that nearly all prompts get under isolation, if there is one that not all had before."""
    place = int(own.mode().values)
    count, n = int((own == place).sum()), len(own)
    if n < 2 or count < NEARLY_ALWAYS * n or bool((predicted == place).all()):
        return ""
    before = int((predicted == place).sum())
    return (
        f"Isolated so, the model answers “{class_name(labels, place)}” for {count} of {n} "
        f"prompts (before: {before}), and always answering that keeps {told(before / n)}."
    )


def commonest(
    own: Int[Tensor, " batch"], predicted: Int[Tensor, " batch"], labels: Sequence[str], where: str
) -> str:
    """The answer that most prompts get with isolation, in words, and without."""
    n, place, before = len(own), int(own.mode().values), int(predicted.mode().values)
    return (
        f"Mostly “{class_name(labels, place)}”: {int((own == place).sum())} of {n} answers with {where}; "
        f"without isolation it answers “{class_name(labels, before)}” most "
        f"often ({int((predicted == before).sum())} of {n})."
    )


def class_counts(
    predicted: Int[Tensor, " batch"],
    isolated: Int[Tensor, "window draw batch"],
    labels: Sequence[str],
    windows: Sequence[str],
) -> LabelMatrix:
    """How often each class is predicted without isolation and with that of each window."""
    n_labels = max(len(labels), int(isolated.max()) + 1, int(predicted.max()) + 1)
    counts = [predicted.bincount(minlength=n_labels).double()]
    counts += [own.flatten().bincount(minlength=n_labels) / len(own) for own in isolated]
    table, names = torch.stack(counts), [class_name(labels, c) for c in range(n_labels)]
    if n_labels > MOST_CLASSES:
        chosen = sorted(table.sum(0).topk(MOST_CLASSES - 1).indices.tolist())
        others = [c for c in range(n_labels) if c not in chosen]
        table = torch.cat([table[:, chosen], table[:, others].sum(1, keepdim=True)], dim=1)
        names = [*(names[c] for c in chosen), f"{len(others)} others"]
    draws = isolated.shape[1]
    mean = f"; random tokens: mean of {draws} draws" * (draws > 1)
    return LabelMatrix(
        title="Predicted classes with and without isolation",
        values=table,
        rows=("no isolation", *windows),
        columns=tuple(names),
        row_title="",
        column_title="predicted class",
        quantity="prompts",
        note=f"{counted(len(predicted), 'prompt')} in each row{mean}",
        counts=True,
    )


def next_words(model: LanguageModel, top: Int[Tensor, "batch k"]) -> Words:
    """The texts of the likeliest next tokens of the first prompts; none without a tokenizer."""
    if not callable(model.tokenizer):
        return ()
    pieces = TextTokenizer(model.tokenizer)
    return tuple(pieces.words(tuple(row)) for row in top[:EXAMPLES].tolist())


def word_table(rows: Sequence[tuple[str, Words]], top_k: int) -> Table:
    """The likeliest next words of the first prompts in each of these conditions, the plain one first."""
    found = [
        (str(prompt + 1), name, " · ".join(visible(word) for word in words[prompt]))
        for prompt in range(len(rows[0][1]))
        for name, words in rows
    ]
    return Table(
        "Likeliest next words with and without isolation",
        ("prompt", "isolated", f"{top_k} likeliest next tokens, best first"),
        tuple(found),
        "␣ stands for a space at the start, ↵ for a line break; random tokens: first draw",
        bold=tuple(range(0, len(found), len(rows))),
    )


def word_figure(plain: Words, isolated: Words, where: str, top_k: int, depth: int) -> Figure:
    """What a page says of the likeliest next words."""
    kept = sum(one[0] == other[0] for one, other in zip(plain, isolated, strict=True))
    prompts = counted(len(plain), "prompt")
    return Figure(
        "words",
        "Which words does the isolated model expect?",
        f"With {where} the likeliest next token stays the same in {kept} of the first {prompts}.",
        f"**The {top_k} likeliest next tokens** of the first {prompts}, "
        f"best first, without isolation (bold) and with it, in {counted(depth, 'layer')}.",
        limits="anything of other prompts: these are examples.",
        short="Next words under isolation",
    )


def visible(word: str) -> str:
    """A token with signs for its spaces and line breaks."""
    return word.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "⋯"
