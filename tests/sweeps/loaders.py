"""Models for workers of sweeps: functions of a module, as other processes need them."""

import os
import signal
import threading
import time
from functools import lru_cache
from pathlib import Path

from icl_mech import Example, Task, Template
from icl_mech.measurements import Predict
from tests.tiny import tiny_model

TEXTS = (
    "good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring",
    "the film was good", "a bad story", "nice Sports", "World Business", "boring film", "it was bad",
)  # fmt: skip

TASK = Task(
    "tiny",
    Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[:6])),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[6:])),
)
OTHER = Task("other", Template("{text} is: {label}"), ("World", "Business"), TASK.train, TASK.test)
PREDICT = (Predict(),)

LOADED: list[str] = []


@lru_cache
def tiny():
    """A model that is loaded once."""
    LOADED.append("gpt2")
    return tiny_model("gpt2")


def other():
    """Another one."""
    LOADED.append("neox")
    return tiny_model("neox")


def slow():
    """Like `tiny`, but every item takes a while, in which it can be killed."""
    time.sleep(float(os.environ.get("SLOW", "0")))
    return tiny()


def dying(folder, times):
    """Kills its process the first few times."""
    for number in range(times):
        marker = Path(folder) / str(number)
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return tiny()


def broken():
    """Fails."""
    raise ValueError("no such weights")


def hanging():
    """Does not come back for a while."""
    hanging.until.wait(float(os.environ.get("HANGING", "0")))
    return tiny()


hanging.until = threading.Event()
