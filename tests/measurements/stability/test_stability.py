"""Stability: against plain Hugging Face, on planted models, its variants, and what it rejects."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from scipy.stats import spearmanr

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import HeadScores, InductionScores, LayerAccuracy, Predict, Stability
from icl_mech.measurements.stability.agreement import Line, Seen, lines_over, seen
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.measurements.stability.variants import TEMPLATES, _title, relabelled
from icl_mech.models import adapt
from icl_mech.planted import FALSE_INDUCTION_HEADS
from icl_mech.tasks import Template, load_task
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

QUIET = {"progress": False}

ORDERS = (("green", "blue", "cyan", "red"), ("cyan", "blue", "red", "green"))
"""Label words of the planted task for other classes."""


@pytest.fixture(scope="module")
def planted():
    model = icl.planted_model(circuit="heads")
    return model, icl.build_prompt_pairs(icl.planted_task(), model, shots=2, n=24)


@pytest.fixture(scope="module")
def found(planted):
    model, pair = planted
    over = ("seed", "label set", "subset")
    return Stability(k=3, over=over, label_sets=ORDERS)(model, pair, **QUIET)


def plain_matching(hf, prompts):
    """Prefix matching of every head, by a loop over prompts with the attention that Hugging Face returns."""
    every = []
    for prompt in prompts:
        with torch.no_grad():
            out = hf(torch.tensor([prompt.tokens]), output_attentions=True)
        rows = torch.stack([layer[0, :, prompt.target] for layer in out.attentions]).double()
        attended = torch.stack([rows[..., place] for place in prompt.label_positions], -1)
        same = torch.tensor([c == prompt.answer for c in prompt.label_classes])
        inside, outside = attended[..., same].sum(-1), attended[..., ~same].sum(-1)
        every.append(inside - outside / (len(prompts.labels) - 1))
    return torch.stack(every).mean(0)


@pytest.mark.parametrize("family", ["gpt2", "llama", "neox"])
def test_equals_plain_hugging_face(family):
    """Top heads, overlap and rank correlation over seeds and subsets."""
    model, hf, k = tiny_model(family), tiny_hf(family), 3
    how = {"shots": 1, "n": 6, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(TASK, model, seed=2, **how)
    ours = Stability(HeadScores(), k=k, over=("seed", "subset"), seeds=3, subsets=2)(
        model, prompts, **QUIET
    )
    parts = [
        v.prompts for v in Stability(over=["subset"], subsets=2).variants_of(adapt(model), prompts)
    ]
    assert sorted(p.text for part in parts[1:] for p in part) == sorted(p.text for p in prompts)
    seeds = [icl.build_prompts(TASK, model, seed=seed, **how) for seed in (2, 3, 4)]
    for over, batches in (("seed", seeds), ("subset", parts[1:])):
        scores = [plain_matching(hf, batch).flatten() for batch in batches]
        chosen = [set(score.argsort(descending=True)[:k].tolist()) for score in scores]
        pairs = list(combinations(range(len(scores)), 2))
        overlap = sum(len(chosen[i] & chosen[j]) / len(chosen[i] | chosen[j]) for i, j in pairs)
        ranks = sum(spearmanr(scores[i], scores[j]).statistic for i, j in pairs)
        assert ours.line("overlap", over).value == pytest.approx(overlap / len(pairs), abs=1e-9)
        assert ours.line("correlation", over).value == pytest.approx(ranks / len(pairs), abs=1e-5)
        share = sum(
            torch.zeros(len(scores[0]), dtype=torch.float64).index_fill(0, torch.tensor([*c]), 1.0)
            for c in chosen
        ) / len(chosen)
        place = [line.over for line in ours.lines if line.measure == "overlap"].index(over)
        assert torch.equal(ours.shares[place].flatten(), share)


def test_planted_heads_recur(found):
    names = {f"{layer}.{head}" for layer, head in FALSE_INDUCTION_HEADS}
    for over, count in (("seed", 5), ("label set", 3), ("subset", 4)):
        line = found.line("overlap", over)
        assert set(line.heads) == set(line.clear) == names
        assert (line.value, line.status, line.held) == (1.0, "supported", count)
        assert len(line.names) == line.runs == count
        assert line.p < 0.01
    assert found.status == "supported"
    assert found.line("overlap", "seed").names == ("0", "1", "2", "3", "4")


def test_an_untrained_network_ranks_heads_alike_but_none_stands_out(planted):
    """Attention to label words depends on the weights alone: it recurs beyond chance, and is no evidence."""
    model = icl.untrained(planted[0], 0)
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=12)
    ours = Stability(over=["seed"])(model, pair, **QUIET)
    assert ours.status == "not shown"
    same = Stability(over=["seed"], quantity="label_attending")(model, pair, **QUIET)
    line = same.line("overlap", "seed")
    assert line.p <= 0.025
    assert (line.clear, line.status, same.status) == (None, *["cannot be judged"] * 2)


def test_critical_layers(planted):
    model, pair = planted
    ours = Stability(LayerAccuracy(), over=["seed"], seeds=3)(model, pair, **QUIET)
    line = ours.line("distance", "seed")
    assert len(set(line.layers)) == 1
    assert (line.value, line.held) == (0.0, 3)
    assert line.chance == pytest.approx((8**2 - 1) / 24)
    assert ours.line("claim", "seed").holds == ("supported",) * 3
    layers, claims = ours.figures()
    WORDS(layers.answer, "layers_answer")
    assert "overlap" not in layers.answer + claims.answer + ours.summary()


def test_runs_without_a_critical_layer_do_not_agree():
    none, some = Seen(entries=9), Seen(critical=4.0, entries=9)

    def line(*runs):
        lines = lines_over(
            "seed", list(map(str, runs)), [[{"a": r} for r in runs]], k=1, within="layer"
        ).lines
        return next(line for line in lines if line.measure == "distance")

    assert line(none, none, none).status == "cannot be judged"
    assert line(none, none, none).held == 0
    assert line(some, some, some, none, none, none).status == "cannot be judged"
    most = line(some, some, some, none)
    assert (most.status, most.holds) == ("supported", ("supported",) * 3 + ("cannot be judged",))


def test_claims_hold_at_values_where_most_runs_support_them():
    yes, no = Seen(claims={"It: is": "supported"}), Seen(claims={"It: is": "not shown"})
    groups = [
        [{"a": yes}, {"a": yes}],
        [{"a": yes}, {"a": no}],
        [{"a": no}, {"a": no}],
        [{"a": yes}, None],
    ]
    (line,) = lines_over("format", ["x", "y"], groups, k=5, within="layer").lines
    assert (line.of, line.holds, line.held, line.runs) == (
        "It: is",
        ("supported", "not shown"),
        1,
        7,
    )
    assert line.status == "mixed"
    (alone,) = lines_over("seed", ["0", "1"], [[{"a": yes}, {"a": yes}]], k=5, within="layer").lines
    assert alone.status == "supported"


def test_two_runs_are_not_judged(planted):
    model, pair = planted
    line = Stability(k=3, over=["seed"], seeds=2)(model, pair, **QUIET).line("overlap", "seed")
    assert (line.value, line.low, line.status) == (1.0, None, "cannot be judged")
    assert line.outcome == ("few", ())


def test_variants(planted):
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, seed=1)
    made = Stability(over=["template", "label set"], templates=["{text} => {label}"]).variants_of(
        adapt(model), prompts
    )
    assert [(v.over, v.name) for v in made] == [
        ("", "original"),
        ("template", "{text} => {label}"),
        *(("label set", name) for name in ("letters", "numbers", "nonsense")),
    ]
    assert " => " in made[1].prompts[0].text
    assert made[2].prompts.labels == ("A", "B")
    for variant in made:  # the same texts and answers
        assert torch.equal(variant.prompts.answers, prompts.answers)
        assert variant.prompts.source["seed"] == 1


def test_variants_that_change_nothing_are_no_runs():
    """Equal prompts agree by construction: as further runs they would make agreement look certain."""
    model = tiny_model("gpt2")
    pattern = TASK.template.pattern
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, seed=1)

    def names(batch, **fields):
        return [v.name for v in Stability(**fields).variants_of(adapt(model), batch)][1:]

    assert names(prompts, over=["template"]) == [_title(t) for t in TEMPLATES]
    usual = replace(TASK, template=Template(TEMPLATES[1], TASK.template.separator))
    same = icl.build_prompts(usual, model, shots=1, n=4, seed=1)
    assert names(same, over=["template"]) == [_title(t) for t in TEMPLATES if t != TEMPLATES[1]]
    lettered = icl.build_prompts(relabelled(TASK, "letters"), model, shots=1, n=4)
    assert names(lettered, over=["label set"]) == ["numbers", "nonsense"]
    with WORDS.raises(PromptError, "template_is_the_given_one"):
        names(prompts, over=["template"], templates=[TEMPLATES[0], pattern])
    with WORDS.raises(PromptError, "template_twice"):
        names(prompts, over=["template"], templates=[TEMPLATES[0], TEMPLATES[0]])
    with WORDS.raises(PromptError, "label_set_twice"):
        names(prompts, over=["label set"], label_sets=["letters", ("A", "B")])
    with WORDS.raises(PromptError, "label_set_is_the_given_one"):
        names(lettered, over=["label set"], label_sets=["letters", "numbers"])
    # Without demonstrations other label words are other candidates after equal texts.
    bare = icl.build_prompts(TASK, model, shots=0, n=4)
    assert names(bare, over=["label set"]) == ["letters", "numbers", "nonsense"]


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("one_seed", {"seeds": 1}),
        ("no_template", {"templates": []}),
        ("no_label_set", {"label_sets": ()}),
        ("one_subset", {"subsets": 1}),
    ],
)
def test_a_single_run_is_refused(key, fields):
    with WORDS.raises(RunError, key):
        Stability(**fields)
    (axis,) = {"seed", "template", "label set", "subset"} - set(LEFT[key])
    assert Stability(over=LEFT[key], **fields).over == LEFT[key]
    assert axis.split()[0] in next(iter(fields))


LEFT = {
    "one_seed": ("template", "label set", "subset"),
    "no_template": ("seed", "label set", "subset"),
    "no_label_set": ("seed", "template", "subset"),
    "one_subset": ("seed", "template", "label set"),
}
"""Axes without the one that has a single run."""


@pytest.mark.usefixtures("unchecked")
def test_axes_are_named():
    with WORDS.raises(RunError, "no_list"):
        Stability(over="foo")
    with WORDS.raises(RunError, "no_axis"):
        Stability(over=["foo"])


def test_half_of_the_heads_are_too_many(planted):
    """Of half of all heads, chance has one in most runs for every other head."""
    model, pair = planted
    with WORDS.raises(RunError, "too_many_heads", "k=14", 28):
        Stability(k=14, over=["seed"])(model, pair, **QUIET)
    assert Stability(k=13, over=["subset"])(model, pair, **QUIET).overlaps
    runs = Seen(torch.rand(2, 3)), Seen(torch.rand(2, 3))
    with WORDS.raises(ResultError, "too_many_heads", "k=3", 6):
        lines_over("seed", ["0", "1"], [[{"a": run} for run in runs]], k=3, within="layer")
    assert Stability(LayerAccuracy(), k=99, over=["subset"])(model, pair, **QUIET).lines


def test_rank_correlations_have_no_status(found):
    line = found.line("correlation", "seed")
    assert (line.status, line.holds) == (None, ())
    frame = found.to_pandas()
    rows = frame[frame.measure == "correlation"]
    assert rows.status.isna().all()
    assert rows.holds.isna().all()
    others = frame[frame.measure != "correlation"]
    assert others.status.notna().all()
    assert others.holds.notna().all()


def test_label_words_keep_white_space():
    task = load_task("reviews")
    assert relabelled(task, "letters").labels == ("A", "B")
    spaced = replace(
        task, template=Template("Review: {text}\nSentiment:{label}"), labels=(" no", " yes")
    )
    assert relabelled(spaced, ("u", "v")).labels == (" u", " v")
    with WORDS.raises(PromptError, "too_few_words"):
        relabelled(task, ("A",))


def test_a_measurement_with_a_seed_is_repeated_with_others(planted):
    """Induction scores ignore the prompts: only the seed of their tokens differs."""
    model, pair = planted
    ours = Stability(InductionScores(n=4), over=["seed"], seeds=3, k=3)(model, pair, **QUIET)
    line = ours.line("correlation", "seed")
    assert line.value < 1.0 or ours.line("overlap", "seed").status == "supported"
    subsets = Stability(InductionScores(n=4), over=["subset"])(model, pair, **QUIET)
    assert [line.measure for line in subsets.lines] == [
        "claim"
    ]  # the same scores agree by construction


def test_by_name():
    assert Stability("head-scores").repeated == HeadScores()
    with WORDS.raises(RunError, "no_measurement", "head_score"):
        Stability("head_score")
    with WORDS.raises(RunError, "needs_variants"):
        Stability("compare_heads")
    with WORDS.raises(RunError, "empty"):
        Stability(over=())


def test_rejected(planted):
    model, (true, _) = planted
    with WORDS.raises(PromptError, "chosen_prompts"):
        Stability(over=["seed"])(model, true[:4], **QUIET)
    assert Stability(over=["subset"], subsets=2)(model, true[:6], **QUIET).lines
    with WORDS.raises(PromptError, "too_many_subsets"):
        Stability(over=["subset"], subsets=40)(model, true, **QUIET)
    with WORDS.raises(PromptError, "label_words"):
        Stability(over=["label set"], label_sets=[["a"]])(model, true, **QUIET)
    with WORDS.raises(RunError, "nothing"):
        Stability(Predict(), over=["subset"])(model, true, **QUIET)
    with WORDS.raises(ResultError, "no_quantity"):
        Stability(over=["subset"], quantity="count")(model, true, **QUIET)


def test_no_such_line(found):
    with WORDS.raises(ResultError, "no_line"):
        found.line("claim", "template")


def test_saved_and_loaded(found, tmp_path):
    loaded = StabilityResult.load(found.save(tmp_path / "r"))
    assert loaded.lines == found.lines
    assert loaded.to_pandas().equals(found.to_pandas())
    assert all(isinstance(line, Line) for line in loaded.lines)


def test_said(found):
    keys = ("agreement_answer", "claims_answer", "heads_answer")
    for figure, key in zip(found.figures(), keys, strict=True):
        WORDS(figure.answer, key)
    WORDS(found.summary(), "summary")


def test_drawn(found):
    assert found.on_page() == ("agreement", "claims", "heads")
    bars = found.drawing("agreement")
    assert bars.values.shape == (6, 2)
    assert bars.values[0].tolist() == [1.0, found.line("overlap", "seed").chance]
    ((conclusion, *held),) = found.drawing("claims").rows
    WORDS.exactly(conclusion, "conclusion")
    assert held == ["5 of 5", "3 of 3", "4 of 4"]
    grids = found.drawing("heads")
    assert grids.grids[0].marked == tuple((h, layer) for layer, h in FALSE_INDUCTION_HEADS)


def test_on_a_page_and_in_a_sweep(planted, tmp_path):
    model, pair = planted
    measured = Stability(k=3, over=["seed"], seeds=3)
    report = icl.measure(model, pair, measured, **QUIET)
    assert [section.key for section in report.sections()] == ["stability"] * 3
    runs = icl.sweep(model, icl.planted_task(), [measured], seeds=[0], n=24, shots=2, **QUIET)
    ((_, run),) = runs
    assert run.stability.status == report["stability"].status == "supported"
    assert [line.names for line in run.stability.lines] == [("0", "1", "2")] * 2


def test_what_a_result_shows(found, planted):
    model, (_, false) = planted
    scores = icl.head_scores(model, false, **QUIET)
    shown = seen(scores, "heads")
    assert torch.equal(shown.scores, scores.prefix_matching)
    assert shown.clear == {f"{layer}.{head}" for layer, head in scores.clear()}
    assert seen(found, "a").claims == {"a": "supported"}
    assert seen(icl.predict(model, false, **QUIET), "p") == Seen()
