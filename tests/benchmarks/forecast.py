"""Forecast against truth: `python -m tests.benchmarks.forecast` (a quarter of an hour on a quiet core).

Each forecast and each run is a process of its own, with one thread. Time is that of the processor, so
that other work on the machine counts little; memory is the peak of the process. `--unfit` forecasts a
long prompt in a process that may have little more memory than the model takes, and then runs it there.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import torch

import icl_mech as icl
from tests.benchmarks.memory import long_prompt, peak

STUDIES = {"label_words": 16, "overthinking": 10, "causal": 12}
MODELS = ("smollm2-135m", "random Llama")
TASK = "reviews"
HEADER = """| model | study | token rows, forward + backward | processor time: forecast | run | ratio | peak memory: forecast | run | ratio |
|---|---|---|---|---|---|---|---|---|"""


def model_of(name: str) -> Any:
    """The offline model, or a Llama of 12 layers with random weights and its tokenizer."""
    if name != "random Llama":
        return icl.load_model(name)
    from transformers import LlamaConfig, LlamaForCausalLM

    from icl_mech.models.loading import load_tokenizer

    tokenizer = load_tokenizer("smollm2-135m")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=512, intermediate_size=1408, num_hidden_layers=12,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096,
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    return icl.load_model(LlamaForCausalLM(config).eval(), tokenizer=tokenizer)


def data_of(study: str, model: Any, n: int) -> Any:
    """Prompts of the study."""
    if study == "label_words":
        return icl.build_prompts(TASK, model, shots=1, n=n)
    return icl.build_prompt_pairs(TASK, model, shots=2, n=n, demonstrations="per_prompt")


def side(name: str, model_name: str, study: str) -> dict[str, Any]:
    """The forecast of a study or its truth, in this process."""
    model = model_of(model_name)
    data = data_of(study, model, STUDIES[study])
    start = time.process_time()
    found: Any = icl.analyze(model, data, study=study, plan=name == "forecast", progress=False)
    spent = time.process_time() - start
    if name == "run":
        return {"cpu": spent, "peak": peak()}
    (own,) = found.items
    about = {"rows": own.rows, "took": spent, "notes": own.notes, "fits": own.fits}
    return {"cpu": own.cpu_seconds, "peak": own.memory["cpu"], **about}


def unfit(name: str, tokens: int, room: float) -> None:
    """A flow of one long prompt in a process with so many GB more than the loaded model takes."""
    model = icl.load_model()
    prompts = long_prompt(model.cfg.d_vocab, tokens)
    # What is imported later, and a pool of numbers, would count too.
    short = icl.measure(
        model, long_prompt(model.cfg.d_vocab, 64), icl.measurements.Flow(), progress=False
    )
    short.flow.to_pandas()
    used = int(open("/proc/self/statm").read().split()[0]) * 4096  # noqa: SIM115, PTH123
    resource.setrlimit(resource.RLIMIT_AS, (used + int(room * 1e9), resource.RLIM_INFINITY))
    warnings.showwarning = lambda message, *_, **__: print(f"It warned: {message}")
    try:
        flow = icl.measurements.Flow()
        found = icl.measure(model, prompts, flow, plan=name == "forecast", progress=False)
        print(found if name == "forecast" else "It was run.")
    except icl.IclMechError as error:
        print(f"The run ended with {type(error).__name__}: {error}")


def apart(*words: str) -> dict[str, Any]:
    """What a process of its own prints last."""
    command = [sys.executable, "-m", "tests.benchmarks.forecast", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=("forecast", "run"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--studies", nargs="+", choices=tuple(STUDIES), default=tuple(STUDIES))
    parser.add_argument("--unfit", action="store_true")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--room", type=float, default=0.3, help="GB beyond the loaded model")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.unfit and given.side:
        unfit(given.side, given.tokens, given.room)
        return
    if given.unfit:
        for name in ("forecast", "run"):
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.forecast",
                *sys.argv[1:],
                "--side",
                name,
            ]
            subprocess.run(command, check=True)
        return
    if given.side:
        print(json.dumps(side(given.side, given.models[0], given.studies[0])))
        return
    print(HEADER)
    for model in given.models:
        for study in given.studies:
            own, true = (
                apart("--side", name, "--models", model, "--studies", study)
                for name in ("forecast", "run")
            )
            rows = own["rows"]
            print(
                f"| {model} | {study} | {rows['forward']:,} + {rows['backward']:,} "
                f"| {own['cpu']:.0f} s | {true['cpu']:.0f} s | {own['cpu'] / true['cpu']:.2f} "
                f"| {own['peak'] / 1e9:.2f} GB | {true['peak'] / 1e9:.2f} GB "
                f"| {own['peak'] / true['peak']:.2f} |",
                flush=True,
            )
            print(f"  (the forecast took {own['took']:.0f} s; {own['notes']})", file=sys.stderr)


if __name__ == "__main__":
    main()
