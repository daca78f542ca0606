"""Diagnosis: projections and distances by plain Hugging Face, AUC and ranks by other libraries."""

from itertools import combinations

import pytest
import torch
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import running
from icl_mech.measurements.confusion.agreement import normalised, pair_auc, rank_correlation
from icl_mech.measurements.confusion.confusion import ConfusionResult, diagnose_confusion, diagnosis
from icl_mech.measurements.confusion.key_distances import (
    KeyReading,
    QueryReading,
    key_distances,
    principal_directions,
)
from icl_mech.models import adapt
from icl_mech.plots import figure
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.results.wording import said
from tests.engine.cases import LABEL_TOKENS, prompt, ragged
from tests.golden_data import arrays, golden_model, label_words_prompts
from tests.margins import close_pairs
from tests.prompts.cases import KINGDOMS, OBJECT, TOPICS, toy_task
from tests.said import Words
from tests.tiny import D_HEAD, FAMILIES, N_HEADS, N_KV_HEADS, N_LAYERS, tiny_hf, tiny_model

WORDS = Words(__file__)

LAYERS = tuple(range(N_LAYERS))
GROUPED = ("llama", "gemma3")


def full(count=6):
    """Prompts of 12 to 15 tokens that show all three classes, class 0 twice."""
    return PromptBatch(
        tuple(
            prompt(
                12 + i % 4, (2, 4, 7, 9), (i % 3, 0, (i + 1) % 3, (i + 2) % 3), answer=i % 3, seed=i
            )
            for i in range(count)
        )
    )


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return tiny_model(family)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def plain_projections(family, prompt):
    """Outputs of the query and key layers, `[layer, pos, d]`, without TransformerLens."""
    hf = tiny_hf(family)
    endings = {"gpt2": ("attn.c_attn",), "neox": ("attention.query_key_value",)}.get(
        family, ("q_proj", "k_proj")
    )
    seen = []
    for name, module in hf.named_modules():
        if name.endswith(endings):
            module.register_forward_hook(
                lambda module, args, output, name=name: seen.append((name, output[0]))
            )
    with torch.no_grad():
        hf(torch.tensor([prompt.tokens]))
    if family == "gpt2":
        pairs = [output.chunk(3, dim=-1)[:2] for _, output in seen]
    elif family == "neox":
        heads = [output.reshape(-1, N_HEADS, 3, D_HEAD) for _, output in seen]
        pairs = [(own[:, :, 0].flatten(1), own[:, :, 1].flatten(1)) for own in heads]
    else:
        queries = [output for name, output in seen if name.endswith("q_proj")]
        keys = [output for name, output in seen if name.endswith("k_proj")]
        pairs = list(zip(queries, keys, strict=True))
    queries, keys = (torch.stack(list(side)) for side in zip(*pairs, strict=True))
    if family in GROUPED:
        own = keys.unflatten(-1, (N_KV_HEADS, D_HEAD))
        groups = [head * N_KV_HEADS // N_HEADS for head in range(N_HEADS)]
        keys = own[:, :, groups].flatten(2)
    return queries, keys


def plain_keys(family, prompt):
    """Mean key of each class, `[layer, label, d]`."""
    _, keys = plain_projections(family, prompt)
    shown = list(zip(prompt.label_positions, prompt.label_classes, strict=True))
    positions = [[p for p, c in shown if c == label] for label in range(3)]
    return torch.stack([keys[:, own].mean(1) for own in positions], dim=1)


# Projections


def test_queries_and_keys_are_those_of_the_plain_model(family, model):
    prompts = full()
    queries, keys = run(model, prompts, [QueryReading(LAYERS), KeyReading(LAYERS)])
    for number, one in enumerate(prompts):
        expected, _ = plain_projections(family, one)
        assert_close(queries[:, number], expected[:, one.target], atol=1e-5, rtol=1e-4)
        assert_close(keys[number], plain_keys(family, one), atol=1e-5, rtol=1e-4)


def test_distances_are_those_of_scikit_learn(family, model):
    prompts = full()
    found = diagnose_confusion(model, prompts, components=4)
    queries = torch.stack([plain_projections(family, p)[0][:, p.target] for p in prompts], dim=1)
    keys = torch.stack([plain_keys(family, p) for p in prompts])
    for layer in LAYERS:
        pca = PCA(n_components=4).fit(queries[layer].numpy())
        weights = torch.from_numpy(pca.components_.T * pca.singular_values_)
        projected = (keys[:, layer] @ weights).double()
        expected = torch.cdist(projected, projected).mean(0)
        assert_close(found.per_prompt[:, layer].mean(0), expected, atol=1e-3, rtol=1e-3)
        assert_close(found.distances[layer], expected / expected.max(), atol=1e-4, rtol=0)
    one = diagnose_confusion(model, prompts, layer=1, components=4)
    assert_close(one.distance, found.distances[1], atol=1e-6, rtol=0)
    assert one.layers == (1,)
    assert one.layer == 1


def test_label_words_behind_the_target_do_not_count(gpt2):
    whole = prompt(12, (2, 4, 6, 9), (0, 1, 2, 1), answer=2, seed=11)
    read = {"label_tokens": LABEL_TOKENS, "answer": 2, "target": 7}
    longer = icl.Prompt.from_positions(
        whole.tokens, label_positions=(2, 4, 6, 9), label_classes=(0, 1, 2, 1), **read
    )
    cut = icl.Prompt.from_positions(
        whole.tokens[:8], label_positions=(2, 4, 6), label_classes=(0, 1, 2), **read
    )
    found, expected = (
        diagnose_confusion(gpt2, full(), contexts=PromptBatch((p,))).per_prompt
        for p in (longer, cut)
    )
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_equal_demonstrations_are_run_once(gpt2, monkeypatch):
    task = toy_task(KINGDOMS, OBJECT)
    prompts = icl.build_prompts(task, gpt2, n=9, shots=2)
    other = icl.build_prompts(task, gpt2, n=3, shots=2, seed=5)
    mixed = PromptBatch((*prompts[:2], *other, *prompts[2:4]), prompts.source)
    counts = []

    def counting(model, batch, readings, *args, **options):
        if any(isinstance(reading, KeyReading) for reading in readings):
            counts.append(len(batch))
        return run(model, batch, readings, *args, **options)

    monkeypatch.setattr(running, "run", counting)
    found = diagnose_confusion(gpt2, mixed, query_prompts=prompts)
    assert counts == [2]
    for number in (0, 3, 6):
        alone = diagnose_confusion(
            gpt2, mixed, contexts=mixed, context=number, query_prompts=prompts
        )
        assert_close(
            found.per_prompt[number, 1:], alone.per_prompt[0, 1:], atol=1e-5, rtol=1e-5
        )  # layer 0 knows nothing but the target's place


# Distances


def test_directions_are_those_of_the_centred_queries():
    line = torch.tensor([[0.0, 5.0], [4.0, 5.0], [2.0, 5.0]])
    (direction,) = principal_directions(line[None], 10)
    assert_close(direction.abs(), torch.tensor([[8.0**0.5], [0.0]], dtype=torch.float64))
    keys = torch.tensor([[1.0, 7.0], [3.0, -7.0], [1.0, 0.0]])[None, None]
    distances = key_distances(keys, [direction])[0, 0]
    expected = 8.0**0.5 * torch.tensor([[0, 2, 0], [2, 0, 2], [0, 2, 0]]).double()
    assert_close(distances, expected, atol=1e-12, rtol=0)


def test_as_many_directions_as_asked_for_and_no_more_than_the_rank():
    queries = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    queries[1, :, 2:] = 3.0
    assert [own.shape for own in principal_directions(queries, 10)] == [(8, 4), (8, 2)]
    assert [own.shape for own in principal_directions(queries, 3)] == [(8, 3), (8, 2)]


def test_float_noise_is_no_direction():
    noise = 1e-7 * torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    (direction,) = principal_directions(torch.ones(1, 5, 8) + noise, 10)
    assert direction.shape == (8, 0)
    assert key_distances(torch.randn(2, 1, 3, 8), [direction]).isnan().all()


def test_the_largest_distance_becomes_one():
    raw = torch.tensor([[[0.0, 2.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert_close(normalised(raw)[0], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert normalised(raw)[1].isnan().all()


# Measured confusion


def test_auc_of_a_pair_by_hand():
    """Margins of class 0: 2, 0 | 1, -1: three of four comparisons are right."""
    logits = torch.tensor(
        [[2.0, 0.0, 9.0], [0.0, 0.0, 9.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 0.0, 0.0]]
    )
    answers = torch.tensor([0, 0, 1, 1, 2])
    assert float(pair_auc(logits, answers, (0, 1))) == 0.75


def test_auc_of_probability_ratios():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, generator=generator)
    answers = torch.randint(0, 3, (40,), generator=generator)
    weights = torch.randint(0, 3, (4, 40), generator=generator).float()
    probs = logits.double().softmax(-1)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        inside = (answers == a) | (answers == b)
        truth, ratio = (answers == a)[inside], (probs[:, a] / probs[:, b])[inside]
        expected = roc_auc_score(truth, ratio)
        assert float(pair_auc(logits, answers, (a, b))) == pytest.approx(expected, abs=1e-12)
        found = pair_auc(logits, answers, (a, b), weights)
        for row, value in zip(weights[:, inside], found, strict=True):
            expected = roc_auc_score(truth, ratio, sample_weight=row)
            assert float(value) == pytest.approx(expected, abs=1e-6)


def test_ranks_agree_with_scipy():
    generator = torch.Generator().manual_seed(0)
    one = torch.randint(0, 4, (2, 6), generator=generator).double()
    other = torch.randint(0, 4, (3, 6), generator=generator).double()
    found = rank_correlation(one, other)
    for r in range(3):
        for layer in range(2):
            expected = spearmanr(one[layer], other[r]).statistic
            assert float(found[r, layer]) == pytest.approx(expected, abs=1e-12)


def test_ranks_that_do_not_exist():
    flat = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, torch.nan, 3.0]])
    found = rank_correlation(flat, torch.tensor([[3.0, 2.0, 1.0], [2.0, 2.0, 2.0]]))
    assert float(found[0, 1]) == pytest.approx(-1.0)
    assert int(found.isnan().sum()) == 5
    assert rank_correlation(torch.ones(1, 1), torch.ones(1, 1)).isnan().all()


def made(logits, answers, distances, layers=(4,)):
    """A diagnosis of given numbers over prompts of three or more classes."""
    n_labels = logits.shape[1]
    tokens = tuple(range(301, 301 + n_labels))
    prompts = PromptBatch(
        tuple(
            prompt(4, (1,), (0,), answer=int(a), seed=i, label_tokens=tokens)
            for i, a in enumerate(answers)
        )
    )
    return diagnosis(logits, prompts, distances, layers)


def test_both_matrices_and_their_correlation():
    """Nearer classes are confused more: 0-1 always, 0-2 sometimes, 1-2 never."""
    answers = torch.tensor([0, 1, 2]).repeat(20)
    means = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, -3.0], [0.0, -3.0, 1.5]])
    logits = means[answers] + torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    near, far = (torch.zeros(3, 3), torch.zeros(3, 3))
    for (a, b), distance in {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 5.0}.items():
        near[a, b] = near[b, a] = distance
        far[a, b] = far[b, a] = 6 - distance
    per_prompt = torch.stack([near, far])[None].repeat(2, 1, 1, 1).double()
    per_prompt[0, 0] *= 3
    found = made(logits, answers, per_prompt, layers=(4, 7))
    auc = found.confusion_auc
    assert auc[0, 1] < auc[0, 2] < auc[1, 2]
    assert torch.equal(auc, auc.T)
    assert torch.equal(auc.diagonal(), torch.ones(3, dtype=torch.float64))
    assert_close(found.distances[0], near.double() / 5)
    assert_close(found.correlation, torch.tensor([1.0, -1.0], dtype=torch.float64))
    assert (found.auc_low <= auc).all()
    assert (auc <= found.auc_high).all()
    assert found.rank_correlation(4) == pytest.approx((1.0, float(found.low[0]), 1.0))
    assert found.rank_correlation(7) == pytest.approx((-1.0, -1.0, float(found.high[1])))
    assert found.rank_correlation() == found.rank_correlation(found.layer)
    assert found.layer == 7  # at two thirds
    assert float(found.auc_low[0, 1]) < float(auc[0, 1]) < float(found.auc_high[0, 1])
    assert "three pairs" in found.notes[0]
    with WORDS.raises(ResultError, "both_matrices_their_correlation", "5", "[4, 7]"):
        found.rank_correlation(5)


@pytest.mark.slow
def test_intervals_follow_the_prompts():
    """With more prompts the intervals are narrower, around the same AUC."""
    generator = torch.Generator().manual_seed(0)
    answers = torch.arange(4).repeat(10)
    logits = torch.randn(40, 4, generator=generator)
    distances = torch.rand(1, 1, 4, 4, generator=generator).double()
    few = made(logits, answers, distances)
    many = made(logits.repeat(16, 1), answers.repeat(16), distances)
    assert_close(few.confusion_auc, many.confusion_auc)
    assert_close(few.correlation, many.correlation)
    apart = ~torch.eye(4).bool()
    widths = [(d.auc_high - d.auc_low)[apart] for d in (few, many)]
    assert float((widths[0] / widths[1]).min()) > 3.0
    assert many.notes == ()


def test_two_classes_are_nothing_to_rank(gpt2):
    prompts = icl.build_prompts(toy_task(), gpt2, n=8)
    found = diagnose_confusion(gpt2, prompts)
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert all(torch.equal(own, expected) for own in found.distances if not own.isnan().any())
    assert found.correlation.isnan().all()
    WORDS(found.notes[0], "two_classes_nothing_rank")
    WORDS(found.summary(), "two_classes_nothing_rank_2", "1")
    figure(found.drawing())
    with WORDS.raises(ResultError, "two_classes_nothing_rank_3", "2"):
        found.drawing("layers")


def test_a_class_without_prompts_is_not_measured():
    answers = torch.tensor([0, 1, 3]).repeat(6)
    logits = torch.randn(18, 4, generator=torch.Generator().manual_seed(0))
    found = made(logits, answers, torch.rand(1, 1, 4, 4).double())
    known = ~found.confusion_auc.isnan()
    expected = torch.ones(4, 4).bool()
    expected[2] = expected[:, 2] = False
    assert torch.equal(known, expected)
    assert not found.correlation.isnan().any()
    WORDS(found.summary(), "class_without_prompts_measured", "2")
    figure(found.drawing())


def test_pairs_told_apart_perfectly_are_ties():
    answers = torch.arange(4).repeat(5)
    logits = 9 * torch.eye(4)[answers]
    logits[answers == 1, 0] = torch.tensor([0.0, 1.0, 10.0, 19.0, 20.0])  # 9 of class 1
    found = made(logits, answers, torch.rand(1, 1, 4, 4).double())
    assert float(found.confusion_auc[0, 1]) == 0.6
    WORDS(found.summary(), "pairs_told_apart_perfectly", "5", "1")


def test_resamples_that_are_all_equal_leave_no_interval():
    """AUCs of 1 are 1 in every resample, whatever other prompts would give."""
    answers = torch.arange(4).repeat(6)
    logits = 9 * torch.eye(4)[answers]
    logits[answers == 1, 0] = 20.0  # 0 and 1 always wrong, the others never
    found = made(logits, answers, torch.rand(1, 1, 4, 4).double())
    value, low, high = found.rank_correlation()
    assert 0 < abs(value) < 1
    assert (low != low, high != high) == (True, True)
    assert found.status == "cannot be judged"
    WORDS(found.summary(), "resamples_all_equal_leave_2")


def test_rare_classes_are_redrawn_or_leave_no_interval():
    logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    distances = torch.rand(1, 1, 4, 4).double()
    some = made(logits[:12], torch.arange(4).repeat(3), distances)
    WORDS(some.summary(), "rare_classes_redrawn_leave")
    assert not some.low.isnan().any()
    alone = made(logits[:3], torch.tensor([0, 1, 1]), distances)
    assert alone.confusion_auc[0, 1] in (0.0, 0.5, 1.0)


def test_queries_that_are_all_alike():
    llama = tiny_model("llama")  # rotary: in layer 0 a query knows its own token only
    prompts = icl.build_prompts(toy_task(TOPICS), llama, n=8)
    with WORDS.raises(ResultError, "queries_all_alike", "0"):
        diagnose_confusion(llama, prompts, layer=0)
    found = diagnose_confusion(llama, prompts)
    assert found.distances[0].isnan().all()
    assert found.correlation[0].isnan()
    assert not found.correlation[1:].isnan().any()
    WORDS(found.summary(), "queries_all_alike_2", "0")
    figure(found.drawing("layers"))
    figure(found.drawing(layer=1))


# What is read from where


def test_contexts_queries_and_measured_prompts_are_kept_apart(gpt2):
    prompts, others = full(), PromptBatch(full(9).prompts[6:])
    plain = diagnose_confusion(gpt2, prompts)
    keys = diagnose_confusion(gpt2, prompts, contexts=others)
    one = diagnose_confusion(gpt2, prompts, contexts=others, context=1)
    own = diagnose_confusion(gpt2, prompts, context=2)
    queries = diagnose_confusion(gpt2, prompts, query_prompts=full(9))
    for other in (keys, one, own, queries):
        assert_close(other.label_logits, plain.label_logits, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(other.distances, plain.distances, atol=1e-3)
    assert_close(one.per_prompt[0], keys.per_prompt[1], atol=1e-4, rtol=1e-4)
    assert_close(own.per_prompt[0], plain.per_prompt[2], atol=1e-4, rtol=1e-4)
    assert [len(d.per_prompt) for d in (plain, keys, one, own)] == [6, 3, 1, 1]
    assert keys.provenance["variants"]["contexts"] == {"digest": others.digest, "count": 3}
    assert plain.provenance["variants"]["contexts"] is None
    assert one.provenance["variants"]["context"] == 1


def test_the_layer_shown_stands_at_two_thirds(gpt2):
    found = diagnose_confusion(gpt2, full())
    assert found.layers == LAYERS
    assert found.layer == 2
    assert torch.equal(found.distance, found.distances[2])


def test_drawings_and_table_hold_the_numbers(gpt2):
    found = diagnose_confusion(gpt2, full())
    sides = found.drawing(layer=1)
    predicted, measured = sides.matrices
    WORDS.exactly(predicted.title, "drawings_table_hold_numbers", "1")
    assert measured.title.startswith("Measured: AUC")
    apart = ~torch.eye(3).bool()
    for shown, values in ((predicted, found.distances[1]), (measured, found.confusion_auc)):
        assert torch.equal(shown.values[apart], values[apart])
        assert shown.values.diagonal().isnan().all()
        assert shown.diagonal
        assert shown.rows == shown.columns == found.labels
    assert torch.equal(measured.low[apart], found.auc_low[apart])
    assert torch.equal(measured.high[apart], found.auc_high[apart])
    assert predicted.ends == (1.0, 0.0)  # near classes are dark
    assert measured.ends == (1.0, min(0.5, float(found.confusion_auc[apart].min())))
    assert said(found.rank_correlation(1)) in sides.note
    curve = found.drawing("layers")
    assert torch.equal(curve.values[0], found.correlation)
    assert torch.equal(curve.low[0], found.low)
    assert torch.equal(curve.high[0], found.high)
    assert curve.levels == ((0.0, "no relation"),)
    table = found.to_pandas()
    assert list(table["pair"]) == ["class 0 / class 1", "class 0 / class 2", "class 1 / class 2"]
    assert set(table["layer"]) == {found.layer}
    assert table["distance"][2] == float(found.distance[1, 2])
    assert table["auc"][2] == float(found.confusion_auc[1, 2])
    assert table["auc_low"][2] == float(found.auc_low[1, 2])
    by_layer = found.to_pandas("distance")
    row = by_layer[(by_layer["layer"] == 1) & (by_layer["pair"] == "class 1 / class 2")].iloc[0]
    assert row["distance"] == pytest.approx(float(found.distances[1, 1, 2]))
    with WORDS.raises(ResultError, "drawings_table_hold_numbers_2", "'matrix'", "'matrices'"):
        found.drawing("matrix")
    with WORDS.raises(ResultError, "drawings_table_hold_numbers_3", "9"):
        found.drawing(layer=9)


def test_saved_and_loaded(gpt2, tmp_path):
    found = diagnose_confusion(gpt2, full())
    loaded = Result.load(found.save(tmp_path / "diagnosis"))
    assert type(loaded) is ConfusionResult
    assert torch.equal(loaded.distances, found.distances)
    assert loaded.layers == found.layers
    assert loaded.notes == found.notes
    assert loaded.summary() == found.summary()


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"layer": 3}, RunError, "layer3 tiny-gpt2 0"),
        ({"layer": -1}, RunError, "layer-1"),
        ({"components": 0}, RunError, "components0 1"),
        ({"context": 6}, RunError, "context6 6"),
        ({"contexts": ragged()}, PromptError, "0 class2"),
        (
            {"query_prompts": PromptBatch((prompt(5, (), (), label_tokens=(301, 302, 309)),))},
            PromptError,
            "must label words",
        ),
    ],
)  # fmt: skip
def test_options_out_of_range(gpt2, options, error, words):
    with pytest.raises(error) as caught:
        diagnose_confusion(gpt2, full(), **options)
    WORDS(str(caught.value), words)


def test_prompts_without_answers(gpt2):
    with WORDS.raises(PromptError, "prompts_without_answers"):
        diagnose_confusion(gpt2, ragged(answers=False))


def test_a_model_without_projections(gpt2, monkeypatch):
    adapted = adapt(gpt2)
    monkeypatch.setattr(type(adapted), "has_site", lambda self, name: name != "k")
    with WORDS.raises(RunError, "model_without_projections"):
        diagnose_confusion(adapted, full())


# The reference


@pytest.mark.tl3
@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_diagnosis_of_the_reference(task):
    golden = arrays("label_words", "error.npz")
    distances = torch.from_numpy(golden[f"{task}_distances"])
    expected = torch.from_numpy(golden[f"{task}_distances_normalized"])
    auc = torch.from_numpy(golden[f"{task}_confusion_auc"])
    model = golden_model("label_words", "tiny_gpt2")
    prompts, contexts, queries = (
        label_words_prompts(f"error_{name}/{task}") for name in ("confusion", "contexts", "queries")
    )
    options = {"contexts": contexts, "context": 0, "query_prompts": queries, "components": 10}
    found = diagnose_confusion(model, prompts, **options)
    # Layer 0 has fewer than ten real directions (README, 6c); the others weigh nothing.
    assert_close(found.distances, expected, atol=1e-5, rtol=0)
    assert_close(found.per_prompt.mean(0), distances, rtol=1e-5, atol=1e-6)
    for a, b in combinations(range(len(auc)), 2):
        inside = (prompts.answers == a) | (prompts.answers == b)
        ratio = (found.label_logits[:, a] - found.label_logits[:, b])[inside]
        assert close_pairs(ratio, prompts.answers[inside] == a) == 0
    assert_close(found.confusion_auc, auc, atol=1e-12, rtol=0)
    one = diagnose_confusion(model, prompts, layer=3, **options)
    assert_close(one.distance, expected[3], atol=1e-5, rtol=0)


@pytest.mark.tl3
@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_projections_of_the_reference(task):
    golden = arrays("label_words", "error.npz")
    model = golden_model("label_words", "tiny_gpt2")
    contexts, queries = (
        label_words_prompts(f"error_{name}/{task}") for name in ("contexts", "queries")
    )
    (keys,) = run(model, contexts, [KeyReading((0, 1, 2, 3))])
    (found,) = run(model, queries, [QueryReading((0, 1, 2, 3))])
    expected = torch.from_numpy(golden[f"{task}_keys"]).permute(2, 0, 1, 3)
    assert_close(keys, expected, atol=5e-5, rtol=0)
    assert_close(found, torch.from_numpy(golden[f"{task}_queries"]), atol=5e-5, rtol=0)
