"""Bad patches, vectors, random tokens and sets of heads."""

from collections.abc import Callable
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, ResultError, RunError, TaskError
from tests.bad_inputs.case import Bench, Case
from tests.engine.test_paths import TASK

VALUES = torch.zeros(1, 8)
VECTOR = torch.zeros(32)


def made(what: str, make: Callable[[], object], *says: str) -> Case:
    """A value that cannot be made."""
    return Case(what, lambda b: make(), RunError, says)


def used(
    what: str, make: Callable[[Bench], Any], *says: str, error: type[IclMechError] = RunError
) -> Case:
    """What cannot be given as an intervention."""
    return Case(
        what, lambda b: icl.predict(b.model, b.prompts, interventions=[make(b)]), error, says
    )


def called(
    what: str, call: Callable[[Bench], object], *says: str, error: type[IclMechError] = RunError
) -> Case:
    """A call that must be refused."""
    return Case(what, call, error, says)


def mediated(bench: Bench) -> Any:
    """Effects of heads."""
    return icl.head_mediation(bench.model, *bench.pair)


def steered(vector: Any, **options: Any) -> Callable[[Bench], object]:
    """Prompts with a vector."""
    return lambda b: icl.steer(b.model, b.prompts, vector, **options)


def demonstrated(**options: Any) -> Callable[[Bench], object]:
    """Demonstrations as a vector."""
    return lambda b: icl.demonstration_steering(b.model, b.prompts, **options)


def induced(**options: Any) -> Callable[[Bench], object]:
    """Scores on random tokens."""
    return lambda b: icl.induction_scores(b.model, **options)


def compared(sets: Any, **options: Any) -> Callable[[Bench], object]:
    """Sets of heads."""
    return lambda b: icl.compare_heads(b.model, *b.pair, sets, **options)


def task_heads(**options: Any) -> Callable[[Bench], object]:
    """Heads that recognise and learn the task."""
    return lambda b: icl.task_heads(b.model, b.prompts, **options)


def attributed(**options: Any) -> Callable[[Bench], object]:
    """Attribution of a pair."""
    return lambda b: icl.attribution_patching(b.model, *b.pair, **options)


def transplanted(**options: Any) -> Callable[[Bench], object]:
    """Transplants between the runs of a pair."""
    return lambda b: icl.transplant(b.model, *b.pair, **options)


def kept(**options: Any) -> Callable[[Bench], object]:
    """A circuit of a pair."""
    return lambda b: icl.circuit_faithfulness(b.model, *b.pair, **options)


CASES = [
    called("a circuit of no head", kept(circuit=[]), "circuit=[]"),
    called("a head outside the model", kept(circuit=[(9, 0)]), "(9, 0)", "3 layers"),
    called("a head below 0", kept(circuit=[(0, -1)]), "(0, -1)"),
    called("a circuit as a number", kept(circuit=3), "circuit=3"),
    called("a file that is not there", kept(circuit="none.json"), "none.json"),
    called("an unknown ablation", kept(ablation="patch"), "resample"),
    called("an unknown granularity", kept(granularity="neurons"), "'nodes'"),
    called("fractions out of order", kept(circuit=[(0, 1)], fractions=[0.5, 0.1]), "fractions"),
    called("a fraction above 1", kept(circuit=[(0, 1)], fraction=1.5), "1.5"),
    called("no points of the path", kept(steps=0), "0; it must"),
    called("no random set", kept(circuit=[(0, 1)], draws=0), "draws=0"),
    called("edges of heads", kept(circuit=[(0, 1)], granularity="edges"), "granularity='nodes'"),
    called(
        "a circuit of single texts",
        lambda b: icl.circuit_faithfulness(b.model, b.prompts, b.pair[1]),
        error=PromptError,
    ),
    called("a place there is none of", transplanted(at="label_word"), "at='label_word'", "anchors"),
    called("no place", transplanted(at=())),
    called("a place twice", transplanted(at=("target", "target"))),
    called("an entrance there is none of", transplanted(layers=[9]), "layer 9"),
    called("no entrance", transplanted(layers=[]), "layers"),
    called("no draw", transplanted(draws=0), "draws=0"),
    called(
        "the same run twice",
        lambda b: icl.transplant(b.model, b.pair[0], b.pair[0]),
        error=PromptError,
    ),
    called(
        "runs of other numbers of prompts",
        lambda b: icl.transplant(b.model, b.pair[0], b.pair[1][:1]),
        error=PromptError,
    ),
    made("an unknown site", lambda: icl.Patch("zz", [(0, 0)], values=VALUES), "site='zz'", "'z'"),
    made("a patch without heads", lambda: icl.Patch("z", values=VALUES), "heads=[(layer, head)"),
    made("a head twice", lambda: icl.Patch("z", [(0, 0)] * 2, values=VALUES)),
    made(
        "heads at a stream", lambda: icl.Patch("mlp_out", [(0, 0)], values=VALUES), "layers=[...]"
    ),
    made("a patch without values", lambda: icl.Patch("z", [(0, 0)]), "source=", "values="),
    made("a mean of given values", lambda: icl.Patch("z", [(0, 0)], values=VALUES, mean=True)),
    made(
        "values of two heads", lambda: icl.Patch("z", [(0, 0)], values=VALUES[[0, 0]]), "1 places"
    ),
    made("a patch of NaN", lambda: icl.Patch("z", [(0, 0)], values=VALUES / 0), "NaN"),
    made(
        "an unknown role",
        lambda: icl.Patch("z", [(0, 0)], at="labels", values=VALUES),
        "at='labels'",
    ),
    made(
        "a demonstration's target",
        lambda: icl.Patch("z", [(0, 0)], demo=1, values=VALUES),
        "demo=1",
    ),
    made("a position twice", lambda: icl.Patch("z", [(0, 0)], at=[1, 1], values=VALUES)),
    made("a source that is text", lambda: icl.Patch("z", [(0, 0)], source="true"), "source='true'"),
    used("a head that is not there", lambda b: icl.Patch("z", [(0, 9)], values=VALUES), "head 9"),
    used("a layer that is not there", lambda b: icl.Patch("z", [(9, 0)], values=VALUES), "layer 9"),
    used(
        "values too wide",
        lambda b: icl.Patch("z", [(0, 0)], values=VECTOR[None]),
        "width 32",
        "width 8",
    ),
    used(
        "a source of fewer prompts",
        lambda b: icl.Patch("z", [(0, 0)], source=b.prompts[:2]),
        error=PromptError,
    ),
    used(
        "a source of other demonstrations",
        lambda b: icl.Patch("z", [(0, 0)], at="all", source=b.pair[0]),
        error=PromptError,
    ),
    used(
        "a position behind the end",
        lambda b: icl.Patch("z", [(0, 0)], at=[999], values=VALUES),
        "Position 999",
        error=PromptError,
    ),
    made("a vector of two axes", lambda: icl.AddVector(VALUES, 0), "vector", "d_model"),
    made("a vector for no layer", lambda: icl.AddVector(VECTOR, -1), "layer=-1"),
    used("a vector too short", lambda b: icl.AddVector(VECTOR[:5], 0), "5 entries", "width 32"),
    used("a vector behind no block", lambda b: icl.AddVector(VECTOR, 9), "layer 9"),
    called("no strength", demonstrated(strengths=[]), "strengths=[]"),
    called("a strength of 0", demonstrated(strengths=[0.0, 1.0]), "0.0"),
    called("a strength that is text", demonstrated(strengths=["one"]), "strengths"),
    called("a vector behind a missing block", demonstrated(layers=[9]), "layer 9"),
    called("a block twice", demonstrated(layers=[1, 1]), "layers=[1, 1]"),
    called("no random direction", demonstrated(draws=0), "draws=0"),
    called("an unknown task", demonstrated(tasks=["no task"]), "no task", error=TaskError),
    called("a text without tokens", demonstrated(texts=[""]), "Text 0", error=PromptError),
    called(
        "a vector of bare queries",
        lambda b: icl.demonstration_steering(
            b.model, icl.build_prompts(TASK, b.model, shots=0, n=4)
        ),
        error=PromptError,
    ),
    called(
        "mediation of other labels",
        lambda b: icl.head_mediation(
            b.model,
            b.prompts,
            icl.PromptBatch(
                (
                    icl.Prompt.from_positions(
                        [1, 2, 3],
                        label_positions=[],
                        label_classes=[],
                        label_tokens=[4, 5],
                        answer=0,
                    ),
                )
            ),
        ),
        error=PromptError,
    ),
    called("vectors of no heads", lambda b: icl.function_vector(b.model, mediated(b), 0), "k=0"),
    called(
        "vectors of many heads", lambda b: icl.function_vector(b.model, mediated(b), 99), "12 heads"
    ),
    called(
        "a vector of scores",
        lambda b: icl.function_vector(b.model, b.prompts),
        "HeadMediationResult",
    ),
    called(
        "a measure that is none",
        lambda b: mediated(b).top(3, "probabilities"),
        "'probability'",
        error=ResultError,
    ),
    called("a vector as a list", steered([1.0])),
    called("a vector of whole numbers", steered(torch.zeros(32, dtype=torch.long)), "float"),
    called("a vector of another model", steered(torch.zeros(5)), "5]", "width 32"),
    called("a scaled replacement", steered(VECTOR, kind="replace", scale=2.0), "kind='add'"),
    called("a vector behind no layer", steered(VECTOR, layers=[])),
    called("an unknown way to steer", steered(VECTOR, kind="push"), "kind='push'"),
    called("no sequences", induced(n=0), "n=0"),
    called("an unknown score", induced(variant="mult"), "'mul'"),
    called("sequences too long", induced(length=300)),
    called("more tokens than there are", induced(length=10**6)),
    called("tokens without repeats", induced(tokens=torch.tensor([[1, 2]]))),
    called("tokens of text", induced(tokens="1 2 1"), "tokens='1 2 1'"),
    called("left out of nothing", induced(exclude_bos=True), "variant='mul' or 'abs'"),
    called("steps below 0", attributed(steps=-1), "-1"),
    called(
        "attribution of other prompts",
        lambda b: icl.attribution_patching(b.model, b.prompts, b.pair[1]),
        error=PromptError,
    ),
    called("one set of heads", compared({"one": [(0, 0)]})),
    called("sets without names", compared([[(0, 0)]]), "sets="),
    called("task heads: none in a set", task_heads(top=0), "top=0"),
    called("task heads: more than there are", task_heads(top=5), "top=5", "12"),
    called("task heads: random directions of no kind", task_heads(null="words"), "null='words'"),
    called("task heads: no draw of directions", task_heads(directions=0), "directions=0"),
    called("task heads: other sets without names", task_heads(beside=[(0, 0)]), "beside="),
    called(
        "task heads: another set with a head there is not",
        task_heads(beside={"mine": [(7, 0)]}),
        "7",
    ),
    called(
        "task heads: texts",
        lambda b: icl.task_heads(
            b.model, icl.texts(["a good film. a bad story. World Sports."], b.model)
        ),
        error=PromptError,
    ),
    called(
        "task heads: a query twice",
        lambda b: icl.task_heads(b.model, icl.PromptBatch((*b.prompts, *b.prompts))),
        "Query 4",
        error=PromptError,
    ),
    called(
        "task heads: no demonstrations",
        lambda b: icl.task_heads(b.model, icl.build_prompts(TASK, b.model, shots=0, n=4)),
        error=PromptError,
    ),
    called("an empty set", compared({"one": [(0, 0)], "none": []})),
    called("no draws", compared({"a": [(0, 0)], "b": [(0, 1)]}, draws=0), "draws=0"),
]
