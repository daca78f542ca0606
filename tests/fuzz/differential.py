"""Random cases against the plain path: `python -m tests.fuzz.differential MINUTES [FIRST SEED]`.

A case is drawn from its seed: a family, weights, prompts (lengths, label words, shared beginnings, early
targets), interventions, options, and something that happens: hooks of the user's, weights changed in
place, results kept in a folder, another thread, prompts chosen by masks. What the package says is held
against `plain`. A log of kinds, failures and seeds is printed; failures belong into `KEPT`.
"""

import random
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.interventions import Isolate, Reweight, ZeroHeads, ZeroLayers
from icl_mech.measurements import Extraction, Flow, Lens, Predict, Saliency
from icl_mech.prompts import Prompt, PromptBatch
from tests.fuzz.plain import Plain, flow, parts_of
from tests.tiny import tiny_hf, tiny_tokenizer, tokenizer_kind

KEPT = ()
"""Seeds that failed once."""

FAMILIES = ("gpt2", "llama", "neox", "gemma3")
EVENTS = ("none", "none", "hook", "weights", "kept", "mask", "thread", "settings")
QUANTITIES = ("predict", "flow", "maps", "extraction", "lens")
ALLOWED = {"float32": 2e-4, "float64": 1e-4}  # the plain path takes norms in float32


@dataclass
class Case:
    """What was drawn."""

    seed: int
    family: str
    dtype: str
    event: str
    quantity: str
    options: dict
    interventions: list
    prompts: PromptBatch
    told: list = field(default_factory=list)

    def __str__(self):
        edits = ", ".join(map(repr, self.interventions))
        return (
            f"seed {self.seed}: {self.family} {self.dtype}, {self.event}, {self.quantity}, "
            f"{self.options}, [{edits}], lengths {self.prompts.lengths.tolist()} {' '.join(self.told)}"
        )


@lru_cache
def pooled(family, dtype):
    """A model that nothing happens to."""
    return made(family, dtype)


def made(family, dtype, seed=0):
    """A Hugging Face model, and the library's around it; weights of the copy are the same."""
    inner = tiny_hf(family, seed).to(getattr(torch, dtype))
    plain = Plain(inner)
    plain.theirs = dict(inner.named_parameters())  # before a bridge renames them
    return inner, plain, icl.load_model(inner, tokenizer=tiny_tokenizer(tokenizer_kind(family)))


def drawn(seed):
    """The case of a seed."""
    chance = random.Random(seed)
    family = chance.choice(FAMILIES)
    vocabulary = len(tiny_tokenizer(tokenizer_kind(family)))
    classes = chance.randint(2, 4)
    labels = chance.sample(range(5, vocabulary), classes)
    demos = chance.randint(1, 4)
    shared = chance.random() < 0.6
    common = _beginning(chance, vocabulary, labels, demos)
    prompts = []
    for _ in range(chance.randint(1, 5)):
        tokens, places, shown = common if shared else _beginning(chance, vocabulary, labels, demos)
        query = [chance.randrange(5, vocabulary) for _ in range(chance.randint(2, 9))]
        whole = [*tokens, *query]
        behind = chance.choice([0, 0, 0, 1, 2]) if len(query) > 3 else 0
        prompts.append(
            Prompt.from_positions(
                whole,
                label_positions=places,
                label_classes=shown,
                label_tokens=labels,
                answer=chance.randrange(classes),
                target=len(whole) - 1 - behind,
            )
        )
    batch = PromptBatch(tuple(prompts))
    options = {"progress": False}
    if chance.random() < 0.5:
        options["batch_size"] = chance.randint(1, 3)
    if chance.random() < 0.4:
        options["path"] = "whole"
    if chance.random() < 0.2:
        options["memory"] = "1GB"
    event = chance.choice(EVENTS)
    if event == "settings" and family == "gpt2":
        event = "none"  # a bridge computes layer norm itself, with the epsilon it was made with
    return Case(
        seed, family, chance.choice(["float32", "float32", "float64"]), event,
        "predict" if event == "thread" else chance.choice(QUANTITIES), options,
        _interventions(chance, batch), batch,
    )  # fmt: skip


def _beginning(chance, vocabulary, labels, demos):
    tokens, places, shown = [1], [], []
    for _ in range(demos):
        tokens += [chance.randrange(5, vocabulary) for _ in range(chance.randint(2, 6))]
        shown.append(chance.randrange(len(labels)))
        places.append(len(tokens))
        tokens.append(labels[shown[-1]])
    return tokens, places, shown


def _interventions(chance, batch):
    found = []
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        kind = chance.randrange(5)
        at = chance.choice(["target", "all"])
        heads = list({(chance.randrange(3), chance.randrange(4)) for _ in range(2)})
        layers = sorted(chance.sample(range(3), chance.randint(1, 3)))
        if kind == 0:
            found.append(Isolate(layers, mode=chance.choice(["mask", "zero"])))
        elif kind == 1:
            places = [
                tuple(sorted(chance.sample(range(1, prompt.target + 1), 2))) for prompt in batch
            ]
            found.append(Isolate(layers, positions=places))
        elif kind == 2:
            beta = torch.randn(3, 4, batch.n_labels, generator=torch.Generator().manual_seed(1))
            found.append(Reweight(beta))
        elif kind == 3:
            how = chance.choice(["zero_output", "uniform_attention"])
            found.append(ZeroHeads(heads, kind=how, at=at))
        else:
            found.append(ZeroLayers(layers[-1], part=chance.choice(["mlp", "block"]), at=at))
    return found


def gap_of(case):
    """How far the package is off, relative to the largest value; None: it was refused."""
    fresh = case.event in ("hook", "weights", "kept", "settings")
    inner, plain, model = (made if fresh else pooled)(case.family, case.dtype)
    chance = random.Random(case.seed + 1)
    prompts, edits = case.prompts, case.interventions
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        options = dict(case.options)
        if case.event == "kept":
            options["out"] = folder
        if case.event in ("weights", "kept", "settings"):
            asked(case, model, prompts, options)  # what might go stale
            (_settings if case.event == "settings" else _weights)(chance, inner, plain, case)
        elif case.event == "hook":
            _hook(chance, inner, plain, case)
        if case.event == "mask":
            mask = [chance.random() < 0.5 for _ in prompts]
            mask[chance.randrange(len(mask))] = True
            numbers = [number for number, chosen in enumerate(mask) if chosen]
            given = chance.choice([mask, torch.tensor(mask), numbers, torch.tensor(numbers)])
            edits = [own for own in edits if not own.by_number]
            case.interventions[:] = edits
            expected = _plainly(
                case, plain, PromptBatch(tuple(prompts.prompts[i] for i in numbers))
            )
            prompts = prompts[given]
        else:
            expected = _plainly(case, plain, prompts)
        if case.event == "thread":
            found = _beside(case, model, prompts, options)
        else:
            found = asked(case, model, prompts, options)
    gap = 0.0
    for one, other in zip(found, expected, strict=True):
        gap = max(
            gap, float((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-3))
        )
    return gap


def asked(case, model, prompts, options):
    """What the package says, one tensor per prompt."""
    measurement = {
        "predict": Predict(), "flow": Flow(loss="label"), "maps": Saliency(loss="label"),
        "extraction": Extraction(truth="gold"), "lens": Lens(),
    }[case.quantity]  # fmt: skip
    report = icl.measure(model, prompts, measurement, interventions=case.interventions, **options)
    (result,) = report.results.values()
    if case.quantity == "maps":
        return list(result.values)
    name = {"flow": "per_prompt", "extraction": "attention"}.get(case.quantity, "label_logits")
    return list(getattr(result, name))


def _plainly(case, plain, prompts):
    gradient = case.quantity in ("flow", "maps")
    found = []
    for number, prompt in enumerate(prompts):
        read = plain.run(prompt, case.interventions, number, gradient=gradient)
        first = [words[0] for words in prompt.label_words]
        if case.quantity == "predict":
            found.append(read["logits"][first])
        elif case.quantity == "lens":
            logits = plain.lens(read["residuals"])[:, first]
            logits[-1] = read["logits"][first]
            found.append(logits)
        elif case.quantity == "extraction":
            rows = torch.stack([own.sum(0)[prompt.target] for own in read["patterns"]])
            own = torch.zeros(len(rows), len(first), dtype=torch.float64)
            for place, label in zip(prompt.label_positions, prompt.label_classes, strict=True):
                own[:, label] += rows[:, place]
            found.append(own)
        elif case.quantity == "flow":
            found.append(flow(read["saliency"], prompt))
        else:
            found.append(read["saliency"])
    return found


def _hook(chance, inner, plain, case):
    """A hook that looks at positions, on a block's MLP."""
    layer, place = chance.randrange(3), chance.randrange(1, 6)
    case.told.append(f"MLP {layer} at {place}")

    def hook(_, __, output):
        edited = output.clone()
        edited[:, place] *= 3
        return edited

    for own in (inner, plain.model):
        parts_of(own)[0][layer].mlp.register_forward_hook(hook)


def _weights(chance, inner, plain, case):
    """Another weight, changed in place: through `.data`, by an optimiser's step, or exchanged."""
    # A bridge computes with parts of fused weights, which are copies or views of them.
    fused = ("query_key_value", "c_attn")
    names = [
        name
        for name, own in plain.model.named_parameters()
        if own.numel() > 1 and not any(own_name in name for own_name in fused)
    ]
    name, how = chance.choice(names), chance.choice(["data", "step", "loaded"])
    case.told.append(f"{name} by {how}")
    own = dict(plain.model.named_parameters())[name]
    noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(3)).double()
    theirs = plain.theirs[name]
    change = (noise * 0.3).to(theirs.dtype)
    if how == "data":
        theirs.data += change
    elif how == "step":
        with torch.no_grad():
            theirs.add_(change)
    else:
        theirs.data = theirs.detach().clone() + change
    with torch.no_grad():
        own.copy_(theirs.double())


def _settings(chance, inner, plain, case):
    """Another epsilon in the final norm."""
    case.told.append("epsilon of the final norm")
    for own in (inner, plain.model):
        norm = parts_of(own)[1]
        norm = getattr(norm, "_original_component", norm)
        name = next(n for n in ("eps", "variance_epsilon") if hasattr(norm, n))
        setattr(norm, name, 0.5)


def _beside(case, model, prompts, options):
    """Several calls while another thread isolates, of which the worst counts."""
    stop = threading.Event()

    def other():
        while not stop.is_set():
            icl.predict(model, prompts, interventions=[Isolate([0, 1, 2])], progress=False)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        first = asked(case, model, prompts, options)
        for _ in range(5):
            again = asked(case, model, prompts, options)
            if any(not torch.equal(a, b) for a, b in zip(first, again, strict=True)):
                return [own + 1e3 for own in again]
    finally:
        stop.set()
        thread.join()
    return first


def judged(seed):
    """Outcome of a case, and a line about it if it is a failure."""
    case = drawn(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gap = gap_of(case)
    except IclMechError as error:
        # Only what has a reason: kept results of another model, hooks where they cannot be.
        fair = case.event in ("kept", "hook", "settings") or "changed nothing" in str(error)
        return (case.event, "refused") if fair else (case.event, f"FAILED {case}: refused: {error}")
    except Exception as error:  # noqa: BLE001 - what is looked for
        return case.event, f"FAILED {case}: {type(error).__name__}: {str(error)[:300]}"
    if not gap <= ALLOWED[case.dtype]:
        return case.event, f"FAILED {case}: off by {gap:.2g}"
    return case.event, "right"


def run(seconds, first=0):
    """Cases for so long: counts by event and outcome, and lines of failures."""
    until, counts, failures, seed = time.monotonic() + seconds, Counter(), [], first
    while time.monotonic() < until:
        event, outcome = judged(seed)
        if outcome.startswith("FAILED"):
            failures.append(outcome)
            outcome = "FAILED"
        counts[event, outcome] += 1
        seed += 1
    return counts, failures


def main(minutes, first="0"):
    torch.set_num_threads(1)
    counts, failures = run(60 * float(minutes), int(first))
    lines = [f"{sum(counts.values())} cases in {minutes} minutes, seeds from {first}"]
    lines += [f"{event}: {outcome} {count}" for (event, outcome), count in sorted(counts.items())]
    sys.stdout.write("\n".join([*lines, *failures]) + "\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
