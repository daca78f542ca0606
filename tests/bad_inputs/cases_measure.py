"""Bad arguments of measurements and studies."""

from collections.abc import Callable
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError, ModelError, PromptError, ResultError, RunError, TaskError
from icl_mech.measurements import (
    CompressContext,
    Confusion,
    EvaluateReweighting,
    Flow,
    Isolation,
    LayerAccuracy,
    Measurement,
    Pass,
    Predict,
    Stability,
)
from icl_mech.results import Result
from tests.bad_inputs.case import Bench, Case
from tests.engine.test_paths import TASK
from tests.tiny import tiny_hf

BETA = icl.Reweight(torch.zeros(3, 4, 2))


class Own(Measurement[Result]):
    """A user's own, which asks for what `asked` is."""

    asked: Any = None

    def passes(self, model: Any, data: Any) -> Any:
        """As given."""
        return self.asked

    def result(self, model: Any, data: Any, read: Any) -> Any:
        """Nothing."""
        return None


def asking(what: Any) -> Own:
    """One that asks for this."""
    return type("Asking", (Own,), {"asked": what})()


def given(
    what: str,
    *says: str,
    error: type[IclMechError] = RunError,
    of: Any = icl.predict,
    **options: Any,
) -> Case:
    """An option of a function that takes prompts."""
    return Case(what, lambda b: of(b.model, b.prompts, **options), error, says)


def prompted(what: str, make: Callable[[Bench], Any], *says: str) -> Case:
    """What cannot be taken as prompts."""
    return Case(what, lambda b: icl.flow_scores(b.model, make(b)), PromptError, says)


def modelled(what: str, make: Callable[[Bench], Any], *says: str) -> Case:
    """What cannot be taken as a model."""
    return Case(what, lambda b: icl.predict(make(b), b.prompts), ModelError, says)


def measured(what: str, make: Callable[[], Any], *says: str) -> Case:
    """What cannot be measured."""
    return Case(what, lambda b: icl.measure(b.model, b.prompts, make()), RunError, says)


def analyzed(
    what: str, *says: str, error: type[IclMechError] = RunError, pair: bool = False, **options: Any
) -> Case:
    """An option of a study."""
    return Case(
        what, lambda b: icl.analyze(b.model, b.pair if pair else b.prompts, **options), error, says
    )


def ablated(name: str, *says: str, **options: Any) -> Case:
    """What cannot be ablated."""
    return Case(name, lambda b: icl.ablation(b.model, *b.pair, **options), RunError, says)


CASES = [
    Case(
        "one set as both sides of a pair",
        lambda b: icl.layer_accuracy(b.model, b.prompts, b.prompts),
        PromptError,
        ("build_prompt_pairs",),
    ),
    given("memory that is no size", "'plenty'", "8GB", of=icl.flow_scores, memory="plenty"),
    given("no memory", "memory=0", "8GB", memory=0),
    given("less than no memory", "memory=-1", "8GB", memory=-1),
    given("memory of no bytes", "'0GB'", "8GB", memory="0GB"),
    given("memory with two points", "'1.2.3GB'", "8GB", memory="1.2.3GB"),
    given("memory as a truth", "memory=True", "8GB", memory=True),
    given("memory as a fraction", "memory=1.5", "8GB", memory=1.5),
    given("no prompts in a batch", "batch_size=0", batch_size=0),
    given("a negative batch", "batch_size=-3", batch_size=-3),
    given("half a prompt", "batch_size=1.5", batch_size=1.5),
    given("a batch of True", "batch_size=True", batch_size=True),
    given("a batch in text", "batch_size='8'", batch_size="8"),
    given("an unknown path", "path='fast'", "auto", path="fast"),
    given("progress in words", "progress='yes'", progress="yes"),
    given("an unknown loss", "loss='labels'", "'label'", of=icl.flow_scores, loss="labels"),
    given("a list of losses", "loss=['label']", of=icl.flow_scores, loss=["label"]),
    given("an unknown score", "score='frist'", "'first'", score="frist"),
    given("no next tokens", "top_k=0", top_k=0),
    given("more tokens than there are", "top_k=1000000", "vocabulary", top_k=10**6),
    given("no draws", "draws=0", of=icl.isolation, draws=0),
    given("a depth of none", "depths=(0,)", of=icl.isolation, depths=(0,)),
    given("one depth", "depths=3", of=icl.isolation, depths=3),
    given("half a layer", "1.5", of=icl.isolation, depths=(1.5,)),
    given("depth of True", of=icl.isolation, depths=(True,)),
    given("a depth too deep", "depths=(99,)", of=icl.isolation, depths=(99,)),
    given("an unknown side", "'frist'", "'first'", of=icl.isolation, sides=["frist"]),
    given("a negative seed", "seed=-1", of=icl.isolation, seed=-1),
    given("a seed of None", "seed=None", of=icl.isolation, seed=None),
    given("no step", "step=0", of=icl.isolation_map, step=0),
    given("an unknown truth", "'prediction'", of=icl.extraction, truth="predicted"),
    given("words for a truth", of=icl.logit_lens, vocabulary="yes"),
    given("heads as numbers", of=icl.head_attention, heads=[3, 4]),
    given("heads of one number", "(0,)", of=icl.head_attention, heads=[(0,)]),
    given("a head that is not there", "head 99", of=icl.head_attention, heads=[(0, 99)]),
    given("a head named twice", of=icl.head_attention, heads=[(0, 1), (0, 1)]),
    given("an unknown row", "row='tagret'", "'target'", of=icl.head_attention, row="tagret"),
    given("a row below", "row=-1", "target", of=icl.head_attention, row=-1),
    given(
        "a row after the end", "Position 9999", error=PromptError, of=icl.head_attention, row=9999,
    ),
    given(
        "a row of no demonstration", "demonstration 99", error=PromptError,
        of=icl.head_attention, row="demo_text", demo=99,
    ),
    given("a false label at no place", "places=[9]", of=icl.one_false_demonstration, places=[9]),
    given("false labels nowhere", "places=[]", of=icl.one_false_demonstration, places=[]),
    given("half a place", "0.5", of=icl.one_false_demonstration, places=[0.5]),
    given("a place in words", "places='last'", of=icl.one_false_demonstration, places="last"),
    given("a risk above all", "epsilon=1.5", of=icl.guaranteed_exit, epsilon=1.5),
    given("a risk in words", "epsilon='low'", of=icl.guaranteed_exit, epsilon="low"),
    given("no doubt", "delta=0", of=icl.guaranteed_exit, delta=0),
    given("an unknown risk", "'harm'", of=icl.guaranteed_exit, loss="harms"),
    given("no thresholds", "grid=0", of=icl.guaranteed_exit, grid=0),
    given("more starts than thresholds", "starts=9", of=icl.guaranteed_exit, grid=8, starts=9),
    given("an exit after the end", "first=9", of=icl.guaranteed_exit, first=9),
    given("tokens of no name", "positions='targt'", "'target'", of=icl.lens_table, positions="targt"),
    given(
        "tokens after the end", "Position 9999", error=PromptError, of=icl.lens_table, positions=[9999],
    ),
    given("no words", "k=0", of=icl.lens_table, k=0),
    given("no components", "components=0", of=icl.diagnose_confusion, components=0),
    given("a layer below", "layer=-9", of=icl.diagnose_confusion, layer=-9),
    given("contexts of text", "contexts='x'", "PromptBatch", of=icl.diagnose_confusion, contexts="x"),
    given("an unknown method", "'hidden_anchor'", of=icl.compress_demonstrations, method="hidden"),
    given(
        "kept positions of True", error=PromptError,
        of=icl.compress_demonstrations, keep=[[True]] * 4,
    ),
    given("no learning rate", "lr=0", "above 0", of=icl.fit_reweighting, lr=0),
    given("a rate that is NaN", "lr=nan", of=icl.fit_reweighting, lr=float("nan")),
    given("a rate in text", "lr='0.1'", of=icl.fit_reweighting, lr="0.1"),
    given("no epochs", "epochs=0", of=icl.fit_reweighting, epochs=0),
    given("half a prompt a step", "batch_size=1.5", of=icl.fit_reweighting, batch_size=1.5),
    given("shuffling in words", of=icl.fit_reweighting, shuffle="yes"),
    given("a negative seed of training", "seed=-1", of=icl.fit_reweighting, seed=-1),
    given(
        "held out texts", "validation=['x']", "prompts_from_text", error=PromptError,
        of=icl.fit_reweighting, validation=["x"],
    ),
    Case(
        "learning from text",
        lambda b: icl.fit_reweighting(b.model, ["x"]),
        PromptError,
        ("prompts_from_text",),
    ),
    Case(
        "factors that are a tensor",
        lambda b: icl.evaluate_reweighting(b.model, BETA.beta, b.prompts),
        RunError,
        ("Tensor[3, 4, 2]",),
    ),
    Case(
        "the class of factors",
        lambda b: EvaluateReweighting(icl.Reweight),
        RunError,
    ),
    Case(
        "a context of text",
        lambda b: CompressContext()(b.model, "text"),
        PromptError,
    ),
    Case(
        "no heads to choose",
        lambda b: icl.find_false_induction_heads(b.model, b.pair[1], top=0),
        RunError,
        ("top=0",),
    ),
    Case(
        "shots in text",
        lambda b: icl.find_false_induction_heads(b.model, b.pair[1], shots="4"),
        RunError,
        ("shots='4'",),
    ),
    prompted("None for prompts", lambda b: None, "prompts=None", "build_prompts"),
    prompted("texts for prompts", lambda b: ["a", "b"], "prompts_from_text(texts"),
    prompted("a text for prompts", lambda b: "text", "prompts_from_text"),
    prompted("a task for prompts", lambda b: TASK),
    prompted("a single prompt", lambda b: b.prompts[0], "PromptBatch((prompt,))"),
    prompted("a list of prompts", lambda b: list(b.prompts), "PromptBatch(prompts)"),
    prompted("a tuple of prompts", lambda b: b.prompts.prompts[:2], "PromptBatch(prompts)"),
    prompted("a list of batches", lambda b: [b.prompts] * 2),
    prompted("three batches", lambda b: (b.prompts,) * 3),
    prompted("an empty list of prompts", lambda b: [], "build_prompts"),
    prompted("a pair for one batch", lambda b: b.pair),
    prompted("a batch of nothing", lambda b: icl.PromptBatch(())),
    Case(
        "a batch for a pair",
        lambda b: icl.measure(b.model, b.prompts, LayerAccuracy()),
        PromptError,
        ("build_prompt_pairs",),
    ),
    Case(
        "texts for false prompts",
        lambda b: icl.layer_accuracy(b.model, b.pair[0], ["a"]),
        PromptError,
        ("false prompts=['a']", "prompts_from_text"),
    ),
    Case(
        "a pair for true prompts",
        lambda b: icl.layer_accuracy(b.model, b.pair, b.pair[1]),
        PromptError,
        ("true prompts=",),
    ),
    modelled("no model", lambda b: None, "NoneType", "load_model"),
    modelled("a model's name", lambda b: "gpt2", "str", "load_model"),
    modelled("a model's class", lambda b: type(b.model), "load_model"),
    modelled("a module that is no model", lambda b: torch.nn.Linear(2, 2).eval(), "Linear", "load_model"),
    modelled("a bare Hugging Face model", lambda b: tiny_hf("gpt2"), "GPT2LMHeadModel", "load_model"),
    measured("an unknown measurement to repeat", lambda: Stability("flows"), "of='flows'", "'flow'"),
    measured("a class to repeat", lambda: Stability(Flow), "HeadScores()"),
    measured("an unknown axis", lambda: Stability(over=["seeds"]), "'seed'"),
    measured("no axis", lambda: Stability(over=[]), "seed"),
    measured("no top heads", lambda: Stability(k=0), "k=0"),
    measured("an unknown null", lambda: Stability(within="block"), "layer"),
    measured("a class for a measurement", lambda: Flow, "Flow()"),
    measured("a measurement's name", lambda: "flow", "'flow'", "Flow()"),
    measured("a function for a measurement", lambda: icl.flow_scores, "Flow()"),
    measured("a list for a measurement", lambda: [Flow()]),
    measured("passes that are none", lambda: asking(None)),
    measured("passes that are text", lambda: asking("x"), "'x'"),
    measured("a field of another kind", lambda: Predict(top_k="5"), "top_k='5'"),
    measured("a field in floats", lambda: Isolation(depths=[1.0]), "1.0"),
    measured("prompts in a field", lambda: Confusion(contexts=[1]), "a PromptBatch"),
    Case("a pass over text", lambda b: Pass("x", []), RunError, ("prompts='x'", "a PromptBatch")),
    Case(
        "one intervention in a pass",
        lambda b: Pass(b.prompts, [], icl.Isolate([0])),
        RunError,
        ("interventions=Isolate",),
    ),
    Case("nothing to measure", lambda b: icl.measure(b.model, b.prompts), RunError, ("Flow()",)),
    Case(
        "a study of texts",
        lambda b: icl.analyze(b.model, ["text"]),
        PromptError,
        ("prompts=['text']", "prompts_from_text"),
    ),
    analyzed("a study nearly named", "'label_words'", study="labelwords"),
    analyzed("a study by number", "study=3", "label_words, overthinking", study=3),
    analyzed("one measurement without a list", "[Flow()]", measurements=Flow()),
    analyzed("classes of measurements", "Flow()", measurements=[Flow]),
    analyzed("less than no maps", "maps=-1", maps=-1),
    analyzed("a study's seed of NaN", "seed=nan", seed=float("nan")),
    analyzed("heads for another study", "overthinking", heads_from="reviews"),
    analyzed(
        "heads from no task", "nosuch", pair=True, study="overthinking", heads_from="nosuch",
        error=TaskError,
    ),
    analyzed("a pair for a study of one", "study='overthinking'", pair=True, error=PromptError),
    analyzed("one set for pairs", study="overthinking", error=PromptError),
    analyzed("one set for heads that act", study="causal", error=PromptError),
    analyzed("two pairs to choose and test", pair=True, study="causal", error=PromptError),
    analyzed("a folder by number", "=3", out=3, error=ResultError),
    analyzed("a folder without a name", out="", error=ResultError),
    ablated("a part nearly named", "'late layers'", start=1, what=["late layer"]),
    ablated("parts as text", start=1, what="late layers"),
    ablated("interventions without a list", what={"x": BETA}),
    ablated("half a head", "(0.5, 1)", heads=[(0.5, 1)]),
    ablated("a start too high", "layer 99", start=99),
    ablated("fewer draws than none", "draws=-1", start=1, draws=-1),
]  # fmt: skip
