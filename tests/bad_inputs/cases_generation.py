"""Bad arguments of generation and of the planted model."""

from typing import Any

import icl_mech as icl
from icl_mech.engine.writing import continued
from icl_mech.errors import IclMechError, ModelError, PromptError, RunError
from icl_mech.measurements import CompressContext
from icl_mech.models import adapt
from tests.bad_inputs.case import Bench, Case
from tests.tiny import tiny_model


def writing(what: str, *says: str, error: type[IclMechError] = RunError, **options: Any) -> Case:
    def call(b: Bench) -> object:
        return icl.generate(b.model, b.prompts, **options)

    return Case(f"generate with {what}", call, error, says)


def full(bench: Bench) -> icl.PromptBatch:
    """A prompt that ends where the context does."""
    room = adapt(bench.model).info.n_ctx - len(bench.prompts[0])
    return icl.PromptBatch((continued(bench.prompts[0], [5] * room),))


def elsewhere(bench: Bench) -> object:
    context = CompressContext()(tiny_model("gpt2", seed=1), bench.prompts[:1])
    return icl.generate(bench.model, bench.prompts[:1], context=context)


def wordless(bench: Bench) -> object:
    bare = tiny_model("gpt2", seed=2)
    bare.tokenizer = None
    return icl.generate(bare, PLAIN)


PLAIN = icl.PromptBatch(
    (
        icl.Prompt.from_positions(
            [5, 6, 7, 8], label_positions=[1], label_classes=[0], label_tokens=[10, 11]
        ),
    )
)


def again(bench: Bench) -> object:
    context = CompressContext()(bench.model, bench.prompts)
    return icl.generate(bench.model, bench.prompts, context=context, path="whole")


def other_changes(bench: Bench) -> object:
    context = CompressContext()(bench.model, bench.prompts)
    changes = [icl.Isolate([0])]
    return icl.generate(bench.model, bench.prompts, context=context, interventions=changes)


CASES = [
    Case("generate without a tokenizer", wordless, RunError),
    writing("no new tokens", "max_new_tokens=0", max_new_tokens=0),
    writing("fewer than none", "max_new_tokens", "-1", max_new_tokens=-1),
    writing("half a token", "max_new_tokens", "2.5", max_new_tokens=2.5),
    writing("a temperature of 0", "temperature=0", "above 0", do_sample=True, temperature=0.0),
    writing("a temperature below 0", "above 0", do_sample=True, temperature=-1.0),
    writing("a temperature that is no number", "temperature", temperature="hot"),
    writing("a temperature of infinity", "inf", do_sample=True, temperature=float("inf")),
    writing("a temperature that is nan", "nan", do_sample=True, temperature=float("nan")),
    writing("top_p of 0", "top_p=0", do_sample=True, top_p=0.0),
    writing("top_p above 1", "top_p=1.5", do_sample=True, top_p=1.5),
    writing("top_k of 0", "top_k", do_sample=True, top_k=0),
    writing("a temperature, greedy", "do_sample=True", temperature=0.5),
    writing("top_p, greedy", "do_sample=True", top_p=0.5),
    writing("an empty text to stop at", stop=[""]),
    writing("a token to stop at that is none", "token 99999", stop=99999),
    writing("a stop that is neither", "stop", stop=2.5),
    writing("a single intervention", interventions=icl.Isolate([0])),
    writing("a layer that is none", "layer 7", "0 to 2", interventions=[icl.Isolate([7])]),
    writing("more tokens than fit", error=PromptError, max_new_tokens=5000),
    Case(
        "generate behind a full context",
        lambda b: icl.generate(b.model, full(b), max_new_tokens=1),
        PromptError,
    ),
    Case(
        "generate behind an empty prompt",
        lambda b: icl.generate(b.model, icl.PromptBatch((icl.Prompt((), (), (), ((1,), (2,))),))),
        PromptError,
    ),
    Case(
        "generate behind no prompts",
        lambda b: icl.generate(b.model, icl.PromptBatch(())),
        PromptError,
    ),
    Case(
        "generate behind a string",
        lambda b: icl.generate(b.model, "Once upon a time"),
        PromptError,
        ("str", "build_prompts"),
    ),
    Case("generate behind another model's context", elsewhere, ModelError),
    Case("generate everything again behind a context", again, RunError, ("path='whole'",)),
    Case("generate under what a context was not made under", other_changes, RunError),
    Case(
        "plant a model of half a seed",
        lambda b: icl.planted_model(seed=0.5),
        ModelError,
        ("seed", "0.5"),
    ),
    Case(
        "plant a model of a seed below 0",
        lambda b: icl.planted_model(seed=-1),
        ModelError,
        ("seed", "-1"),
    ),
]
