"""`icl-mech prompts`: prompts as text, with the role of every token, before anything is measured.

Only the tokenizer is loaded. Roles differ in style as well as in colour.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from icl_mech.cli.console import draw, say_json
from icl_mech.cli.inputs import (
    built_prompts,
    check_model,
    check_names,
    loaded_task,
    loaded_tokenizer,
)
from icl_mech.cli.options import AsJson, ModelOptions, Number, PromptOptions, TaskOptions, grouped

if TYPE_CHECKING:
    from icl_mech.prompts import Prompt, PromptBatch, Role

STYLES: "dict[Role, str]" = {
    "bos": "dim",
    "narrative": "italic",
    "format": "italic bright_black",
    "demo_text": "blue",
    "rationale": "cyan",
    "label_word": "bold red reverse",
    "query_text": "green underline",
    "target": "bold reverse",
    "unknown": "",
    "span": "",
}
NAMES: "dict[Role, str]" = {
    "bos": "beginning of text",
    "narrative": "narrative",
    "format": "template",
    "demo_text": "demonstration text",
    "rationale": "rationale",
    "label_word": "label word",
    "query_text": "query text",
    "target": "target",
    "unknown": "unknown",
    "span": "text in a span",
}


@dataclass(frozen=True)
class ShownPrompts(PromptOptions):
    """Prompt options as for a run, but with two prompts."""

    n: Number = 2


@grouped
def prompts(
    model: ModelOptions,
    task: TaskOptions,
    prompts: ShownPrompts,
    false: Annotated[
        bool,
        typer.Option(
            "--false",
            help="Show the false demonstrations of a pair, as built by the overthinking study.",
        ),
    ] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="One line for each token: position, id, text, role.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show prompts with the role of every token; the model's weights are not loaded."""
    check_names(model, task)
    check_model(model)
    chosen = loaded_task(task)
    tokenizer = loaded_tokenizer(model, quiet=json)
    built = built_prompts(chosen, tokenizer, prompts, pair=false)
    batch = built[1] if isinstance(built, tuple) else built
    limit = tokenizer.model_max_length
    context = limit if limit < 10**9 else None
    if json:
        say_json(_described(batch, context))
        return
    for number, prompt in enumerate(batch, start=1):
        draw(Text(f"Prompt {number} of {len(batch)}: {_answers(prompt)}", style="bold"))
        draw(_table(prompt) if tokens else coloured(prompt), *_notes(prompt), "")
    draw(_legend({role for p in batch for role, _ in _pieces(p)}), *_lengths(batch, context))


def coloured(prompt: "Prompt") -> Text:
    """The prompt as text, every token in the style of its role."""
    text = Text(no_wrap=False)
    for role, piece in _pieces(prompt):
        text.append(piece, STYLES[role])
    return text


def _pieces(prompt: "Prompt") -> "list[tuple[Role, str]]":
    words = prompt.pieces or tuple(f" {token}" for token in prompt.tokens)
    roles = [span.role for span in prompt.spans for _ in range(span.start, span.stop)]
    return list(zip(roles, words, strict=True))


def _answers(prompt: "Prompt") -> str:
    def word(label: int | None) -> str:
        return "unknown" if label is None else prompt.labels[label]

    false = (
        ""
        if prompt.false_answer in (None, prompt.answer)
        else (f", false answer {word(prompt.false_answer)}")
    )
    return f"{len(prompt)} tokens, answer {word(prompt.answer)}{false}"


def _notes(prompt: "Prompt") -> list[str]:
    """The candidates, and the tokens with characters of two roles."""
    follow = ", ".join(
        f"{candidate.text!r} {list(candidate.tokens)}"
        for candidate in prompt.candidates
        if candidate.text
    )
    notes = [f"Candidates, scored by {prompt.score}: {follow}"] if follow else []
    if prompt.shared_tokens:
        named = ", ".join(
            f"{prompt.pieces[position]!r} ({position})" for position in prompt.shared_tokens
        )
        notes.append(f"Tokens with characters of two roles: {named}")
    return notes


def _table(prompt: "Prompt") -> Table:
    table = Table(
        Column("position", justify="right"),
        Column("id", justify="right"),
        "token",
        "role",
        box=None,
    )
    for position, (token, (role, piece)) in enumerate(
        zip(prompt.tokens, _pieces(prompt), strict=True)
    ):
        table.add_row(str(position), str(token), Text(repr(piece), STYLES[role]), NAMES[role])
    return table


def _legend(roles: "Container[Role]") -> Text:
    legend = Text()
    shown = ("rationale",) if "rationale" in roles else ()
    for role in ("demo_text", *shown, "label_word", "format", "query_text", "target"):
        legend.append(NAMES[role], STYLES[role])
        legend.append("   ")
    return legend


def _lengths(batch: "PromptBatch", context: int | None) -> list[str]:
    lengths = sorted(len(prompt) for prompt in batch)
    counts = Counter(role for prompt in batch for role, _ in _pieces(prompt))
    parts = ", ".join(f"{counts[role] / len(batch):.4g} {NAMES[role]}" for role in counts)
    limit = "" if context is None else f"; the model's context is {context}"
    span = f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]}"
    return [f"{span} tokens per prompt{limit}. On average: {parts}."]


def _described(batch: "PromptBatch", context: int | None) -> dict[str, Any]:
    return {
        "labels": list(batch.labels),
        "context_length": context,
        "source": batch.source,
        "prompts": [
            {
                "answer": prompt.answer,
                "false_answer": prompt.false_answer,
                **({} if batch.has_classes else {"choices": list(prompt.labels)}),
                "ids": list(prompt.tokens),
                "tokens": [piece for _, piece in _pieces(prompt)],
                "roles": [role for role, _ in _pieces(prompt)],
                "label_classes": list(prompt.label_classes),
                "exact": prompt.exact,
                "text": prompt.text,
                "candidates": [candidate._asdict() for candidate in prompt.candidates],
                "score": prompt.score,
                "shared_tokens": list(prompt.shared_tokens),
            }
            for prompt in batch
        ],
    }
