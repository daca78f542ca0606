"""The contents of a page, before it is rendered as HTML."""

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
"""Possible outcomes for a claim; each has a symbol of a different shape."""

MOST_INTERVALS = 60
"""Maximum number of intervals in a claim matrix; in larger ones, single tasks show values only."""


@dataclass(frozen=True)
class Fact:
    """One entry of the list of facts.

    Attributes:
        name: Name of the fact.
        value: The fact.
        detail: Further detail, in lighter type.
    """

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim and its outcome.

    Attributes:
        claim: The claim in words; all texts may contain `**bold**`.
        status: One of `STATUSES`.
        finding: Effect, interval, comparison.
        key: Key of the section with its evidence.
        brief: Effect with interval and number of prompts in one line; empty: the finding.
        word: Text shown instead of the status, if the claim is a question.
    """

    claim: str
    status: str
    finding: str
    key: str = ""
    brief: str = ""
    word: str = ""


@dataclass(frozen=True)
class Origin:
    """Findings and facts about a run, shown before its sections.

    Attributes:
        findings: The paper's claims and their outcomes.
        facts: Model, task, prompts, versions.
        command: The call or command that makes the page.
        limits: Limitations of all sections.
    """

    findings: Sequence[Finding] = ()
    facts: Sequence[Fact] = ()
    command: str = ""
    limits: Sequence[str] = ()


@dataclass(frozen=True)
class Sign:
    """One cell of a claim matrix.

    Attributes:
        status: One of `STATUSES`; empty: there is no evidence.
        effects: Effects with intervals, in the order of the row; empty strings if unknown.
        finding: The finding in full, shown on hover.
    """

    status: str
    effects: tuple[str, ...] = ()
    finding: str = ""


@dataclass(frozen=True)
class ClaimRow:
    """One claim with its outcome for every model and task.

    Attributes:
        claim: The claim in words: a name, a colon, a sentence.
        effects: Names of the effects it requires.
        signs: One cell for each column.
        key: Key of the section with its evidence.
    """

    claim: str
    effects: tuple[str, ...]
    signs: tuple[Sign, ...]
    key: str = ""


@dataclass(frozen=True)
class ClaimMatrix:
    """Claims by models and tasks.

    Attributes:
        caption: What the matrix shows.
        columns: Models, each with the tasks on which claims were judged.
        rows: Claims.
        remarks: Remarks that do not fit into cells, one or two lines each.
        whole: Name of the column that pools the others.
    """

    caption: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[ClaimRow, ...]
    remarks: tuple[str, ...] = ()
    whole: str = ""

    @property
    def ends(self) -> list[str]:
        """CSS classes of each column: `start` if a model starts there, `whole` if it pools the tasks."""
        return [
            "start " * (not i) + "whole" * (place == self.whole)
            for _, places in self.columns
            for i, place in enumerate(places)
        ]

    @property
    def full(self) -> bool:
        """True if every cell has room for its intervals; otherwise only pooled columns show them."""
        return len(self.ends) * sum(len(row.effects) for row in self.rows) <= MOST_INTERVALS


@dataclass(frozen=True)
class TokenValues:
    """Rows of one number per token, by which the text of a prompt can be coloured.

    Attributes:
        names: Names of the rows, such as `17.5`.
        values: One number per row and token, 0 or more.
        quantity: Meaning of the values, such as `attention`.
        heads: (layer, head) of each row, if rows are heads.
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
        lead: Which prompt it is and how the reader can explore it.
        tokens: Text of every token.
        roles: Role of every token.
        ids: Id of every token; empty if not known.
        demos: Index of the demonstration of every token, None outside; empty if not known.
        marks: Label of the frame of each token, or ""; empty: no frames.
        coloured: Values by which it can be coloured.
        shared: Positions of tokens with characters of two roles.
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
    """One numbered section: a question, its answer, a figure and the provenance of its numbers.

    Attributes:
        name: The heading.
        sentence: The answer.
        figure: A plotly figure, a shape drawn as a figure or as an HTML table, the text of a
            prompt, or None.
        provenance: Model, task, seed, versions and variants.
        caption: What is drawn.
        establishes: Conclusions that follow from the result.
        limits: Conclusions that do not follow from it.
        short: The heading in the contents; empty: the heading.
        key: Key of the result, for links; empty: derived from the heading.
        numbers: Contents of the CSV file and the table; None: there is neither.
        definitions: Formulas.
        layered: Its horizontal axis shows the layers that sliders select.
        first: It belongs to the main part. If any section does, all others are folded, as an appendix.
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
        """The section renamed for a page of several tasks."""
        short = f"{task}: {self.short or self.name}"
        key = f"{task}-{self.key or self.name}"
        return replace(self, name=f"{task}: {self.name}", short=short, key=key)


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Its heading, usually a question.
        sections: Sections in reading order.
        kicker: Study and paper, above the heading.
        lead: The answer in at most two sentences, below the heading.
        origin: Findings, facts, command and limitations.
        prompt: One prompt as text.
        about: Model, task and prompts in one line, below the heading.
        matrix: Claims by models and tasks, shown instead of the list of findings, which is folded.
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    lead: str = ""
    origin: Origin = field(default_factory=Origin)
    prompt: PromptText | None = None
    about: str = ""
    matrix: ClaimMatrix | None = None
