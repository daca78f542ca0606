"""Rationales on the offline model: what they add, sentence by sentence, and whether the answer is read from them.

Called as `pages` says. Settings: `comparisons` with its own rationales; the same with rationales that the model writes at the queries; `headlines`
and `questions`, whose demonstrations have rationales written by hand (one for each class) and whose queries those that the model
writes. One set of demonstrations for each seed. Values over the prompts of all seeds, with 95 % intervals over prompts, which
take the demonstrations as they are, and the seeds one by one.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements.rationales.rationale_answers import RationaleAnswersResult
from icl_mech.measurements.rationales.rationale_use import RationaleUseResult
from icl_mech.metrics import Interval
from icl_mech.prompts.rationales import rationale_of
from tests.benchmarks.pages import Cell, Kept, Page, of

SETTINGS = ("comparisons, true", "comparisons, written", "headlines, written", "questions, written")
DRAWS = 3
QUIET = {"progress": False}

BY_HAND: dict[str, dict[str, str]] = {
    "headlines": {
        "Hobbyists revive 1980s home computer. A kit using a programmable chip runs the original games "
        "and plugs into modern screens.": "It is about a computer and a chip. Computers are technology.",
        "Chad and Sudan agree to reopen border crossing for aid. Trucks loaded with grain could begin "
        "moving within a week, mediators said.": "It is about two countries. Countries are world news.",
        "Luxury handbag sales lose shine. The Paris house posted its first quarterly decline in four "
        "years as Chinese customers cut back.": "It is about sales of a company. Companies are business.",
        "Overtime dunk sinks Belgrade. The visitors erased a 17-point deficit in the last quarter before "
        "their center settled the game at the buzzer.": "It is about a game of two teams. Games are sports.",
    },
    "questions": {
        "In what Italian city did Romeo and Juliet fall in love?": "It asks for a city. A city is a location.",
        "Which heavyweight boxer lit the Olympic flame in Atlanta?": "It asks for a boxer. A boxer is a person.",
        "What is ECG short for on a patient's chart?": "It asks what letters mean. That is an abbreviation.",
        "What is the atomic mass of carbon?": "It asks for a mass. A mass is a number.",
        "What sea animal has three hearts and eight arms?": "It asks for an animal. An animal is an entity.",
        "How does a vaccine train the immune system?": "It asks how something works. That is a description.",
    },
}  # fmt: skip
"""Rationales of one training text of each class."""

INTO = {
    "headlines": "Article: {text}\nBecause: {rationale}\nAnswer: {label}",
    "questions": "Question: {text}\nBecause: {rationale}\nAnswer Type: {label}",
}
PENDING = "It says so."
"""Stands where the model writes."""


def prompts_of(setting: str, model: Any, seed: int, n: int) -> icl.PromptBatch:
    """Prompts of a setting."""
    name, _, kind = setting.partition(", ")
    if name == "comparisons":
        prompts = icl.build_prompts(name, model, shots=1, n=n, seed=seed)
    else:
        plain = icl.load_task(name)
        known = {example.text: example.label for example in plain.train}
        said = [icl.Example(t, known[t], rationale=why) for t, why in BY_HAND[name].items()]
        order = torch.randperm(len(said), generator=torch.Generator().manual_seed(seed)).tolist()
        asked = icl.build_prompts(plain, model, shots=0, n=n, seed=seed)
        queries = [prompt.examples()[1] for prompt in asked]
        task = icl.Task(
            name,
            icl.Template(INTO[name], "\n\n"),
            plain.labels,
            tuple(said),
            tuple(icl.Example(q.text, q.label, rationale=PENDING) for q in queries),
        )
        demonstrations = [said[place] for place in order]
        prompts = icl.build_prompts(
            task, model, demonstrations=demonstrations, queries=list(task.test)
        )
    if kind == "written":
        prompts = icl.write_rationales(model, prompts, max_new_tokens=32, **QUIET)
        prompts = prompts[[n for n, prompt in enumerate(prompts) if rationale_of(prompt)]]
    return prompts


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> dict[str, Any]:
    """The tensors of both results of one setting and seed, and the first rationales."""
    setting, seed = cell
    prompts = prompts_of(setting, model, seed, n)
    use: RationaleUseResult = icl.rationale_use(model, prompts, draws=DRAWS, **QUIET)
    answers: RationaleAnswersResult = icl.rationale_answers(model, prompts, lens=False, **QUIET)
    tensors = ("log_prob", "right", "cut", "random", "followed", "answers")
    return {
        "use": {name: getattr(use, name).tolist() for name in tensors},
        "contexts": use.contexts,
        "labels": use.labels,
        "status": use.status,
        "needed": {measure.name: measure.status for measure in use.needed},
        "log_prob": answers.log_prob.tolist(),
        "right": answers.right.tolist(),
        "lengths": answers.lengths.tolist(),
        "rationales": ["".join(rationale_of(prompt)) for prompt in prompts[:3]],
        "lost": n - len(prompts),
    }


def use_of(cells: Sequence[dict[str, Any]]) -> RationaleUseResult:
    """The result over the prompts of several cells, in the contexts that all have."""
    shared = [c for c in cells[0]["contexts"] if all(c in own["contexts"] for own in cells)]

    def joined(name: str) -> torch.Tensor:
        return torch.cat([torch.tensor(own["use"][name], dtype=torch.float64) for own in cells])

    def of_contexts(name: str) -> torch.Tensor:
        parts = []
        for own in cells:
            places = [own["contexts"].index(c) for c in shared]
            parts.append(torch.tensor(own["use"][name], dtype=torch.float64)[:, places])
        return torch.cat(parts)

    return RationaleUseResult(
        log_prob=of_contexts("log_prob"),
        right=of_contexts("right"),
        contexts=tuple(shared),
        cut=joined("cut"),
        random=joined("random"),
        paths=icl.measurements.rationales.rationale_use.PATHS,
        followed=joined("followed"),
        answers=joined("answers").long(),
        labels=tuple(cells[0]["labels"]),
    )


def answers_of(cells: Sequence[dict[str, Any]]) -> RationaleAnswersResult:
    """The other result over the prompts of several cells; shorter rationales are padded."""
    most = max(len(row) for own in cells for row in own["log_prob"])

    def padded(name: str) -> torch.Tensor:
        rows = [row + [torch.nan] * (most - len(row)) for own in cells for row in own[name]]
        return torch.tensor(rows, dtype=torch.float64)

    return RationaleAnswersResult(
        log_prob=padded("log_prob"),
        right=padded("right"),
        lengths=torch.tensor([length for own in cells for length in own["lengths"]]),
        answers=torch.tensor([a for own in cells for a in own["use"]["answers"]]),
        labels=tuple(cells[0]["labels"]),
    )


def told(interval: Interval | None) -> str:
    """`0.41 [0.20, 0.63]`."""
    if interval is None or interval.value != interval.value:
        return "–"
    return "{:.2f} [{:.2f}, {:.2f}]".format(*interval).replace("-", "−")


ROWS = {
    "none": "gain of the rationale (lost without it)",
    "other": "with that of another class",
    "shuffled": "with shuffled sentences",
    "demonstrations": "with exchanged rationales in the demonstrations",
    "cut rationale": "rationale → answer cut",
    "cut text": "text → answer cut",
    "cut text to rationale": "text → rationale cut",
}


def table(kept: Kept) -> str:
    """Losses, accuracies and statuses by setting, in Markdown."""
    cells = {setting: of(kept, setting) for setting in SETTINGS}
    cells = {setting: own for setting, own in cells.items() if own}
    uses = {setting: use_of(own) for setting, own in cells.items()}
    answers = {setting: answers_of(own) for setting, own in cells.items()}
    lines = ["| | " + " | ".join(f"{s} (n = {uses[s].count})" for s in uses) + " |"]
    lines.append("|---" * (1 + len(uses)) + "|")

    def row(name: str, values: Sequence[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(values) + " |")

    row(
        "accuracy with the rationale",
        [told(u.interval("accuracy", context="rationale")) for u in uses.values()],
    )
    row("accuracy without", [told(u.interval("accuracy", context="none")) for u in uses.values()])
    for change, name in ROWS.items():
        row(name, [told(u.lost(change)) if change in u.changes else "–" for u in uses.values()])
    row(
        "rationale → answer beyond random edges",
        [told(u.lost_beside("cut rationale")) for u in uses.values()],
    )
    row(
        "text → answer beyond random edges",
        [told(u.lost_beside("cut text")) for u in uses.values()],
    )
    row(
        "fraction of the gain lost: rationale cut",
        [told(u.fraction("cut rationale")) for u in uses.values()],
    )
    row(
        "fraction of the gain lost: another class",
        [told(u.fraction("other")) for u in uses.values()],
    )
    row("move to the other class", [told(u.interval("followed")) for u in uses.values()])
    row(
        "gain, by seed",
        [
            ", ".join(f"{use_of([own]).gain.value:.2f}".replace("-", "−") for own in cells[s])
            for s in uses
        ],
    )
    row("claim, all prompts", [u.status for u in uses.values()])
    row(
        "claim, by seed",
        [
            ", ".join(
                f"{n} {status}" for status, n in Counter(own["status"] for own in cells[s]).items()
            )
            for s in uses
        ],
    )
    for place in range(3):
        values = []
        for own in answers.values():
            there = place < own.log_prob.shape[1]
            values.append(told(own.interval("log_prob", prefix=place)) if there else "–")
        row(f"log P(right) after {place} sentences", values)
    lines += ["", "Rationales that the model wrote (the first of each setting, seed 0):", ""]
    for setting, own in cells.items():
        if setting.endswith("written"):
            lines.append(
                f"* {setting.split(',')[0]}: "
                + "; ".join(f"“{' '.join(r.split())}”" for r in own[0]["rationales"])
            )
    return "\n".join(lines) + "\n"


PAGE = Page(
    "rationales",
    measured,
    table,
    n=24,
    cells=lambda seeds: [(setting, seed) for seed in range(seeds) for setting in SETTINGS],
)

if __name__ == "__main__":
    PAGE.run()
