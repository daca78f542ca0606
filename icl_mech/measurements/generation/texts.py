"""What a page says of written texts and of what writing reads."""

from icl_mech.metrics import Interval
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import OPENINGS, judged
from icl_mech.results.wording import counted, said

DEFINITIONS = (
    Definition(
        "attention of a step to a span",
        r"m_l(t, S) = \frac{1}{H} \sum_h \sum_{j \in S} A_{l,h}[t, j]",
        "Attention in layer l of the row t that writes a token (the row of the token before it) to the "
        "columns of span S, mean over the H heads. Over all spans it adds up to 1.",
    ),
    Definition(
        "lift",
        r"\frac{m_l(t, S)}{|S| / (t + 1)}",
        "The same over the share of columns that the span has: 1 is what even attention gives.",
    ),
)


def figures(count: int, lift: Interval | None, first: str) -> list[Figure]:
    """What steps read, by span and by token.

    Args:
        count: Number of texts.
        lift: Of label words; None in prompts without any.
        first: The first text.
    """
    given = f"{counted(count, 'text')}"
    if lift is not None:
        opening = OPENINGS[judged(lift, null=1.0, prompts=count)]
        answer = (
            f"{opening}: while {given} {'was' if count == 1 else 'were'} written, label words got "
            f"{said(lift)} times an even share of attention in the last third of the layers."
        )
    else:
        answer = (
            f"These prompts have no label words; {given} {'was' if count == 1 else 'were'} written."
        )
    by_span = Figure(
        "spans",
        "Does writing go on reading the label words?" if lift else "What does writing read?",
        answer,
        "**Attention of each step to the spans of the prompt**, mean over heads and the last third of "
        "the layers, of the first prompt. A column is the row that writes this token; it adds up to 1. "
        "Intervals are over prompts.",
        "which earlier parts the rows that write attend to.",
        "that these parts decide what is written: attention is not effect. Long spans get more of it by "
        "their length alone, the first token in most models whatever it is.",
        "Attention while writing",
    )
    by_step = Figure(
        "steps",
        "Which tokens does each step read?",
        f"The first text: {first[:120]!r}.",
        "**The first prompt and its text, coloured by the attention of one step**, with a slider over "
        "steps; mean over heads and the last third of the layers.",
        "where one text's steps look.",
        "anything about other prompts.",
        "Step by step",
    )
    return [by_span, by_step]
