"""Results of an analysis as attributes; `parts.pyi`, made by `python -m tests.stub`, declares their types."""

from typing import Any

from icl_mech.errors import MissingResult, ResultError, near_matches
from icl_mech.names import key_now
from icl_mech.results import Result
from icl_mech.studies.study import known_studies


class Parts:
    """Results by name or type: `analysis.flow`, `analysis["flow"]`, `analysis[FlowScores]`."""

    results: dict[str, Result]

    def __getitem__(self, key: object) -> Any:
        """A result by its name, or the first of a type: `analysis[FlowScores]`.

        Raises:
            MissingResult: there is none.
        """
        if isinstance(key, str):
            name = key_now(key, self.results)
            if name in self.results:
                return self.results[name]
            raise self._missing(key)
        if not isinstance(key, type):
            raise self._missing(repr(key))
        for result in self.results.values():
            if isinstance(result, key):
                return result
        raise self._missing(key.__name__)

    def __getattr__(self, name: str) -> Any:
        """A result by its name, including results of custom measurements.

        Raises:
            MissingResult: there is none of that name.
            ResultError: its type is not the one that studies give under this name.
        """
        if name.startswith("__") or "results" not in vars(self):
            raise AttributeError(name)
        name = key_now(name, self.results)
        result = self[name]
        kinds = [study.gives[name] for study in known_studies().values() if name in study.gives]
        if kinds and not isinstance(result, tuple(kinds)):
            raise ResultError(
                f"The result {name!r} of this analysis is a {type(result).__name__}, but a "
                f"{kinds[0].__name__} was expected under this name; get it with analysis[{name!r}]."
            )
        return result

    def _missing(self, name: str) -> MissingResult:
        return MissingResult(
            f"This analysis has no result {name!r}; it holds {', '.join(self.results) or 'nothing'}. "
            f"{near_matches(name, self.results) if self.results else ''}".rstrip()
        )
