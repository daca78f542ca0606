"""`code`: a Python script that reproduces the numbers on the screen with the public API."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from icl_mech.explorer.actions import Stage
from icl_mech.explorer.changes import Change, interventions
from icl_mech.explorer.experiment import Experiment
from icl_mech.interventions import Intervention, Reweight
from icl_mech.prompts import PromptBatch
from icl_mech.studies.measuring import written
from icl_mech.tasks import Example

BUILD = "icl.build_prompts(task, model, demonstrations={}, queries=queries{})"


def code(
    experiment: Experiment,
    stage: Stage,
    prompts: PromptBatch,
    *,
    model: str,
    task: str,
    look: Mapping[str, Any],
    every: bool = False,
) -> str:
    """The script that reproduces the numbers on the screen.

    Args:
        experiment: The experiment on the screen.
        stage: Task, model and queries.
        prompts: Its prompts: one, or with `every` those of all queries.
        model: The line that loads the model.
        task: The line that loads the task.
        look: The chosen `token` and `layer`, whose row of the saliency map is computed too.
        every: Use all queries.
    """
    made = interventions(experiment.changes, prompts, stage.info, lambda: prompts)
    changes = [*_changes(made, experiment.changes, stage, prompts.n_labels)]
    lines = ["import icl_mech as icl"]
    if any("TokenSet" in line for line in changes):
        lines.append("from icl_mech.interventions.token_sets import TokenSet")
    if any(isinstance(intervention, Reweight) for intervention in made):
        lines.append("import torch")
    lines += ["", model, task, *_prompts(experiment, stage, every=every), "", *changes]
    option = ", interventions=changes" if made else ""
    if made:
        lines += ["", "before = icl.predict(model, prompts)"]
    names = "prompts[0]" if stage.task.is_open else "after"
    shown = f"dict(zip({names}.labels, after.label_probs[0].tolist()))"
    shown = "after.accuracy" if every else shown
    lines += [
        f"after = icl.predict(model, prompts{option})",
        f"print({shown})",
        f"lens = icl.logit_lens(model, prompts{option})  # lens.sel('label_prob')",
        f'heads = icl.logit_lens(model, prompts, per="head"{option})  # heads.sel("contrast")',
    ]
    if experiment.demos and not every:
        lines.append(f"flow = icl.flow_scores(model, prompts{option})  # flow.values")
    if not every:
        lines += _row(look, len(prompts[0]), option)
    return "\n".join(lines) + "\n"


def _prompts(experiment: Experiment, stage: Stage, *, every: bool) -> Iterator[str]:
    labels = stage.task.labels
    yield "demonstrations = ["
    for demo in experiment.demos:
        words = demo.words or labels
        true = "" if demo.shown == demo.true else f"; true: {_remark(words[demo.true])}"
        yield f"    {_example(demo.example)},  # {_remark(words[demo.shown])}{true}"
    yield "]"
    yield "queries = ["
    for query in stage.queries if every else (experiment.query,):
        yield f"    {_example(query.example)},"
    yield "]"
    more = ", choices=choices" if stage.task.is_open else ""
    if more:
        yield f"choices = {[*experiment.choices]}  # in addition to the queries' own answers"
    yield f"prompts = {BUILD.format('demonstrations', more)}"
    if any(change.what == "patch" for change in experiment.changes):
        opposite = experiment.opposite(len(labels)).demos
        shown = [demo.words[demo.shown] if demo.words else demo.shown for demo in opposite]
        example = (
            "icl.Example(e.text, 0, e.text2, (c,))" if more else "icl.Example(e.text, c, e.text2)"
        )
        yield f"others = {shown}  # the opposite {'answers' if more else 'labels'}"
        yield f"relabelled = [{example} for e, c in zip(demonstrations, others)]"
        yield f"opposite = {BUILD.format('relabelled', more)}"


def _changes(
    made: list[Intervention], changes: tuple[Change, ...], stage: Stage, n_labels: int
) -> Iterator[str]:
    if made:
        yield "changes = []"
    for intervention, change in zip(made, changes, strict=True):
        if isinstance(intervention, Reweight):
            first, last = change.layers
            yield f"beta = torch.zeros({stage.info.n_layers}, {stage.info.n_heads}, {n_labels})"
            yield f"beta[{first}:{last + 1}] = {math.log(change.factor)!r}  # factor {change.factor:g}"
            yield "changes.append(icl.Reweight(beta))"
        else:
            yield f"changes.append(icl.{_written(intervention)})  # {change.words()}"


def _row(look: Mapping[str, Any], length: int, option: str) -> Iterator[str]:
    """Lines for the selected row or column of the saliency map."""
    token, layer = look.get("token"), look.get("layer") or 0
    if isinstance(token, int) and 0 <= token < length and isinstance(layer, int):
        out = look.get("mode") == "out"
        place, way = (f"{layer}, :, {token}", "out of") if out else (f"{layer}, {token}", "into")
        yield f"maps = icl.saliency_maps(model, prompts{option})"
        yield f"maps.values[0][{place}]  # saliency {way} token {token}, layer {layer}"


def _example(example: Example) -> str:
    parts = [repr(example.text), *([] if example.answers else [str(example.label)])]
    if example.text2 is not None:
        parts.append(f"text2={example.text2!r}" if example.answers else repr(example.text2))
    parts += [f"answers={example.answers!r}"] if example.answers else []
    parts += [f"other={example.other!r}"] if example.other is not None else []
    return f"icl.Example({', '.join(parts)})"


def _remark(word: str) -> str:
    """A word as written in a one-line comment."""
    return word if word.isprintable() else repr(word)


def _written(value: Intervention) -> str:
    """An intervention as code, with consecutive layers as a range."""

    def shorter(match: re.Match[str]) -> str:
        layers = [int(number) for number in match.group(1).split(",") if number.strip()]
        whole = len(layers) > 1 and layers == list(range(layers[0], layers[-1] + 1))
        return f"layers=range({layers[0]}, {layers[-1] + 1})" if whole else match.group(0)

    return re.sub(r"layers=[(\[]([\d, ]+)[)\]]", shorter, written(value, {PromptBatch: "opposite"}))
