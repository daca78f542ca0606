"""How often claims are supported on networks that learned nothing: small ones of four architectures.

    python -m tests.benchmarks.untrained_rates FOLDER [--networks 200] [--prompts 24] [--studies label_words causal]
    python -m tests.benchmarks.untrained_rates FOLDER --table

Each network is drawn from its number: architecture (tied and untied), task, shared or per-prompt
demonstrations. Its study is kept in FOLDER/STUDY-PROMPTS/NUMBER; the same command goes on where it was
stopped. The table judges what was kept, by the verdicts of now, beside null models of the same
architecture drawn with other seeds. Some claims are judged alone, from their own measurement: `reweighting`,
which needs 32 prompts of four classes, on the networks whose task is `headlines`; `contextualise`; and
`hand_over`, on up to so many of the pairs of all queries that the two runs answer differently, since it asks of
no others and few are. `hand_over_wide` is the same with weights ten times as large, where more are. `ends` takes
texts, five drawn texts of the task one after the other, and has no demonstrations.
"""

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.measurements import CompareCompression, EdgeCuts, Reweighting, Transplant
from icl_mech.metrics import wilson_interval
from icl_mech.studies import ANCHORS, CAUSAL, CONTEXTUALISE, LABEL_WORDS, OVERTHINKING
from icl_mech.studies.hand_over import HAND_OVER
from icl_mech.studies.judge import of_run

ARCHITECTURES = ("llama, tied", "llama, untied", "gpt2, tied", "neox, untied")
TASKS = ("headlines", "reviews")
DEMONSTRATIONS = ("shared", "per_prompt")
OF_HAND_OVER = SimpleNamespace(claims=[HAND_OVER])
CLAIMS: Any = {
    "label_words": LABEL_WORDS, "overthinking": OVERTHINKING, "causal": CAUSAL, "reweighting": LABEL_WORDS,
    "contextualise": CONTEXTUALISE, "hand_over": OF_HAND_OVER, "hand_over_wide": OF_HAND_OVER, "ends": ANCHORS,
}  # fmt: skip
ALONE: dict[str, Any] = {
    "reweighting": Reweighting,
    "contextualise": partial(EdgeCuts, edges=("contextualise", "exchange", "aggregate")),
    "hand_over": partial(Transplant, at=("anchors", "target"), layers=(2, 5), draws=2),
    "ends": partial(CompareCompression, ("hidden_anchor", "hidden_random")),
}
"""Measurements that a claim is judged by alone, with what it goes by."""
ALONE["hand_over_wide"] = ALONE["hand_over"]
WIDE = 0.2
"""Standard deviation of weights, in place of 0.02."""
QUERIES = 140
"""As many as every task here has."""
STATUSES = ("supported", "opposite", "mixed", "not shown", "cannot be judged")
LAYERS, WIDTH, HEADS = 6, 64, 4


def setting(number: int) -> tuple[str, str, str, int]:
    """Architecture, task, demonstrations and seed of a network."""
    architecture = ARCHITECTURES[number % 4]
    task = TASKS[number // 4 % 2]
    return architecture, task, DEMONSTRATIONS[number // 8 % 2], number


def network(architecture: str, seed: int, tokenizer: Any, deviation: float = 0.02) -> Any:
    """A new network with weights as its configuration initialises them."""
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig

    family, tied = architecture.split(", ")
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer), "tie_word_embeddings": tied == "tied", "initializer_range": deviation,
    }  # fmt: skip
    sizes = {
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": 4 * WIDTH, "max_position_embeddings": 512,
    }  # fmt: skip
    config: Any = {
        "llama": lambda: LlamaConfig(**sizes, **common),
        "gpt2": lambda: GPT2Config(
            n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=512, **common
        ),
        "neox": lambda: GPTNeoXConfig(**sizes, **common),
    }[family]()
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    fresh.config._name_or_path = f"{architecture}, seed {seed}"
    return icl.load_model(fresh, tokenizer=tokenizer)


def measured(folder: Path, number: int, study: Any, n: int, tokenizer: Any, nulls: int) -> Any:
    """The study of one network, from the folder if it is there."""
    place = folder / f"{study}-{n}" / f"{number:03d}"
    if (place / "analysis.json").is_file():
        return icl.Analysis.load(place)
    architecture, task, demonstrations, seed = setting(number)
    deviation = {"hand_over_wide": WIDE}.get(study, 0.02)
    model = network(architecture, seed, tokenizer, deviation)
    options: dict[str, Any] = {"n": n, "seed": seed, "demonstrations": demonstrations}
    prompts: Any
    if study in ("label_words", "reweighting", "contextualise"):
        prompts = icl.build_prompts(task, model, shots=1, **options)
    elif study == "ends":
        prompts = texts_of(model, task, n, seed)
    elif study.startswith("hand_over"):
        prompts = answered_differently(model, task, n, options | {"n": QUERIES})
    else:
        prompts = icl.build_prompt_pairs(task, model, shots=2, **options)
    if study in ALONE:
        report = icl.measure(model, prompts, ALONE[study](seed=seed), progress=False)
    else:
        report = icl.analyze(model, prompts, study=study, nulls=nulls, seed=seed, progress=False)
    report.save(place)
    return report


def texts_of(model: Any, task: str, n: int, seed: int) -> Any:
    """Texts of five sentences or more: drawn texts of the task, each ended by a period."""
    found = icl.load_task(task)
    own = [
        example.text + "." * (example.text[-1] not in ".!?")
        for example in (*found.train, *found.test)
    ]
    drawn = random.Random(seed)
    return icl.texts([" ".join(drawn.sample(own, 5)) for _ in range(n)], model)


def answered_differently(model: Any, task: str, n: int, options: dict[str, Any]) -> Any:
    """The first n pairs that are; if there is none, one that is not."""
    pair = icl.build_prompt_pairs(task, model, shots=1, **options)
    true, false = (icl.predict(model, own, progress=False).predicted for own in pair)
    chosen = (true != false).nonzero().flatten().tolist()[:n] or [0]
    return tuple(own[chosen] for own in pair)


def table(folder: Path) -> Iterator[str]:
    """Rows of a table: study, n, claim, how often each status, rate of supported with its interval."""
    for own in sorted(folder.iterdir()):
        study, _, n = own.name.rpartition("-")
        counts: dict[str, Counter[str]] = {}
        for place in sorted(own.iterdir()):
            if not (place / "analysis.json").is_file():
                continue
            for verdict in of_run(CLAIMS[study].claims, icl.Analysis.load(place)):
                counts.setdefault(verdict.claim.split(":")[0], Counter())[verdict.status] += 1
        for claim, statuses in counts.items():
            total = statuses.total()
            rate = wilson_interval(torch.arange(total) < statuses["supported"])
            each = " | ".join(str(statuses[status]) for status in STATUSES)
            ends = f"{100 * rate.value:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
            yield f"| {study.replace('_', ' ')} | {n} | {claim} | {total} | {each} | {ends} |"


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--studies", nargs="+", default=list(CLAIMS)[:3], choices=list(CLAIMS))
    parser.add_argument("--nulls", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tokenizer = icl.load_model().tokenizer
    for study in () if given.table else given.studies:
        for number in range(given.first, given.networks):
            if study == "reweighting" and setting(number)[1] != "headlines":
                continue
            start = time.monotonic()
            try:
                measured(given.folder, number, study, given.prompts, tokenizer, given.nulls)
            except IclMechError as error:
                print(number, "refused:", str(error)[:200], flush=True)
            print(number, setting(number)[:3], f"{time.monotonic() - start:.1f} s", flush=True)
    print(f"| study | n | claim | networks | {' | '.join(STATUSES)} | rate supported |")
    print("|---|---|---|---|" + "---|" * (len(STATUSES) + 1))
    print("\n".join(table(given.folder)))


if __name__ == "__main__":
    main()
