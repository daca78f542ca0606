"""What stands on a page, before it is HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from icl_mech._typing import Float, Tensor
from icl_mech.results import Definition
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

STATUSES = (
    *("supported", "present, not used", "mixed"),
    *("not shown", "opposite", "cannot be judged"),
)
"""What can be found of a claim; each has a symbol of its own shape."""

MOST_INTERVALS = 60
"""In all cells of a matrix of claims; of larger ones, tasks show values alone."""


@dataclass(frozen=True)
class Fact:
    """One entry of the list of facts.

    Attributes:
        name: What it is.
        value: The fact.
        detail: More of it, in quieter type.
    """

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim and what was found of it.

    Attributes:
        claim: In words; `**bold**` stands out in all texts.
        status: One of `STATUSES`.
        finding: Effect, interval, comparison.
        key: Of the section it rests on.
        brief: Effect with interval and number of prompts in one line; empty: the finding.
        word: What stands in the place of the status, where the claim is a question.
    """

    claim: str
    status: str
    finding: str
    key: str = ""
    brief: str = ""
    word: str = ""


@dataclass(frozen=True)
class Origin:
    """What is said of a run before its sections.

    Attributes:
        findings: Claims of the paper beside what was found.
        facts: Model, task, prompts, versions.
        command: The call or command that makes the page.
        limits: What holds for all sections.
    """

    findings: Sequence[Finding] = ()
    facts: Sequence[Fact] = ()
    command: str = ""
    limits: Sequence[str] = ()


@dataclass(frozen=True)
class Sign:
    """One cell of a matrix of claims.

    Attributes:
        status: One of `STATUSES`; empty: nothing bears on it.
        effects: Each with its interval, in the order of its row; empty where one is not known.
        finding: More of it, shown on hovering.
    """

    status: str
    effects: tuple[str, ...] = ()
    finding: str = ""


@dataclass(frozen=True)
class ClaimRow:
    """One claim, beside what was found of it at every place.

    Attributes:
        claim: In words: a name, a colon, a sentence.
        effects: Names of what it rests on.
        signs: One for each column.
        key: Of the section it rests on.
    """

    claim: str
    effects: tuple[str, ...]
    signs: tuple[Sign, ...]
    key: str = ""


@dataclass(frozen=True)
class ClaimMatrix:
    """Claims by models and tasks.

    Attributes:
        caption: What it shows.
        columns: Models, each with the places where it was judged.
        rows: Claims.
        remarks: What signs cannot say, one or two lines each.
        whole: Place that sums the others up.
    """

    caption: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[ClaimRow, ...]
    remarks: tuple[str, ...] = ()
    whole: str = ""

    @property
    def ends(self) -> list[str]:
        """Of each column whether a model starts there, and whether it sums up."""
        return [
            "start " * (not i) + "whole" * (place == self.whole)
            for _, places in self.columns
            for i, place in enumerate(places)
        ]

    @property
    def full(self) -> bool:
        """True if every cell has room for its intervals; else those that sum up."""
        return len(self.ends) * sum(len(row.effects) for row in self.rows) <= MOST_INTERVALS


@dataclass(frozen=True)
class TokenValues:
    """A number per token, by which the text of a prompt can be coloured.

    Attributes:
        names: Of the rows, such as `17.5`.
        values: One number per row and token, 0 or more.
        quantity: What they are, such as `attention`.
        heads: (layer, head) of each row, where it has one.
        first: Row shown first.
    """

    names: tuple[str, ...]
    values: Float[Tensor, "row token"]
    quantity: str
    heads: tuple[tuple[int, int], ...] = ()
    first: int = 0


@dataclass(frozen=True)
class PromptText:
    """One prompt as text.

    Attributes:
        lead: Which prompt it is and what can be done with it.
        tokens: Text of every token.
        roles: Role of every token.
        ids: Id of every token; empty if not known.
        demos: Number of the demonstration of every token, None outside; empty if not known.
        marks: What a token is framed as, or ""; empty: none is.
        coloured: Numbers by which it can be coloured.
        shared: Positions of tokens that hold signs of two roles.
    """

    lead: str
    tokens: tuple[str, ...]
    roles: tuple[str, ...]
    ids: tuple[int, ...] = ()
    demos: tuple[int | None, ...] = ()
    marks: tuple[str, ...] = ()
    coloured: TokenValues | None = None
    shared: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """One numbered section: a question, its answer, a figure and where its numbers come from.

    Attributes:
        name: The heading.
        sentence: The answer.
        figure: A plotly figure, a shape that is drawn as one or as an HTML table, the text of a
            prompt, or None.
        provenance: Model, task, seed, versions and variants.
        caption: What is drawn.
        establishes: What follows from it.
        limits: What does not.
        short: The heading in the contents; empty: the heading.
        key: Of the result, for links; empty: from the heading.
        numbers: What the CSV file and the table hold; None: there is neither.
        definitions: Formulas.
        layered: Its horizontal axis are the layers that sliders choose from.
        first: It stands on the first level. Where any section does, all others are folded, as an appendix.
    """

    name: str
    sentence: str
    figure: "go.Figure | Shape | PromptText | None"
    provenance: dict[str, Any]
    caption: str = ""
    establishes: str = ""
    limits: str = ""
    short: str = ""
    key: str = ""
    numbers: "pd.DataFrame | None" = None
    definitions: Sequence[Definition] = ()
    layered: bool = False
    first: bool = False

    def of(self, task: str) -> "Section":
        """The section on a page of several tasks."""
        short = f"{task}: {self.short or self.name}"
        key = f"{task}-{self.key or self.name}"
        return replace(self, name=f"{task}: {self.name}", short=short, key=key)


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Its heading, a question where there is one.
        sections: In reading order.
        kicker: Study and paper, above the heading.
        lead: The answer in at most two sentences, below the heading.
        origin: Verdicts, facts, command and limits.
        prompt: One prompt as text.
        about: Model, task and prompts in one line, below the heading.
        matrix: Claims by models and tasks; it stands in the place of the list of findings, which is folded.
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    lead: str = ""
    origin: Origin = field(default_factory=Origin)
    prompt: PromptText | None = None
    about: str = ""
    matrix: ClaimMatrix | None = None
