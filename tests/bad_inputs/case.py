"""What a bad input is."""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icl_mech as icl
from tests.engine.test_paths import TASK
from tests.tiny import tiny_model


@dataclass
class Bench:
    """What the calls use.

    Attributes:
        folder: Empty, for files.
    """

    folder: Path

    @functools.cached_property
    def model(self) -> Any:
        """A tiny GPT-2."""
        return _model()

    @functools.cached_property
    def prompts(self) -> icl.PromptBatch:
        """Four prompts of two classes."""
        return icl.build_prompts(TASK, self.model, shots=1, n=4)

    @functools.cached_property
    def pair(self) -> tuple[icl.PromptBatch, icl.PromptBatch]:
        """Prompts with true and with false labels."""
        return icl.build_prompt_pairs(TASK, self.model, shots=2, n=4)


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        what: In a few words.
        call: Makes the call that must be refused.
        error: The class of the error.
        says: Names and values in the message; the whole message stands in `tests/words/bad_inputs`.
    """

    what: str
    call: Callable[[Bench], object]
    error: type[icl.IclMechError]
    says: tuple[str, ...] = ()


@functools.lru_cache
def _model() -> Any:
    return tiny_model("gpt2")


def all_cases() -> dict[str, Case]:
    """Every case of the modules `cases_*.py` beside this one, by `module: what`."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("cases_"):
            for case in importlib.import_module(f"tests.bad_inputs.{module.name}").CASES:
                name = f"{module.name.removeprefix('cases_')}: {case.what}"
                assert name not in found, name
                found[name] = case
    return found
