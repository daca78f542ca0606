"""Exactly one false demonstration: which label it displays at each place, and the prompts that display it.

Each prompt with one false label has a control with the same label words at every place, in which the demonstration is
exchanged for a correct one of the displayed class: the query of another prompt, with its label.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Int, Tensor
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.rewriting import Rewritten, exchanged, mislabelled, shown_words
from icl_mech.prompts.spans import Prompt


class OneFalse(NamedTuple):
    """What is displayed at each place.

    Attributes:
        prompts: The prompts with true demonstrations.
        places: Places of the false demonstration, from 0.
        shown: Class that the false demonstration displays.
        donors: Prompt whose query is exchanged in; -1 where there is none.
    """

    prompts: PromptBatch
    places: tuple[int, ...]
    shown: Int[Tensor, "batch place"]
    donors: Int[Tensor, "batch place"]

    def labels(self, column: int) -> Int[Tensor, "batch demo"]:
        """Classes that the demonstrations display with this place false, and with it exchanged."""
        classes = self.prompts.label_classes.clone()
        classes[:, self.places[column]] = self.shown[:, column]
        return classes

    def false(self, tokenizer: object | None) -> list[Rewritten]:
        """For each place, the prompts with its label false; only the reason where texts are unknown."""
        if not shown_words(self.prompts):
            return [Rewritten(None, "it is unknown which characters are label words")]
        return [
            mislabelled(self.prompts, tokenizer, place, self.shown[:, column].tolist())
            for column, place in enumerate(self.places)
        ]

    def exchanged(self, tokenizer: object | None) -> list[Rewritten]:
        """For each place, the prompts with its demonstration exchanged; only the reason if one cannot be written."""
        missing = self.donors < 0
        if bool(missing.any()):
            lacking = sorted({self.prompts.labels[label] for label in self.shown[missing].tolist()})
            return [Rewritten(None, f"no other query is of class {', '.join(lacking)}")]
        written = [
            exchanged(self.prompts, tokenizer, place, self.donors[:, column].tolist())
            for column, place in enumerate(self.places)
        ]
        return next(([refused] for refused in written if refused.prompts is None), written)


def one_false(prompts: PromptBatch, places: Sequence[int], seed: int) -> OneFalse:
    """False labels and exchanged texts.

    At each place the wrong classes that some demonstration displays are taken equally often (±1) for each pair of query
    class and true class of the demonstration. Texts that the prompt already holds are never exchanged in.

    Args:
        prompts: Prompts with demonstrations and answers.
        places: Places of the false demonstration, from 0.
        seed: Seed of the draws.
    """
    answers, there = prompts.answers.tolist(), sorted(set(prompts.label_classes.flatten().tolist()))
    shown, donors = torch.full((2, len(prompts), len(places)), -1).unbind(0)
    queries = [_texts(prompt, "query_text") for prompt in prompts]
    held = [queries[row] | _texts(prompt, "demo_text") for row, prompt in enumerate(prompts)]
    for column, place in enumerate(places):
        generator = np.random.default_rng([seed, place])
        used: dict[tuple[int, int], int] = {}
        for row in generator.permutation(len(prompts)).tolist():
            true = int(prompts.label_classes[row, place])
            wrong = [label for label in there if label != true]
            key = answers[row], true
            number = used.setdefault(key, int(generator.integers(len(wrong))))
            used[key] += 1
            false = wrong[number % len(wrong)]
            givers = [
                donor
                for donor, label in enumerate(answers)
                if label == false and not held[row] & queries[donor]
            ]
            shown[row, column] = false
            if givers:
                donors[row, column] = givers[int(generator.integers(len(givers)))]
    return OneFalse(prompts, tuple(places), shown, donors)


def _texts(prompt: Prompt, role: str) -> set[tuple[int, ...]]:
    """Tokens of the texts of a role."""
    return {prompt.tokens[span.start : span.stop] for span in prompt.spans if span.role == role}
