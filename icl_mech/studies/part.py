"""`Part`: a result of an analysis as an attribute of a known kind."""

from typing import Any, Generic, TypeVar, overload

from icl_mech.errors import ResultError
from icl_mech.results import Result

R = TypeVar("R", bound=Result)


class Part(Generic[R]):
    """An attribute of an analysis: the result of that name, of a known kind."""

    def __init__(self, kind: type[R]) -> None:
        self.kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the name."""
        self.name = name

    @overload
    def __get__(self, analysis: None, owner: type) -> "Part[R]": ...
    @overload
    def __get__(self, analysis: Any, owner: type) -> R: ...
    def __get__(self, analysis: Any, owner: type) -> "Part[R] | R":
        """The result.

        Raises:
            MissingResult: there is none of that name.
            ResultError: it is of another kind.
        """
        if analysis is None:
            return self
        result = analysis[self.name]
        if not isinstance(result, self.kind):
            raise ResultError(
                f"{self.name!r} of this analysis is a {type(result).__name__}, not a "
                f"{self.kind.__name__}; take it as analysis[{self.name!r}]."
            )
        return result
