"""What a page says about one figure of a result, and the formulas behind a result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    r"""One quantity as a formula and in words.

    Attributes:
        name: Of the quantity, such as `label loyalty`.
        formula: LaTeX without dollar signs, such as `S_{wp} = \\frac{1}{|P|} \\sum_p I_l[p, j]`.
        words: What it is and what its symbols are.
        source: Paper and section.
    """

    name: str
    formula: str
    words: str
    source: str = ""


@dataclass(frozen=True)
class Figure:
    """One section of a page: the figure of `drawing(show=...)` and what can be said of it.

    All texts are written from the result, so that none of them can contradict it. `**bold**`
    marks what is to stand out.

    Attributes:
        show: The option of `drawing` that gives the figure.
        question: The heading, a question; empty: the title of the result.
        answer: One sentence that opens with Yes, No, Not shown, Perhaps or Cannot be judged where
            it can, and gives effect, interval and comparison.
        caption: What is drawn, what bars and bands are, how many prompts.
        establishes: What follows from it.
        limits: What does not.
        short: The heading in a list of contents; empty: the title of the result.
        drawn: False if there is nothing to see; the answer then says why.
    """

    show: str = ""
    question: str = ""
    answer: str = ""
    caption: str = ""
    establishes: str = ""
    limits: str = ""
    short: str = ""
    drawn: bool = True
