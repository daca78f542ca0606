"""`code` and `finding`: Python scripts, in the public API, for the numbers on the screen and for a test of the change."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from textwrap import indent
from types import MappingProxyType
from typing import Any

from icl_mech.errors import IclMechError
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.changes import Change, interventions, spoken
from icl_mech.explorer.experiment import Experiment, Query
from icl_mech.explorer.free_text import Texts
from icl_mech.interventions import Cut, Intervention, Isolate, Reweight, ZeroHeads
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.studies.measuring import written
from icl_mech.tasks import Example

SEED, DRAWS = 1, 5
"""Seed of the fresh queries of a finding, and number of draws of its null."""

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
    if isinstance(stage.task, Texts):
        built = [*_texts(stage.task, prompts)]
    else:
        built = [task, *_prompts(experiment, stage, every=every)]
    lines += ["", model, *built, "", *changes]
    option = ", interventions=changes" if made else ""
    if made:
        lines += ["", "before = icl.predict(model, prompts)"]
    through = ""
    if stage.lens is not None:
        through = ", lens=fitted"
        lines.append(f"fitted = ...  # the {stage.lens.called} that explore() was given")
    lens, contrast = "'label_prob'", 'heads.sel("contrast")'
    names = "prompts[0]" if stage.task.is_open else "after"
    shown = f"dict(zip({names}.labels, after.label_probs[0].tolist()))"
    if stage.of_texts:
        shown = "after.log_probs.exp()[:, 0]"
        lens, contrast = "'prob'", "heads.label_logits[..., 0] - heads.label_logits[..., 1]"
    elif every:
        shown = "after.accuracy"
    lines += [
        f"after = icl.predict(model, prompts{option})",
        f"print({shown})",
        f"lens = icl.logit_lens(model, prompts{through}{option})  # lens.sel({lens})",
        f'heads = icl.logit_lens(model, prompts, per="head"{option})  # {contrast}',
    ]
    if experiment.demos and not every:
        lines.append(f"flow = icl.flow_scores(model, prompts{option})  # flow.values")
    if not every:
        lines += _row(look, len(prompts[0]), option)
    return "\n".join(lines) + "\n"


def _prompts(experiment: Experiment, stage: Stage, *, every: bool) -> Iterator[str]:
    yield from _demonstrations("demonstrations", experiment, stage)
    asked = stage.queries if every else (experiment.query,)
    yield from _queries("queries", [query.example for query in asked])
    yield from _choices(experiment, stage)
    yield from _built("demonstrations", experiment, stage)


def _texts(task: Texts, prompts: PromptBatch) -> Iterator[str]:
    """Lines that build the prompts of free texts."""
    yield "texts = ["
    for prompt in prompts:
        yield f"    {prompt.text!r},"
    yield "]"
    options: dict[str, Any] = {"spans": task.splitting}
    if task.splitting is None or any(prompt.target + 1 < len(prompt) for prompt in prompts):
        spans = []
        for prompt in prompts:
            put = prompt.spans[0].stop if prompt.spans[0].role == "bos" else 0
            spans.append([(start - put, stop - put) for start, stop in prompt.text_spans])
        targets = [prompt.target for prompt in prompts]
        options = {"spans": spans, "unit": "tokens", "target": targets}
    more = ", ".join(f"{name}={value!r}" for name, value in (options | task.options).items())
    yield f"prompts = icl.texts(texts, model, {more})"


def _demonstrations(name: str, experiment: Experiment, stage: Stage) -> Iterator[str]:
    yield f"{name} = ["
    for demo in experiment.demos:
        words = demo.words or stage.task.labels
        true = "" if demo.shown == demo.true else f"; true: {_remark(words[demo.true])}"
        yield f"    {_example(demo.example)},  # {_remark(words[demo.shown])}{true}"
    yield "]"


def _queries(name: str, queries: Iterable[Example]) -> Iterator[str]:
    yield f"{name} = ["
    for query in queries:
        yield f"    {_example(query)},"
    yield "]"


def _choices(experiment: Experiment, stage: Stage) -> Iterator[str]:
    if stage.task.is_open:
        yield f"choices = {[*experiment.choices]}  # in addition to the queries' own answers"


def _built(demonstrations: str, experiment: Experiment, stage: Stage) -> Iterator[str]:
    """Lines that build the prompts, and those with the opposite labels if a change needs them."""
    more = ", choices=choices" if stage.task.is_open else ""
    yield f"prompts = {BUILD.format(demonstrations, more)}"
    if any(change.what == "patch" for change in experiment.changes):
        opposite = experiment.opposite(len(stage.task.labels)).demos
        shown = [demo.words[demo.shown] if demo.words else demo.shown for demo in opposite]
        reasons = ", rationale=e.rationale" if any(d.rationale for d in experiment.demos) else ""
        shows = "0, e.text2, (c,)" if more else "c, e.text2"
        example = f"icl.Example(e.text, {shows}{reasons})"
        yield f"others = {shown}  # the opposite {'answers' if more else 'labels'}"
        yield f"relabelled = [{example} for e, c in zip({demonstrations}, others)]"
        yield f"opposite = {BUILD.format('relabelled', more)}"


def _changes(
    made: list[Intervention],
    changes: tuple[Change, ...],
    stage: Stage,
    n_labels: int,
    controls: Mapping[int, tuple[str, str]] = MappingProxyType({}),
) -> Iterator[str]:
    if made:
        yield "changes = []"
    for number, (intervention, change) in enumerate(zip(made, changes, strict=True)):
        if number in controls:
            null, words = controls[number]
            yield f"changes.append(icl.{null})  # {words}"
        elif isinstance(intervention, Reweight):
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
    parts += [f"rationale={example.rationale!r}"] if example.rationale is not None else []
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


# --- a finding ---

_TEST = '''

def answers(prompts, changes):
    """The {true}'s probability among the {words}, and whether it is the answer: one value per query."""
    lens = icl.logit_lens(model, prompts, interventions=changes)
    last = lens.n_entries - 1
    return [lens.sel(name, layer=last).per_prompt.double() for name in ("true_label", "accuracy")]


def finding(queries):
    """Differences paired by query, with 95 % intervals conditional on these demonstrations."""
    after = answers(*now(queries))
    compared = {{"now - before": answers(*before(queries))}}
{null}    return {{
        name: [mean_interval(b - a, "change") for a, b in zip(values, after)] for name, values in compared.items()
    }}


for name, asked in {{{sets}}}.items():
    for difference, (probability, accuracy) in finding(asked).items():
        print(f"{{name}}, {{difference}}: probability of the {true} {{probability}}, accuracy {{accuracy}}")
'''

_NULL = """    draws = [answers(*null(queries, draw)) for draw in range({draws})]
    compared["now - null"] = [torch.stack(values).mean(0) for values in zip(*draws)]
"""


def finding(
    before: Experiment,
    now: Experiment,
    stage: Stage,
    model: LanguageModel,
    *,
    lines: tuple[str, str],
) -> str:
    """The script that tests the change from one experiment to another, over all queries and over fresh ones.

    If the library has a null of what was changed (random tokens in place of label words, random heads, random
    edges), the change is also compared with that.

    Args:
        before: The reference.
        now: The present experiment.
        stage: Task, model and queries.
        model: The model.
        lines: The lines that load the model and the task.

    Raises:
        IclMechError: the prompts cannot be built with all queries, or not every one has the token of a change.
    """
    sides = {
        "before(queries)": ("reference", before, _Side(before, stage, model)),
        "now(queries)": ("demonstrations", now, _Side(now, stage, model)),
    }
    side = sides["now(queries)"][2]
    fresh = _fresh([own for _, own, _ in sides.values()], stage, model)
    body = [*_demonstrations("reference", before, stage)]
    same = before.demos == now.demos
    body += (
        ["demonstrations = reference"] if same else _demonstrations("demonstrations", now, stage)
    )
    body += [*_queries("queries", [own.example for own in stage.queries]), *_choices(now, stage)]
    sets = '"these queries": queries'
    if len(fresh) > 1:
        body.append(f"# Queries that the explorer did not show, drawn with seed {SEED}:")
        body += _queries("fresh", [own.example for own in fresh])
        sets += ', "fresh queries": fresh'
    functions = [
        _function(head, own.title(before), [*_built(name, own, stage), *made.lines(stage)])
        for head, (name, own, made) in sides.items()
    ]
    controls = side.controls(before, stage)
    if controls:
        words = ", ".join(dict.fromkeys(words for _, words in controls.values()))
        null = [*_built("demonstrations", now, stage), *side.lines(stage, controls)]
        functions.append(_function("null(queries, draw)", words, null))
    test = _TEST.format(
        true=spoken("true label", of_answers=stage.task.is_open),
        words="choices" if stage.task.is_open else "label words",
        null=_NULL.format(draws=DRAWS) if controls else "",
        sets=sets,
    )
    text = "\n".join([*body, *functions, test])
    imports = [line for name, line in _IMPORTS.items() if name in text]
    return "\n".join([*imports, "", *lines, "", text])


_IMPORTS = {
    "icl.": "import icl_mech as icl",
    "torch.": "import torch",
    "TokenSet(": "from icl_mech.interventions.token_sets import TokenSet",
    "random_heads(": "from icl_mech.measurements.heads.chosen import random_heads",
    "mean_interval(": "from icl_mech.metrics import mean_interval",
}
"""Lines that a script begins with if it uses a name."""


def _function(head: str, words: str, body: Iterable[str]) -> str:
    lines = [f'"""Prompts and interventions: {words}."""', *body, "return prompts, changes"]
    return f"\n\ndef {head}:\n" + indent("\n".join(lines), "    ")


class _Side:
    """The interventions of an experiment on all queries, as code for any queries."""

    def __init__(self, experiment: Experiment, stage: Stage, model: LanguageModel) -> None:
        self.changes = experiment.changes
        self.prompts, self.made = _intervened(experiment, stage, model, stage.queries)

    def lines(
        self, stage: Stage, controls: Mapping[int, tuple[str, str]] = MappingProxyType({})
    ) -> list[str]:
        """Lines that make the interventions, those with a null replaced by it."""
        lines = [*_changes(self.made, self.changes, stage, self.prompts.n_labels, controls)]
        return [_POSITIONS.sub(r"positions=[[\1]] * len(prompts)", line) for line in lines] or [
            "changes = []"
        ]

    def controls(self, before: Experiment, stage: Stage) -> dict[int, tuple[str, str]]:
        """Nulls of the changes that the reference does not have, by their number: as code, and in words."""
        found: dict[int, tuple[str, str]] = {}
        for number, (made, change) in enumerate(zip(self.made, self.changes, strict=True)):
            null = None if change in before.changes else self._control(made, stage)
            found |= {number: null} if null else {}
        return found

    def _control(self, made: Intervention, stage: Stage) -> tuple[str, str] | None:
        if isinstance(made, ZeroHeads):
            heads = [tuple(head) for head in made.heads]
            shape = stage.info.n_layers, stage.info.n_heads
            if 2 * len(heads) > shape[0] * shape[1]:
                return None
            return (
                f"ZeroHeads(random_heads({heads}, {shape}, {DRAWS})[draw])",
                "as many random heads set to zero, of the same layers where possible",
            )
        if isinstance(made, Isolate) and made.positions is None:
            drawn: Intervention = replace(made, tokens="random")
            words = "random tokens isolated in place of label words"
        elif isinstance(made, Cut) and made.has_control(self.prompts):
            drawn, words = replace(made, control=True), "as many random edges cut"
        else:
            return None
        return f"{_written(drawn)[:-1]}, seed=draw)", words


_POSITIONS = re.compile(r"positions=\[\((\d+),\)(?:, \(\1,\))*\]")
"""The same position in every prompt: prompts differ only in their query, which comes last."""


def _intervened(
    experiment: Experiment, stage: Stage, model: LanguageModel, queries: Sequence[Query]
) -> tuple[PromptBatch, list[Intervention]]:
    prompts = experiment.prompts(stage.task, model, queries)
    return prompts, interventions(experiment.changes, prompts, stage.info, lambda: prompts)


def _fresh(sides: Sequence[Experiment], stage: Stage, model: LanguageModel) -> tuple[Query, ...]:
    """As many queries as there are, none of them shown or a demonstration, balanced over classes where possible."""
    used = {key for own in stage.queries for key in own.example.keys}
    used |= {key for side in sides for demo in side.demos for key in demo.example.keys}
    others = [example for example in stage.task.test if not used.intersection(example.keys)]
    random.Random(SEED).shuffle(others)
    seen: Counter[int] = Counter()
    ranked = []
    for example in others:
        ranked.append((seen[example.label], example))
        seen[example.label] += 1
    ranked.sort(key=lambda pair: pair[0])
    fresh: list[Query] = []
    for _, example in ranked:
        right, *also = example.answers or ("",)
        other = [example.other] if stage.relation and example.other else []
        words = (right, *other) if example.answers else ()
        reasons = example.rationale
        query = Query(example.text, example.label, None, example.text2, words, tuple(also), reasons)
        with suppress(
            IclMechError
        ):  # its answers or its length do not go with these demonstrations
            for side in sides:
                _intervened(side, stage, model, [query])
            fresh.append(query)
        if len(fresh) == len(stage.queries):
            break
    return tuple(fresh)
