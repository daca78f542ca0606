"""Compression under interventions: the same as whole prompts with both, and where it is refused."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import (
    Isolate,
    Prompt,
    PromptBatch,
    Reweight,
    ZeroHeads,
    ZeroLayers,
    build_prompts,
    predict,
)
from icl_mech._typing import Float, Tensor
from icl_mech.engine import fill_means, runs
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements import running
from icl_mech.measurements.compression.compare_compression import CompareCompression
from icl_mech.measurements.compression.compress_context import CompressContextResult
from icl_mech.measurements.compression.compress_demonstrations import (
    CompressDemonstrations,
    compress_demonstrations,
)
from icl_mech.measurements.compression.kept import anchor_positions, parts
from icl_mech.measurements.compression.stand_in import alone
from icl_mech.models import Site, adapt
from icl_mech.results.wording import said
from tests.golden_data import LABEL_WORDS, arrays, label_words_prompts
from tests.measurements.compression.cases import (
    WITHOUT_WINDOW,
    by_hiding,
    close,
    compare_compression,
    compress_context,
    task,
)
from tests.measurements.test_label_words_golden import hooked_model
from tests.said import Words
from tests.tiny import N_HEADS, N_LAYERS, tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

QUICK = {"progress": False}
BETA = torch.linspace(-1, 2, N_LAYERS * N_HEADS * 2).reshape(N_LAYERS, N_HEADS, 2)

EDITS = {
    "heads": [ZeroHeads([(0, 1), (1, 2)], at="all")],
    "heads at the target": [ZeroHeads([(1, 0)])],
    "mean": [ZeroHeads([(1, 0), (2, 3)], kind="mean")],
    "mean at all": [ZeroHeads([(1, 0)], kind="mean", at="all")],
    "layers": [ZeroLayers(1, part="mlp", at="all")],
    "label words": [Isolate([0, 1])],
    "random tokens": [Isolate([1], tokens="random", seed=1)],
    "reweighting": [Reweight(BETA)],
    "two": [Isolate([0]), ZeroHeads([(1, 1)], at="all")],
}


@dataclass(frozen=True, eq=False, repr=False)
class Add(Intervention):
    """Adds values of each prompt's own at one position; it says nothing about sharing."""

    values: Float[Tensor, "batch d_model"]
    position: int

    def hooks(self, segment):
        cells = [
            (row, segment.column(row, self.position), index)
            for row, index in enumerate(segment.indices)
        ]
        inside = [cell for cell in cells if cell[1] is not None]
        if not inside:
            return []
        rows, columns, indices = torch.tensor(inside).T

        def hook(activation):
            edited = activation.clone()
            edited[rows, columns] += self.values[indices].to(activation)
            return edited

        return [(Site("resid_pre", 1), hook)]


@pytest.fixture(scope="module", params=WITHOUT_WINDOW)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(task(), model, shots=2, n=6)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(gpt2):
    return build_prompts(task(), gpt2, shots=2, n=6)


def patch(model, count=6):
    generator = torch.Generator().manual_seed(0)
    # The third position is text of the first demonstration, which is left out.
    return Add(3 * torch.randn(count, adapt(model).info.d_model, generator=generator), 2)


# What comes out.


@pytest.mark.parametrize("name", EDITS)
def test_as_whole_prompts_with_both(setting, name):
    model, batch = setting
    edits = EDITS[name]
    found = compress_demonstrations(model, batch, interventions=edits, **QUICK)
    query = parts(batch[0]).query
    (ready,) = fill_means(adapt(model), batch, [edits])
    close(model)(found.label_logits, by_hiding(model, batch, found.kept[0], query, ready))
    plain = compress_demonstrations(model, batch, **QUICK)
    assert not torch.allclose(found.label_logits, plain.label_logits, atol=1e-3)
    full = predict(model, batch, interventions=edits)
    assert found.full_predicted.tolist() == full.predicted.tolist()
    assert [one["intervention"] for one in found.provenance["interventions"]] == [
        type(edit).__name__ for edit in edits
    ]


@pytest.mark.parametrize("name", [name for name in EDITS if "mean" not in name])
def test_text_anchors_are_edited_as_the_prompt_they_are(setting, name):
    model, batch = setting
    edits = EDITS[name]
    short = PromptBatch(
        tuple(alone(prompt, anchor_positions(prompt), parts(prompt).query) for prompt in batch)
    )
    found = compress_demonstrations(
        model, batch, method="text_anchor", interventions=edits, **QUICK
    )
    expected = predict(model, short, interventions=edits, path="whole")
    close(model)(found.label_logits, expected.label_logits)
    plain = compress_demonstrations(model, batch, method="text_anchor", **QUICK)
    assert not torch.allclose(found.label_logits, plain.label_logits, atol=1e-3)


def test_means_are_those_of_the_full_prompts(gpt2, prompts, monkeypatch):
    edit = ZeroHeads([(1, 0)], kind="mean", at="all")
    (ready,) = fill_means(adapt(gpt2), prompts, [[edit]])
    measured, original = [], runs.TargetMean

    def counted(sites):
        measured.append(sites)
        return original(sites)

    monkeypatch.setattr(runs, "TargetMean", counted)
    found = compare_compression(gpt2, prompts, draws=3, interventions=[edit], **QUICK)
    # Once for the full prompts, once for all stand-ins.
    assert len(measured) == 2
    given = compare_compression(gpt2, prompts, draws=3, interventions=ready, **QUICK)
    assert len(measured) == 2
    assert torch.equal(found.label_logits, given.label_logits)


def test_an_intervention_that_differs_by_prompt(setting):
    """Prompts with the same demonstrations must not see one cache."""
    model, batch = setting
    edit = patch(model)
    found = compress_demonstrations(model, batch, interventions=[edit], **QUICK)
    query = parts(batch[0]).query
    assert not set(found.kept[0]) >= set(range(query))
    expected = by_hiding(model, batch, found.kept[0], query, [edit])
    close(model)(found.label_logits, expected)
    shared = replace(edit, values=edit.values[[0]].expand(6, -1))
    zeroth = by_hiding(model, batch, found.kept[0], query, [shared])
    assert not torch.allclose(expected[1:], zeroth[1:], atol=1e-3)


def test_given_positions_of_mixed_prompts(gpt2):
    """Positions go by the number of a prompt in the run, not in the group that shares a cache."""
    one, two = (build_prompts(task(), gpt2, shots=1, n=3, seed=seed) for seed in (0, 1))
    mixed = PromptBatch(tuple(p for pair in zip(one, two, strict=True) for p in pair))
    positions = [[1 + i % 3] for i in range(6)]
    edit = Isolate([0, 1], positions=positions)
    found = compress_demonstrations(gpt2, mixed, interventions=[edit], **QUICK)
    for i, prompt in enumerate(mixed):
        alone_ = Isolate([0, 1], positions=[positions[i]])
        single = PromptBatch((prompt,))
        expected = by_hiding(gpt2, single, found.kept[i], parts(prompt).query, [alone_])
        close(gpt2)(found.label_logits[i], expected[0])


@pytest.mark.parametrize("name", ["heads", "label words", "reweighting", "two"])
def test_no_method_mixes_with_another(gpt2, prompts, name):
    table = compare_compression(gpt2, prompts, draws=3, interventions=EDITS[name], **QUICK)
    for row, method in enumerate(table.methods):
        single = compress_demonstrations(
            gpt2, prompts, method=method, draws=3, interventions=EDITS[name], **QUICK
        )
        assert torch.equal(table.label_logits[row], single.label_logits)


@pytest.mark.parametrize("path", ["auto", "whole"])
def test_memory_batches_and_path_change_no_number(gpt2, prompts, path):
    expected = compress_demonstrations(gpt2, prompts, interventions=EDITS["two"], **QUICK)
    for options in ({}, {"memory": 1}, {"batch_size": 2}):
        found = compress_demonstrations(
            gpt2, prompts, interventions=EDITS["two"], path=path, **options, **QUICK
        )
        close(gpt2)(found.label_logits, expected.label_logits)


def test_hidden_columns_stay_hidden(gpt2, prompts, monkeypatch):
    """Also where an intervention writes the whole pattern of a query's row."""
    edit = ZeroHeads([(1, 0), (2, 1)], kind="uniform_attention")
    cut = compress_demonstrations(gpt2, prompts, interventions=[edit], **QUICK)
    monkeypatch.setitem(vars(adapt(gpt2)), "takes_positions", False)
    hidden = compress_demonstrations(gpt2, prompts, interventions=[edit], **QUICK)
    assert hidden.provenance["cache"] == "hidden"
    close(gpt2)(hidden.label_logits, cut.label_logits)


@pytest.mark.parametrize("name", ["heads", "label words", "mean"])
def test_hidden_like_cut(gpt2, prompts, monkeypatch, name):
    cut = compress_demonstrations(gpt2, prompts, interventions=EDITS[name], **QUICK)
    monkeypatch.setitem(vars(adapt(gpt2)), "takes_positions", False)
    hidden = compress_demonstrations(gpt2, prompts, interventions=EDITS[name], **QUICK)
    close(gpt2)(hidden.label_logits, cut.label_logits)


@pytest.mark.hooked
@pytest.mark.parametrize("name", ["heads", "label words", "two"])
def test_a_hooked_transformer(name):
    """It counts positions itself: columns are hidden, of caches made under the interventions."""
    hooked = hooked_model(LABEL_WORDS / "tiny_gpt2")
    batch = label_words_prompts("icl/sst2_s1")[:4]
    keep = arrays("label_words", "compress.npz")["sst2_s1_kept"].tolist()
    edits = [Isolate([0, 1])] if name == "label words" else [ZeroHeads([(0, 1)], at="all")]
    edits += [Isolate([1])] if name == "two" else []
    found = compress_demonstrations(hooked, batch, keep=keep, interventions=edits, **QUICK)
    query = parts(batch[0], tuple(keep)).query
    expected = by_hiding(hooked, batch, tuple(keep), query, edits)
    close(hooked)(found.label_logits, expected)
    assert found.provenance["cache"] == "hidden"


@pytest.mark.slow
def test_speed_is_that_of_the_edited_model(gpt2, prompts, monkeypatch):
    seen = []
    original = ZeroHeads.hooks

    def counted(self, segment):
        seen.append(segment.indices)
        return original(self, segment)

    monkeypatch.setattr(ZeroHeads, "hooks", counted)
    quick = compress_demonstrations(gpt2, prompts, interventions=EDITS["heads"], **QUICK)
    before = len(seen)
    found = compress_demonstrations(
        gpt2, prompts, interventions=EDITS["heads"], timing=True, **QUICK
    )
    # Three ways to run each of six prompts, six times, one after the other.
    assert len([one for one in seen[2 * before :] if len(one) == 1]) >= 3 * 6 * 6
    assert found.speed_up > 0
    assert torch.equal(found.label_logits, quick.label_logits)


def test_an_intervention_that_acts_nowhere(gpt2, prompts):
    @dataclass(frozen=True, eq=False, repr=False)
    class Nothing(Intervention):
        def hooks(self, segment):
            return []

    with WORDS.raises(RunError, "intervention_acts_nowhere"):
        compress_demonstrations(gpt2, prompts, interventions=[Nothing()], **QUICK)


# As measurements.


def test_the_measurement_gives_what_the_function_gives(gpt2, prompts):
    expected = compress_demonstrations(gpt2, prompts, position="overlap", **QUICK)
    found = running.measured(
        CompressDemonstrations(position="overlap"), gpt2, prompts, progress=False
    )
    assert torch.equal(found.label_logits, expected.label_logits)
    assert found.provenance == {**expected.provenance, "date": found.provenance["date"]}
    assert found.provenance["measurement"] == "compress_demonstrations"
    assert found.provenance["variants"] == {
        "method": "hidden_anchor", "position": "overlap", "keep": None, "seed": 0, "draws": 20,
        "top_k": 5, "timing": False,
    }  # fmt: skip
    table = running.measured(CompareCompression(draws=2), gpt2, prompts, progress=False)
    assert table.provenance["measurement"] == "compare_compression"
    assert torch.equal(
        table.label_logits, compare_compression(gpt2, prompts, draws=2, **QUICK).label_logits
    )


def test_given_positions_are_recorded(gpt2, prompts):
    kept = list(anchor_positions(prompts[0]))
    for keep in (kept, torch.tensor(kept), [kept] * 6):
        found = compress_demonstrations(gpt2, prompts, keep=keep, **QUICK)
        assert found.provenance["variants"]["keep"] == kept
    rows = [kept[:-1], *[kept] * 5]
    found = compress_demonstrations(gpt2, prompts, keep=rows, **QUICK)
    assert found.provenance["variants"]["keep"] == rows


def test_differences_between_runs_are_paired(gpt2, prompts):
    edits = EDITS["heads"]
    plain, edited = (
        compress_demonstrations(gpt2, prompts, interventions=own, **QUICK) for own in ((), edits)
    )
    plain = replace(plain, label_kept=torch.tensor([1, 1, 1, 0, 0, 1]).bool())
    edited = replace(edited, label_kept=torch.tensor([1, 0, 1, 1, 0, 0]).bool())
    difference = edited - plain
    expected = torch.tensor([0, -1, 0, 1, 0, -1]).double()
    assert_close(difference.per_prompt, expected)
    assert difference.only().low < 0 < difference.only().high
    assert difference.only().value == pytest.approx(float(expected.mean()))
    one, other = (
        compare_compression(gpt2, prompts, draws=2, interventions=own, **QUICK)
        for own in (edits, ())
    )
    by_method = one - other
    assert by_method.dims == ("method",)
    rows = (one.label_kept.double() - other.label_kept.double()).mean(1)
    assert_close(by_method.values, rows)


def test_selection_and_tables(gpt2, prompts):
    table = compare_compression(gpt2, prompts, draws=2, **QUICK)
    for quantity in ("label_loyalty", "word_loyalty", "accuracy"):
        found = table.interval(quantity, method="text_anchor")
        assert found == getattr(table, quantity)("text_anchor")
        single = compress_demonstrations(gpt2, prompts, method="text_anchor", **QUICK)
        assert_close(torch.tensor(found), torch.tensor(single.interval(quantity)))
    assert table.interval("full_accuracy") == table.full_accuracy
    data = table.to_xarray()
    assert data["label_loyalty"].dims == ("prompt", "method")
    # As a keyword `method` is xarray's own.
    chosen = data["word_loyalty"].sel({"method": "hidden_random"}).values
    assert_close(torch.from_numpy(chosen.copy()), table.word_overlap[2])
    assert table.sel(method="hidden_anchor").per_prompt.tolist() == table.label_kept[0].tolist()


def test_figures_of_a_page(gpt2, prompts):
    table = compare_compression(gpt2, prompts, draws=2, **QUICK)
    loyalties, accuracies = table.figures()  # speed was not measured
    assert (loyalties.show, accuracies.show) == ("loyalty", "accuracy")
    kept = said(table.label_loyalty("hidden_anchor"))
    WORDS(loyalties.answer, "figures_page", kept)
    gap = said(table.difference("hidden_anchor", "text_anchor"), sign=True)
    WORDS(loyalties.answer, "figures_page_2", gap)
    share = float(table.demonstration_share.mean())
    WORDS(loyalties.caption, "figures_page_3", format(100 * share, ".0f"))
    WORDS.starts(accuracies.answer, "full_prompts", said(table.full_accuracy))
    assert f"anchor states {said(table.accuracy('hidden_anchor'))}" in accuracies.answer
    for one in (loyalties, accuracies):
        assert table.plot(show=one.show).data
    alone = compare_compression(gpt2, prompts, ["hidden_anchor"], **QUICK).figures()[0]
    WORDS.starts(alone.answer, "figures_page_4", "Cannot be judged")


# Contexts.


@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor", "hidden_random_top"])
@pytest.mark.parametrize("name", ["heads", "mean", "mean at all", "label words", "reweighting"])
def test_contexts_answer_as_compressed_prompts(gpt2, prompts, tmp_path, method, name):
    options = {"method": method, "draws": 3, "interventions": EDITS[name], "progress": False}
    expected = compress_demonstrations(gpt2, prompts, **options)
    context = compress_context(gpt2, prompts, **options)
    assert context.kept == expected.kept[0]
    found = context.predict(gpt2, prompts)
    assert torch.equal(found.label_logits, expected.label_logits)
    loaded = CompressContextResult.load(context.save(tmp_path / "context"))
    again = loaded.predict(gpt2, prompts)
    assert_close(again.label_logits, found.label_logits)
    assert again.provenance["interventions"] == found.provenance["interventions"]
    assert len(found.provenance["interventions"]) == len(EDITS[name])


def test_queries_alone_can_be_edited(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    edit = ZeroHeads([(1, 0)])
    found = context.predict(gpt2, prompts, interventions=[edit])
    query = parts(prompts[0]).query
    expected = by_hiding(gpt2, prompts, context.kept, query, [edit])
    close(gpt2)(found.label_logits, expected)
    plain = context.predict(gpt2, prompts)
    assert not torch.allclose(found.label_logits, plain.label_logits, atol=1e-3)
    edited = compress_context(gpt2, prompts, interventions=EDITS["heads"])
    back = edited.predict(gpt2, prompts, interventions=())
    assert not torch.allclose(
        back.label_logits, edited.predict(gpt2, prompts).label_logits, atol=1e-3
    )
    assert back.provenance["interventions"] == []
    names = [one.provenance["variants"]["compressed_context"]["digest"] for one in (plain, back)]
    assert len(set(names)) == 2


def test_what_contexts_refuse(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    for name in ("heads", "label words", "mean at all"):
        with WORDS.raises(RunError, "what_contexts_refuse_2"):
            context.predict(gpt2, prompts, interventions=EDITS[name])
    edit = patch(gpt2)
    with WORDS.raises(RunError, "what_contexts_refuse"):
        compress_context(gpt2, prompts, interventions=[edit])
    own = compress_context(gpt2, prompts[0], interventions=[edit])
    with WORDS.raises(RunError, "what_contexts_refuse"):
        own.predict(gpt2, prompts)
    single = own.predict(gpt2, prompts[[0]])
    expected = by_hiding(gpt2, prompts[[0]], own.kept, parts(prompts[0]).query, [edit])
    close(gpt2)(single.label_logits, expected)


def test_positions_and_text_anchors(gpt2, prompts):
    given = Isolate([0], positions=[[3]] * 6)
    for edit in (given, patch(gpt2)):
        for run in (
            lambda e: compress_demonstrations(
                gpt2, prompts, method="text_anchor", interventions=[e], **QUICK
            ),
            lambda e: compare_compression(gpt2, prompts, draws=2, interventions=[e], **QUICK),
            lambda e: compress_context(gpt2, prompts, method="text_anchor", interventions=[e]),
        ):
            with WORDS.raises(RunError, "positions_text_anchors"):
                run(edit)
    compress_demonstrations(gpt2, prompts, interventions=[given], **QUICK)


# Text anchors as prompts.


def test_roles_of_what_is_left(gpt2):
    (prompt,) = build_prompts(task(labels=("bad sport", "good movie")), gpt2, shots=1, n=1).prompts
    where, kept = parts(prompt), anchor_positions(prompt)
    short = alone(prompt, kept, where.query)
    places = (*kept, *range(where.query, len(prompt)))
    assert short.tokens == tuple(prompt.tokens[place] for place in places)
    assert short.pieces == tuple(prompt.pieces[place] for place in places)
    assert short.label_classes == prompt.label_classes
    assert [places[p] for p in short.label_positions] == list(prompt.label_positions)
    assert places[short.target] == prompt.target
    assert not any(span.role == "demo_text" for span in short.spans)
    first, *_ = prompt.label_positions
    without = alone(prompt, tuple(p for p in kept if p != first), where.query)
    assert isinstance(without, Prompt)
    assert without.label_classes == prompt.label_classes[1:]
    assert len(without) == len(short) - 1
