"""How often claims are supported on networks that learned nothing: small ones of four architectures.

    python -m tests.benchmarks.untrained_rates FOLDER [--networks 200] [--prompts 24] [--studies label_words causal]
    python -m tests.benchmarks.untrained_rates FOLDER --table

Each network is drawn from its number: architecture (tied and untied), task, shared or per-prompt
demonstrations. Its study is kept in FOLDER/STUDY-PROMPTS/NUMBER; the same command goes on where it was
stopped. The table judges what was kept, by the verdicts of now, beside null models of the same
architecture drawn with other seeds.
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.metrics import wilson_interval
from icl_mech.studies.claims import causal, label_words, overthinking

ARCHITECTURES = ("llama, tied", "llama, untied", "gpt2, tied", "neox, untied")
TASKS = ("headlines", "reviews")
DEMONSTRATIONS = ("shared", "per_prompt")
CLAIMS: Any = {"label_words": label_words, "overthinking": overthinking, "causal": causal}
STATUSES = ("supported", "opposite", "mixed", "not shown", "cannot be judged")
LAYERS, WIDTH, HEADS = 6, 64, 4


def setting(number: int) -> tuple[str, str, str, int]:
    """Architecture, task, demonstrations and seed of a network."""
    architecture = ARCHITECTURES[number % 4]
    task = TASKS[number // 4 % 2]
    return architecture, task, DEMONSTRATIONS[number // 8 % 2], number


def network(architecture: str, seed: int, tokenizer: Any) -> Any:
    """A new network with weights as its configuration initialises them."""
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig

    family, tied = architecture.split(", ")
    common = {"vocab_size": len(tokenizer), "tie_word_embeddings": tied == "tied"}
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

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    fresh.config._name_or_path = f"{architecture}, seed {seed}"
    return icl.load_model(fresh, tokenizer=tokenizer)


def measured(folder: Path, number: int, study: str, n: int, tokenizer: Any, nulls: int) -> Any:
    """The study of one network, from the folder if it is there."""
    place = folder / f"{study}-{n}" / f"{number:03d}"
    if (place / "analysis.json").is_file():
        return icl.load_analysis(place)
    architecture, task, demonstrations, seed = setting(number)
    model = network(architecture, seed, tokenizer)
    options: dict[str, Any] = {"n": n, "seed": seed, "demonstrations": demonstrations}
    prompts: Any
    if study == "label_words":
        prompts = icl.build_prompts(task, model, shots=1, **options)
    else:
        prompts = icl.build_prompt_pairs(task, model, shots=2, **options)
    chosen: Any = study
    report = icl.analyze(model, prompts, study=chosen, nulls=nulls, seed=seed, progress=False)
    report.save(place)
    return report


def table(folder: Path) -> Iterator[str]:
    """Rows of a table: study, n, claim, how often each status, rate of supported with its interval."""
    for own in sorted(folder.iterdir()):
        study, _, n = own.name.rpartition("-")
        counts: dict[str, Counter[str]] = {}
        for place in sorted(own.iterdir()):
            if not (place / "analysis.json").is_file():
                continue
            for verdict in CLAIMS[study].verdicts(icl.load_analysis(place).results):
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
    parser.add_argument("--studies", nargs="+", default=list(CLAIMS))
    parser.add_argument("--nulls", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tokenizer = icl.load_model().tokenizer
    for study in () if given.table else given.studies:
        for number in range(given.first, given.networks):
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
