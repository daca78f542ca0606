"""A small task and explorers of it on tiny models."""

import random
from contextlib import contextmanager
from functools import lru_cache

from icl_mech.explorer import Server, explore
from icl_mech.explorer.actions import Stage, act
from icl_mech.explorer.asking import Asker
from icl_mech.explorer.view import _first
from icl_mech.models import adapt
from icl_mech.prompts import build_prompts, texts
from icl_mech.tasks import Example, Task, Template
from tests.patience import seconds, until
from tests.tiny import tiny_model

LABELS = ("World", "Sports", "Business")


def _examples(split, count):
    return tuple(
        Example(f"the {split} story {number} of a {label}", number % 3)
        for number, label in zip(range(count), ("river", "team", "price") * count, strict=False)
    )


TASK = Task(
    "stories",
    Template("Article: {text}\nTopic: {label}"),
    LABELS,
    _examples("first", 12),
    _examples("last", 9),
)


PAIRS = (
    "Review good Sentiment, Positive bad Negative, World and Sports, Business of Technology, "
    "Article is Answer, Question was Topic, Type movie Location, Person sport Number, "
    "Entity animal Description, Abbreviation plant Input, Output vegetable positive, the a negative"
)
"""Words that are one token in every tiny vocabulary: answer, text, answer of the other relation."""


def _pairs(split, rows, other=True):
    return tuple(
        Example(f"the {split} story of {text}", 0, None, (right, *also), false if other else None)
        for (right, text, false), also in zip(
            rows, (("Zebra",), (), ("Quiz", "Yes")) * 4, strict=True
        )
    )


def open_task(name="pairs", other=True):
    """A task with open answers, with another relation or without."""
    rows = [tuple(own.split()) for own in PAIRS.split(", ")]
    train, test = (_pairs(split, rows, other) for split in ("first", "last"))
    return Task(name, Template("Question: {text}\nAnswer: {label}"), (), train[:7], test[7:])


OPEN = open_task()


@lru_cache(maxsize=3)
def model_of(family="gpt2"):
    return tiny_model(family)


@lru_cache(maxsize=3)
def asked(family="gpt2"):
    """An asker, and the experiment it starts with."""
    model = model_of(family)
    adapted = adapt(model)
    start, queries, _ = _first(TASK, build_prompts(TASK, model, shots=1, n=6), adapted.tokenizer)
    return Asker(adapted, Stage(TASK, adapted.info, queries)), start


def opened_open(task=OPEN, family="gpt2", **options):
    """An explorer of open answers."""
    return explore(model_of(family), task, **{"n": 4, "shots": 3, "threads": 1, **options})


TEXTS = [
    "The first story of a river. It was a movie. The team is the price",
    "World and Sports. Business of Technology.\nArticle is Answer. Was",
    "A river is a river. A team is a team. A river is",
]


def opened_texts(family="gpt2"):
    """An explorer of free texts."""
    model = model_of(family)
    return explore(model, texts(TEXTS, model), threads=1)


def done(start, stage, *actions):
    """The experiment after some actions."""
    for action in actions:
        start, _ = act(start, action, stage)
    return start


def between(what, first, last, **more):
    return {"do": "range", "what": what, "from": first, "to": last, **more}


SAME = ("nothing", "patched behind the last block")
"""Which of `EVERY` change nothing."""

EVERY = {
    "nothing": [],
    "a flipped label": [{"do": "flip", "demo": 1}],
    "isolated label words": [between("isolate", 0, 1)],
    "isolated late": [between("isolate", 1, 2)],
    "cut to the target": [between("to_target", 1, 2)],
    "cut between demonstrations": [between("between", 0, 2)],
    "patched": [between("patch", 1, 1)],
    "patched behind the last block": [between("patch", 2, 2)],
    "re-weighted": [between("reweight", 0, 2, factor=2.5)],
    "a hidden demonstration": [between("hide", 0, 1, demo=1)],
    "an isolated token": [between("token", 0, 2, demo=0, token=3)],
    "an isolated token of the query": [between("token", 1, 2, demo=None, token=4)],
    "a head": [{"do": "head", "layer": 1, "head": 2}],
    "all at once": [
        {"do": "flip_all"},
        between("isolate", 0, 0),
        between("patch", 1, 1),
        between("hide", 1, 2, demo=0),
        {"do": "head", "layer": 2, "head": 0},
        between("reweight", 1, 2, factor=0.5),
        {"do": "drop", "demo": 1},
    ],
}
"""Actions by what they do."""


def random_action(rng: random.Random, experiment, layers=3, heads=4):
    """Something a hand could do, not always possible."""
    demo = rng.randrange(len(experiment.demos) + 1)
    ends = {"from": rng.randrange(layers), "to": rng.randrange(layers)}
    change = rng.randrange(len(experiment.changes) + 1)
    what = rng.choice(["isolate", "to_target", "between", "patch", "reweight", "hide", "token"])
    return rng.choice(
        [
            {"do": "flip", "demo": demo},
            {"do": "flip_all"},
            {"do": "edit", "demo": demo, "text": f"another story {rng.randrange(99)} of a movie"},
            {"do": "drop", "demo": demo},
            {"do": "move", "demo": demo, "by": rng.choice([-1, 1])},
            {"do": "add"},
            {"do": "answer", "demo": demo, "answer": "of classes there is none to type"},
            {"do": "query", "number": rng.randrange(-3, 12)},
            {
                "do": "ask",
                "text": f"a question {rng.randrange(99)} of a price",
                "answer": rng.randrange(3),
            },
            {
                "do": "range",
                "what": what,
                **ends,
                "demo": demo,
                "token": rng.randrange(4),
                "factor": 2.0,
            },
            {"do": "stretch", "change": change, **ends},
            {"do": "scale", "change": change, "factor": rng.choice([0.5, 1.0, 3.0])},
            {"do": "remove", "change": change},
            {"do": "head", "layer": rng.randrange(layers), "head": rng.randrange(heads)},
            {
                "do": "heads",
                "heads": [[rng.randrange(layers), rng.randrange(heads + 1)] for _ in range(2)],
            },
        ]
    )


class Page:
    """A transport that keeps what it hears."""

    def __init__(self, view):
        self.session, self.heard = view.session, []
        view.session.join(self.hear)

    def hear(self, message):
        self.heard.append(message)

    def do(self, action, **more):
        self.session.do({"do": action, **more}, self.hear)

    def settled(self):
        """Wait until nothing more is measured; what was heard."""

        def still():
            return self.heard and self.heard[-1] == {"kind": "busy", "part": None}

        until(still, 60, "the session to measure no more", lambda: f"heard: {self.kinds()[-5:]}")
        return self.heard

    def kinds(self):
        return [own["kind"] for own in self.heard]

    def parts(self):
        return {own["part"]: own["data"] for own in self.heard if own["kind"] == "part"}


def opened(family="gpt2", **options):
    return explore(model_of(family), TASK, n=6, threads=1, **options)


@contextmanager
def serving(view, **where):
    """A server of a view, in a thread of its own."""
    server = Server(view.session, **where)
    thread = server.start()
    try:
        until(lambda: server.server.started or not thread.is_alive(), 20, "the server")
        assert server.server.started, "the server ended"
        yield server
    finally:
        server.stop()
        thread.join(seconds(20))
