"""`Words`: the sentences of a method or a study, in a text file of Jinja blocks in `icl_mech/words`.

A block is rendered with its variables (`result`, ...), the filters of `FILTERS` and the definitions of `shared.jinja`.
Any run of white space becomes one space, removed before a comma, so that lines of a file may be broken anywhere;
`| verbatim` keeps the white space of words from prompts.
A file is read when its first sentence is needed; an unknown name raises an error (`StrictUndefined`).
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.results.judging import opening
from icl_mech.results.prompts import answer_kind, given
from icl_mech.results.wording import (
    NATURAL,
    counted,
    layers_named,
    listed,
    percent,
    resolved,
    said,
    share_of,
    spelled,
    told,
    told_bound,
)
from icl_mech.shapes import shortened

if TYPE_CHECKING:
    from jinja2 import Environment, Template

FOLDER = Path(__file__).parents[1] / "words"

KEPT = 0xF0000
"""Offset by which `verbatim` moves white space to private characters until the sentence is rendered."""

SPACE = re.compile(r"\s")
KEPT_SPACE = re.compile(f"[{chr(KEPT)}-{chr(KEPT + 0x3000)}]")

FILTERS: Mapping[str, Callable[..., Any]] = {
    "number": told,
    "signed": partial(told, sign=True),
    "interval": said,
    "difference": partial(said, sign=True),
    "resolved": resolved,
    "effect": partial(said, sign=True, scale=NATURAL),
    "bound": told_bound,
    "percent": percent,
    "count": counted,
    "share_of": share_of,
    "spelled": spelled,
    "list": listed,
    "given": given,
    "answer_kind": answer_kind,
    "shortened": shortened,
    "verbatim": lambda text: SPACE.sub(lambda blank: chr(KEPT + ord(blank.group())), text),
    "named": lambda key, names: names[key],
}
"""`0.25 | number`, `[…] | interval`, `12 | count("prompt")`, `names | list("or")`; `word | verbatim` keeps spaces."""

SPACED = re.compile(r" (?=[,.;:)])|(?<=\() ")
"""Spaces that conditions and loops leave before a comma."""

GLOBALS: Mapping[str, Callable[..., str]] = {"opening": opening, "layers": layers_named}


class Words:
    """The text file of one method or study.

    Attributes:
        stem: Its name, without `.jinja`.
    """

    def __init__(self, stem: str) -> None:
        """Select the file by name; it need not exist."""
        self.stem = stem

    def __contains__(self, block: str) -> bool:
        """True if the file has this block."""
        template = _template(self.stem)
        return template is not None and block in template.blocks

    def say(self, block: str, **about: Any) -> str:
        """A block as a sentence.

        Raises:
            KeyError: the file does not have it.
        """
        template = _template(self.stem)
        if template is None or block not in template.blocks:
            raise KeyError(f"icl_mech/words/{self.stem}.jinja has no block {block!r}.")
        context = template.new_context(about)
        text = " ".join("".join(template.blocks[block](context)).split())
        return KEPT_SPACE.sub(lambda kept: chr(ord(kept.group()) - KEPT), SPACED.sub("", text))

    def optional(self, block: str, **about: Any) -> str:
        """The same; empty if the file does not have it."""
        return self.say(block, **about) if block in self else ""


@cache
def _template(stem: str) -> "Template | None":
    place = FOLDER / f"{stem}.jinja"
    return _environment().get_template(place.name) if stem and place.is_file() else None


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # Markdown, which pages escape
    )
    made.filters.update(FILTERS)
    made.globals.update(GLOBALS)
    shared = made.get_template("shared.jinja").module
    made.globals.update({name: getattr(shared, name) for name in dir(shared) if name[0] != "_"})
    return made
