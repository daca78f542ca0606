"""A study that is stopped from outside: `python -m tests.studies.resumed FOLDER`.

Prints `begun` when measuring begins and `done` at the end.
"""

import sys

import torch

import icl_mech as icl
from icl_mech.measurements import Flow, Predict, SaliencyMaps
from tests.engine.test_paths import TASK
from tests.tiny import tiny_model

MEASUREMENTS = (
    Predict(),
    Flow(),
    Flow(loss="prediction"),
    Flow(loss="vocab"),
    Flow(reduction="abs_then_sum", loss="vocab"),
    SaliencyMaps(loss="vocab", first=40),
    Predict(score="sum"),
)


def say(word):
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(folder):
    torch.set_num_threads(1)
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=6)
    many = icl.PromptBatch(prompts.prompts * 20, prompts.source)
    say("begun")
    icl.measure(model, many, *MEASUREMENTS, out=folder, batch_size=1, progress=False)
    say("done")


if __name__ == "__main__":
    main(sys.argv[1])
