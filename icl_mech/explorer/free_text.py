"""`Texts`: what free texts have in place of a task."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, get_args

from icl_mech.errors import PromptError
from icl_mech.measurements.any_answer import as_demonstrations
from icl_mech.measurements.passes import Options
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch, texts
from icl_mech.prompts.splitting import Unit
from icl_mech.tasks import Example

Passage = tuple[str, int | None]
"""A text, and its number in the set; None if typed in."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Free texts: no demonstrations, and no classes.

    Each prompt is scored against two tokens, as in all measurements of texts: the *followed* one (the next token of
    the text; where there is none, the likeliest one of the unchanged model), then the likeliest other one.

    Attributes:
        batch: Prompts of the set.
        model: The model that reads them.
        options: Arguments of `texts` with which it encodes them in the same way.
    """

    name: ClassVar[str] = "texts"
    labels: ClassVar[tuple[str, ...]] = ()
    is_open: ClassVar[bool] = False
    train: ClassVar[tuple[Example, ...]] = ()
    test: ClassVar[tuple[Example, ...]] = ()

    batch: PromptBatch
    model: LanguageModel
    options: dict[str, Any] = field(init=False)
    _scored: dict[Passage, Prompt] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Find out how the texts were encoded."""
        object.__setattr__(self, "options", _options(self.batch, self.model))

    @property
    def splitting(self) -> Unit | None:
        """Unit that the texts were split into; None if their spans or anchors were given."""
        rule = self.batch.source.get("spans")
        return next((unit for unit in get_args(Unit) if unit == rule), None)

    def prompts(self, passages: Sequence[Passage]) -> PromptBatch:
        """Prompts of texts of the set or typed in, with the two tokens they are scored against.

        Raises:
            PromptError: a text typed in is too long, or has fewer than two spans.
        """
        if not self._scored:
            numbered = [(prompt.text, number) for number, prompt in enumerate(self.batch)]
            self._score(numbered, self.batch)
        for passage in passages:
            if passage not in self._scored:
                spans = self.splitting or "sentences"
                self._score([passage], texts([passage[0]], self.model, spans=spans, **self.options))
        return PromptBatch(tuple(self._scored[passage] for passage in passages), self.batch.source)

    def forget(self) -> None:
        """Measure again which token follows: the model has changed."""
        self._scored.clear()

    def _score(self, passages: Sequence[Passage], plain: PromptBatch) -> None:
        (laid,) = as_demonstrations(self.model, (plain,), Options(progress=False))
        for passage, prompt, scored in zip(passages, plain, laid, strict=True):
            self._scored[passage] = replace(
                prompt,
                label_words=scored.label_words,
                labels=scored.labels,
                answer=0,
                kind="vocabulary",
            )


def _options(batch: PromptBatch, model: LanguageModel) -> dict[str, Any]:
    """How `texts` encodes the texts as these prompts do: beginning of text, and special tokens.

    Raises:
        PromptError: it does not.
    """
    written, pairs = [prompt.text for prompt in batch], [[(0, 1), (1, 2)]] * len(batch)
    usual: dict[str, Any] = {"special_tokens": "refuse", "bos": None}
    for special, bos in product(("refuse", "control", "text"), (None, True, False)):
        options = {**usual, "special_tokens": special, "bos": bos}
        with suppress(PromptError):
            built = texts(written, model, spans=pairs, unit="tokens", **options)
            if all(one.tokens == two.tokens for one, two in zip(built, batch, strict=True)):
                return {name: value for name, value in options.items() if value != usual[name]}
    raise PromptError(
        "These prompts differ from those that icl.texts builds from their text, so they cannot be edited; build "
        "them with icl.texts(texts, model)."
    )
