"""The description of the present state sent to a page before anything is measured."""

from dataclasses import asdict
from typing import Any

from icl_mech.explorer import heads
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.changes import KINDS, spoken
from icl_mech.explorer.history import History

BEGINNING = 120
"""Number of characters of each query that the page lists."""


def chosen(stage: Stage) -> list[dict[str, Any]]:
    """The changes a drag over layers can make."""
    return [
        {
            "what": what,
            "words": spoken(KINDS[what].short, of_answers=stage.task.is_open),
            "needs": KINDS[what].needs or None,
        }
        for what in stage.ranged
    ]


def described(asker: Asker, history: History) -> dict[str, Any]:
    """Prompt, changes, kept states, and the possible actions."""
    stage, now, named = asker.stage, history.now, history.reference
    prompt = asker.prompts(now)[0]
    changes = [
        {
            **asdict(change),
            "token": change.position(prompt) if change.token is not None else None,
            "factor": change.factor if change.what == "reweight" else None,
            "words": change.words(of_answers=stage.task.is_open),
        }
        for change in now.changes
    ]
    kept = [
        {"name": name, "title": experiment.title(history.start)}
        for name, experiment in history.named
    ]
    return {
        "model": stage.info.name.split("/")[-1],
        "task": stage.task.name,
        "labels": asker.names(now),
        "open": stage.task.is_open,
        "texts": stage.of_texts,
        "demos": [asdict(demo) for demo in now.demos],
        "query": {**asdict(now.query), "of": len(stage.queries)},
        "queries": [
            {
                "text": query.text[:BEGINNING],
                "answer": query.answer,
                "label": (query.words or stage.task.labels)[query.answer].strip(),
            }
            for query in (() if stage.of_texts else stage.queries)  # no right answers, no board
        ],
        "tokens": asker.tokens(now),
        "layers": stage.info.n_layers,
        "heads": stage.info.n_heads,
        "changes": changes,
        "kinds": chosen(stage),
        "modes": heads.described(of_answers=stage.task.is_open, of_texts=stage.of_texts),
        "title": now.title(history.start),
        "started": now == history.start,
        "compared": now != history.compared,
        "undo": len(history.past) > 1,
        "redo": bool(history.future),
        "named": kept,
        "reference": {
            "index": named,
            "name": "start" if named is None else history.named[named][0],
        },
        "n": len(stage.queries),
        "shared": stage.shared,
        "lens": "" if stage.lens is None else stage.lens.called,
    }
