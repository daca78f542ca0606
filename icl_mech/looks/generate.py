"""Figures of generation: attention of each step to the spans of a prompt, or to every token of its text."""

from icl_mech.measurements.generation.generate import GenerateResult
from icl_mech.measurements.generation.reads import LABEL_WORD, late
from icl_mech.shapes import LabelMatrix, TokenStrips


def drawing(
    result: GenerateResult, show: str = "spans", *, prompt: int = 0
) -> LabelMatrix | TokenStrips:
    """Attention of each step to the spans, or to every token, of one prompt.

    Args:
        result: The result to draw.
        show: `spans`, or `steps`: the text coloured, with a slider over steps.
        prompt: Index of the prompt.

    Raises:
        ResultError: no such prompt, or attention was not measured.
    """
    attention, _ = result.attention_and_sizes()
    result.check_number("prompt", prompt, result.count)
    steps = [f"{number} {piece!r}" for number, piece in enumerate(result.pieces[prompt], 1)]
    if show == "steps":
        spans = result.column_spans[prompt]
        return TokenStrips(
            title="Attention of each generation step",
            names=tuple(f"token {step}" for step in steps),
            values=result.reads[prompt],
            tokens=result.columns[prompt],
            marks=tuple(LABEL_WORD if span.startswith(LABEL_WORD) else "" for span in spans),
            quantity="attention",
            note="mean over heads and the last third of the layers; label words are framed",
        )
    mass = attention[prompt, : len(steps)][:, late(attention.shape[2])].mean(1)
    return LabelMatrix(
        title="Attention during generation",
        values=mass.T,
        rows=result.spans,
        columns=tuple(steps),
        row_title="attended part",
        column_title="generated token",
        quantity="attention",
        note=f"prompt {prompt}; mean over heads and the last third of the layers",
    )
