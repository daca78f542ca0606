"""Prompts with roles and label words of two tokens, and plain sums over whole maps."""

from dataclasses import replace

import torch

from icl_mech.prompts import Prompt, PromptBatch, Span

LABEL_WORDS = ((301, 304), (302, 305), (303, 306))


def written(*parts, classes, answer=0, seed=0):
    """A prompt of random tokens from (role, number of tokens) in order."""
    spans, end = [], 0
    for role, size in parts:
        demo = sum(span.role == "label_word" for span in spans)
        inside = role in ("demo_text", "label_word")
        spans.append(Span(role, demo if inside else None, end, end + size))
        end += size
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, 300, (end,), generator=generator).tolist()
    labels = [span for span in spans if span.role == "label_word"]
    for span, label in zip(labels, classes, strict=True):
        word = LABEL_WORDS[label][: span.stop - span.start]
        tokens[span.start : span.start + len(word)] = word
    return Prompt(tuple(tokens), tuple(spans), classes, LABEL_WORDS, answer=answer)


def with_roles():
    """Three prompts of 10, 21 and 15 tokens; label words of one or two tokens."""
    return PromptBatch(
        (
            written(
                ("bos", 1), ("demo_text", 3), ("label_word", 2), ("format", 1), ("query_text", 2),
                ("target", 1), classes=(1,), answer=1, seed=1,
            ),
            written(
                ("bos", 1), ("demo_text", 4), ("format", 1), ("label_word", 2), ("format", 1),
                ("demo_text", 2), ("format", 1), ("label_word", 1), ("format", 2), ("demo_text", 1),
                ("label_word", 2), ("query_text", 2), ("target", 1), classes=(0, 2, 0), seed=2,
            ),
            written(
                ("demo_text", 4), ("label_word", 1), ("demo_text", 3), ("label_word", 2),
                ("query_text", 4), ("target", 1), classes=(2, 1), answer=2, seed=3,
            ),
        )
    )  # fmt: skip


def sharing():
    """Four prompts whose first fifteen tokens, two demonstrations, are the same."""
    head = (
        ("bos", 1), ("demo_text", 4), ("label_word", 2), ("format", 1), ("demo_text", 4),
        ("label_word", 1), ("format", 2),
    )  # fmt: skip
    prompts = [
        written(*head, ("query_text", size), ("target", 1), classes=(0, 2), answer=1, seed=size)
        for size in (3, 7, 2, 5)
    ]
    first = prompts[0].tokens[:15]
    return PromptBatch(tuple(replace(own, tokens=first + own.tokens[15:]) for own in prompts))


def roles_of(prompt):
    return [span.role for span in prompt.spans for _ in range(span.start, span.stop)]


def sums_of_map(values, roles, names):
    """`[dest role, src role, layer]`, cell by cell below the diagonal."""
    found = torch.zeros(len(names), len(names), len(values), dtype=torch.float64)
    for i in range(len(roles)):
        for j in range(i):
            found[names.index(roles[i]), names.index(roles[j])] += values[:, i, j].double()
    return found


def scores_of_map(values, places, target):
    """`[score, layer]` of tokens at these places, from the definition."""
    values, inside = values.double(), [place for place in places if 0 <= place < target]
    into = sum(values[:, p, :p].sum(1) for p in inside)
    out_of = sum(values[:, target, p] for p in inside)
    everything = values.tril(-1).sum((1, 2))
    edges = target * (target + 1) // 2 - sum(inside) - len(inside)
    return torch.stack(
        [into / sum(inside), out_of / len(inside), (everything - into - out_of) / edges]
    )
