"""Prompts with rationales for tiny models, and the same numbers from plain Hugging Face."""

from functools import lru_cache
from typing import Any

import torch

import icl_mech as icl
from icl_mech import Example, Task, Template
from tests.tiny import tiny_hf, tiny_model

FAMILIES = ("gpt2", "llama", "neox")
LABELS = ("World", "Sports", "Business")
ROWS = [
    ("the home team won the match", "A match is a game. So it is a sport.", 1),
    ("stocks fell on Monday", "Stocks are a price. Prices are sold.", 2),
    ("rivers cross the country", "A country is a place. So it is a world.", 0),
    ("a faster chip was sold", "It was sold. Sold is a price.", 2),
    ("the film was a final game", "A game is played. So it is a sport.", 1),
    ("hope and courage of a country", "A country is far. It is a world.", 0),
    ("investors worried about a waste", "They worried. It is a price.", 2),
]
PATTERN = "Article: {text}\nBecause: {rationale}\nAnswer: {label}"
EXAMPLES = tuple(Example(text, label, rationale=why) for text, why, label in ROWS)
SHOWN, ASKED = EXAMPLES[:3], EXAMPLES[3:]
TASK = Task("reasons", Template(PATTERN, "\n\n"), LABELS, SHOWN, ASKED)


@lru_cache
def setting(family: str) -> tuple[Any, icl.PromptBatch]:
    """A tiny model and four prompts."""
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, demonstrations=list(SHOWN), queries=list(ASKED))
    return model, prompts


def text_of(shown: Any, text: str, rationale: str | None) -> str:
    """A prompt's text, up to the blank before its label, written by hand."""
    parts = [
        PATTERN.format(text=e.text, rationale=e.rationale, label=LABELS[e.label]) for e in shown
    ]
    because = "" if rationale is None else f"Because: {rationale}\n"
    return "\n\n".join([*parts, f"Article: {text}\n{because}Answer:"])


def interval(text: str, part: str) -> tuple[int, int]:
    """The characters of the last occurrence of a part."""
    start = text.rindex(part)
    return start, start + len(part)


def log_probs(family: str, text: str, cut: Any = None, *, hidden: bool = False) -> torch.Tensor:
    """Log-probabilities among the label words after a text, by Hugging Face; with `hidden` at every layer.

    The edges from the tokens of the characters `cut[1]` into those of `cut[0]` are masked.
    """
    hf = tiny_hf(family)
    tokenizer = tiny_model(family).tokenizer
    read = tokenizer(text, return_offsets_mapping=True)
    ids = read["input_ids"]
    words = [tokenizer(f"{text} {label}\n\n")["input_ids"] for label in LABELS]
    assert all(word[: len(ids)] == ids for word in words)
    first = [word[len(ids)] for word in words]
    size = len(ids)
    mask = torch.full((size, size), torch.finfo(torch.float32).min).triu(1)
    if cut is not None:
        rows, columns = (
            [n for n, (a, b) in enumerate(read["offset_mapping"]) if low < b and a < high and a < b]
            for low, high in cut
        )
        rows = [row for row in rows if row not in columns]
        mask[torch.tensor(rows)[:, None], torch.tensor(columns)] = torch.finfo(torch.float32).min
    with torch.no_grad():
        out = hf(torch.tensor([ids]), attention_mask=mask[None, None], output_hidden_states=True)
        if hidden:
            base = hf.base_model
            norm = getattr(
                base, "ln_f", getattr(base, "norm", getattr(base, "final_layer_norm", None))
            )
            states = [norm(state[0, -1]) for state in out.hidden_states[:-1]]
            states.append(out.hidden_states[-1][0, -1])
            logits = torch.stack([hf.get_output_embeddings()(state) for state in states])
        else:
            logits = out.logits[0, -1]
    return logits[..., first].double().log_softmax(-1)
