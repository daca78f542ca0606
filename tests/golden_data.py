"""The golden prompts and arrays of both papers' reference code, as this package's objects."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from icl_mech import Prompt, PromptBatch, load_model

FOLDER = Path(__file__).parent / "golden"
LABEL_WORDS = FOLDER / "label_words"
OVERTHINKING = FOLDER / "overthinking"
CAUSAL = FOLDER / "causal_heads"


@lru_cache
def golden_model(study: str, name: str):
    return load_model(str(FOLDER / study / name))


@lru_cache
def document(study: str, name: str):
    return json.loads((FOLDER / study / name).read_text())


@lru_cache
def arrays(study: str, name: str):
    return np.load(FOLDER / study / name)


def label_words_prompts(name: str) -> PromptBatch:
    """One prompt set of the label-words goldens, e.g. `saliency/sst2_s1`."""
    data = document("label_words", "data.json")
    task = name.split("/")[1].split("_")[0]
    tokens = data["tasks"][task]["label_token_ids"]
    return PromptBatch(tuple(_from_row(row, tokens) for row in data["prompt_sets"][name]))


def _from_row(row: dict, label_tokens: list[int]) -> Prompt:
    shown = sorted((p, c) for c, positions in enumerate(row["class_pos"]) for p in positions)
    return Prompt.from_positions(
        row["input_ids"],
        label_positions=[position for position, _ in shown],
        label_classes=[label for _, label in shown],
        label_tokens=label_tokens,
        answer=row["label"],
        target=row["final_pos"],
    )


def overthinking_prompts(config: str, kind: str) -> PromptBatch:
    """Prompts of one golden config (`true` or `false`), read before the last label."""
    data = document("overthinking", "prefixes.json")[config]
    rows = data[kind]
    prompts = []
    for row, ids in enumerate(rows["input_ids"]):
        spans = [indices[1:] for indices in rows["label_indx"][row]]
        prompts.append(
            Prompt.from_positions(
                ids,
                label_positions=[span[0] for span in spans],
                label_lengths=[len(span) for span in spans],
                label_classes=rows["labels"][row],
                label_tokens=data["lab_first_token_ids"],
                answer=data["true"]["labels"][row][-1],
                # The reference reads before the last label: what it displays is taught.
                false_answer=None if kind == "true" else rows["labels"][row][-1],
                target=rows["prec_label_indx"][row][-1],
            )
        )
    return PromptBatch(tuple(prompts))


def thought_anchors() -> "np.lib.npyio.NpzFile":
    """Numbers of the thought-anchors reference code, and sound ones beside them."""
    return arrays("any_text", "thought_anchors.npz")


def thought_anchors_prompts() -> PromptBatch:
    """Its three texts of random ids, with their sentences as spans."""
    data = thought_anchors()
    return PromptBatch(
        tuple(
            Prompt.from_spans(data[f"t{i}_input_ids"].tolist(), data[f"t{i}_spans"].tolist())
            for i in range(3)
        )
    )
