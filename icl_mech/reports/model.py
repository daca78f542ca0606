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

STATUSES = ("supported", "mixed", "not shown", "opposite", "cannot be judged")
"""What can be found of a claim; each has a symbol of its own shape."""


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
    """

    claim: str
    status: str
    finding: str
    key: str = ""


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
class TokenValues:
    """A number per token, by which the text of a prompt can be coloured.

    Attributes:
        names: Of the rows, such as `17.5`.
        values: One number per row and token, 0 or more.
        quantity: What they are, such as `attention`.
        heads: (layer, head) of each row, where it has one.
    """

    names: tuple[str, ...]
    values: Float[Tensor, "row token"]
    quantity: str
    heads: tuple[tuple[int, int], ...] = ()


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
    """

    lead: str
    tokens: tuple[str, ...]
    roles: tuple[str, ...]
    ids: tuple[int, ...] = ()
    demos: tuple[int | None, ...] = ()
    marks: tuple[str, ...] = ()
    coloured: TokenValues | None = None


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
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    lead: str = ""
    origin: Origin = field(default_factory=Origin)
    prompt: PromptText | None = None
