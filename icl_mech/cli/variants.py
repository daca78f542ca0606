"""Variants of a measurement as options: read from the fields of its dataclass and their types.

A field that cannot be written as text (prompts, interventions) has no option; a measurement that
requires such a field has no command.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from icl_mech.checking import AtLeast, Head
from icl_mech.errors import near_matches
from icl_mech.measurements import AnyMeasurement
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.published import is_published

PANEL = "Variants"


@dataclass(frozen=True)
class TextForm:
    """How values of a type are written.

    Attributes:
        read: Gives the value of a word; raises `ValueError` for an invalid one.
        example: Its placeholder in the help.
    """

    read: Callable[[str], Any]
    example: str


@dataclass(frozen=True)
class Variant:
    """One field of a measurement as an option.

    Attributes:
        field: Its name in Python.
        option: Its name on the command line.
        parameter: The parameter as typer reads it.
        form: How its text is read; None: typer reads it itself.
    """

    field: str
    option: str
    parameter: inspect.Parameter
    form: TextForm | None

    @property
    def needed(self) -> bool:
        """True if the measurement cannot be made without it."""
        return self.parameter.default is inspect.Parameter.empty

    def example(self) -> str:
        """A valid value."""
        form = self.form.example if self.form is not None else "1"
        return form.replace("LAYER.HEAD,...", "13.2,24.6").replace("LAYER.HEAD", "13.2")

    def value(self, given: object) -> Any:
        """The field's value.

        Raises:
            typer.BadParameter: the text cannot be read.
        """
        if self.form is None or not isinstance(given, str):
            return given
        try:
            return self.form.read(given)
        except ValueError:
            known = self.form.example
            near = near_matches(given.split(",")[0], known.removesuffix(",...").split("|"))
            message = (
                f"{given!r} cannot be read; expected {known}. {near * ('|' in known)}".rstrip()
            )
            raise typer.BadParameter(message, param_hint=self.option) from None


def variants_of(
    kind: type[AnyMeasurement[Any, Any]], taken: Collection[str]
) -> list[Variant] | None:
    """Options of a measurement; None if it needs a value that has no form as text.

    Args:
        kind: The measurement.
        taken: Options that all measurements have: `seed` is one for all, any other field of such a
            name is prefixed with the measurement's name.
    """
    hints, words = get_type_hints(kind, include_extras=True), documented(kind)
    variants: list[Variant] = []
    for item in fields(kind):
        if item.name == "seed":
            continue
        variant = _variant(kind, item, hints[item.name], words.get(item.name, ""), taken)
        if variant is not None:
            variants.append(variant)
        elif item.default is MISSING and item.default_factory is MISSING:
            return None
    return variants


def _variant(
    kind: type[AnyMeasurement[Any, Any]],
    item: "Field[Any]",
    hint: object,
    words: str,
    taken: Collection[str],
) -> Variant | None:
    name = item.name if item.name not in taken else f"{kind.name}_{item.name}"
    option = f"--{name.replace('_', '-')}"
    more: dict[str, Any] = {"help": words, "rich_help_panel": PANEL}
    form = None
    annotation, least = _plain_option(hint)
    default = ... if item.default is MISSING else item.default
    if annotation is None:
        form = text_form(hint)
        if form is None:
            return None
        annotation = str if default is ... else str | None
        more |= {"metavar": form.example}
        if default not in (None, ...):
            more |= {"show_default": _written(default) or "none"}
            default = None
    elif least is not None:
        more |= {"min": least}
    declared = typer.Option(**more)
    parameter = inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is ... else default,
        annotation=Annotated[annotation, declared],
    )
    return Variant(item.name, option, parameter, form)


def _plain_option(hint: object) -> tuple[Any, int | None]:
    """The type as typer reads it itself, with the least value; None for any other type."""
    least = None
    if get_origin(hint) in (Union, UnionType):
        inner = [kind for kind in get_args(hint) if kind is not NoneType]
        if len(inner) == 1 and len(inner) < len(get_args(hint)):
            annotation, least = _plain_option(inner[0])
            return (None if annotation is None else annotation | None), least
        return None, None
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        least = next((note.least for note in notes if isinstance(note, AtLeast)), None)
    simple = hint in (int, float, bool, str) or get_origin(hint) is Literal
    return (hint if simple else None), least


def text_form(hint: Any) -> TextForm | None:
    """How values of a type are written: `1,2,5`, `first,last`, `24.6,13.2` for heads, the folder of
    a saved lens.

    None for what cannot be written as one word: prompts, interventions, anything.
    """
    if hint == Head:
        return TextForm(_head, "LAYER.HEAD")
    if hint is FittedLens:
        return TextForm(_lens, "FOLDER")
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return text_form(args[0])
    if origin is Literal:
        return TextForm(_one_of(args), "|".join(map(str, args)))
    if origin in (Union, UnionType):
        return _any_form(args)
    if origin is Sequence:
        return _list_form(args[0])
    plain = {int: TextForm(int, "NUMBER"), float: TextForm(float, "NUMBER"), str: _NAME}
    return plain.get(hint)


def _lens(text: str) -> FittedLens | Path:
    """A saved lens; of a published one the place, since it is read for a model."""
    place = Path(text).expanduser()
    return place if is_published(place) else FittedLens.load(place)


_NAME = TextForm(str, "NAME")


def _list_form(hint: object) -> TextForm | None:
    entry = text_form(hint)
    if entry is None:
        return None
    read = entry.read
    return TextForm(
        lambda text: tuple(read(part.strip()) for part in text.split(",")), f"{entry.example},..."
    )


def _any_form(kinds: Sequence[Any]) -> TextForm | None:
    """The form of the first type that reads a word; a list stands for a single entry too."""
    forms = [form for kind in kinds if (form := text_form(kind))]
    known = [form.example for form in forms]
    single = [form for form in forms if f"{form.example},..." not in known]
    # Names come last: any text is one.
    tried = sorted(single, key=lambda form: form is _NAME)
    if not tried:
        return None

    def read(text: str) -> Any:
        *others, last = tried
        for form in others:
            with suppress(ValueError):
                return form.read(text)
        return last.read(text)

    return TextForm(read, " or ".join(form.example for form in tried))


def _head(text: str) -> tuple[int, int]:
    layer, dot, head = text.partition(".")
    if not dot:
        raise ValueError(text)
    return int(layer), int(head)


def _one_of(words: Sequence[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        for word in words:
            if str(word) == text:
                return word
        raise ValueError(text)

    return read


def _written(value: str | Iterable[object]) -> str:
    """A default as it would be typed."""
    return value if isinstance(value, str) else ",".join(map(str, value))


def documented(kind: type) -> dict[str, str]:
    """Descriptions of the fields of a dataclass in docstrings, inherited fields included."""
    descriptions: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        doc = inspect.cleandoc(vars(owner).get("__doc__") or "")
        _, _, below = doc.partition("Attributes:\n")
        section = re.split(r"\n\S", below)[0]
        for entry in re.split(r"\n(?=    \w)", f"\n{section}"):
            name, colon, words = entry.strip().partition(":")
            if colon and name.isidentifier():
                descriptions[name] = " ".join(words.split()).replace("`", "")
    return descriptions
