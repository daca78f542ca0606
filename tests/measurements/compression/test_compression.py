"""Compression: which tokens stay, what is computed behind them, and how it is compared."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import Prompt, PromptBatch, build_prompts, predict, prompts_from_text
from icl_mech.engine.work import Stack, Work
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import running
from icl_mech.measurements.compression.compress_demonstrations import compress_demonstrations
from icl_mech.measurements.compression.kept import NAMES, anchor_positions, parts, random_positions
from icl_mech.measurements.compression.methods import Compressed, best
from icl_mech.measurements.compression.speed import Speed
from icl_mech.models import adapt
from icl_mech.prompts import Span
from icl_mech.results import Result
from icl_mech.results.wording import said, told
from tests.margins import apart, clear_prompts
from tests.measurements.compression.cases import (
    FAMILIES,
    WITHOUT_WINDOW,
    by_hiding,
    by_hugging_face,
    close,
    compare_compression,
    task,
    text_of,
)
from tests.said import Words
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(task(), model, shots=2, n=6)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(gpt2):
    return build_prompts(task(), gpt2, shots=1, n=6)


# Which tokens stay.


def test_format_tokens_and_label_words_stay():
    (prompt,) = build_prompts(task(), tiny_tokenizer("bpe"), shots=1, n=1)
    shown = [prompt.labels[c] for c in prompt.label_classes]
    expected = "".join(f"Review:\nSentiment: {label}\n" for label in shown)
    kept = anchor_positions(prompt)
    assert text_of(prompt, kept) == expected
    assert text_of(prompt, range(parts(prompt).query, len(prompt))).startswith("Review:")
    assert text_of(prompt, range(parts(prompt).query)).endswith(f" {shown[-1]}\n")


def test_positions_by_hand():
    """`the movie : Positive . it : Negative . was :` with one token each."""
    (prompt,) = build_prompts(
        task("{text}: {label}", separator="\n"), tiny_tokenizer("bpe"), shots=1, n=1, seed=3
    )
    roles = [(span.role, span.start, span.stop) for span in prompt.spans]
    kept = anchor_positions(prompt)
    expected = [
        position
        for role, start, stop in roles
        if role in ("format", "label_word")
        for position in range(start, stop)
        if position < parts(prompt).query
    ]
    assert list(kept) == expected
    assert [prompt.pieces[i] for i in kept[:3]] == [
        ":",
        f" {prompt.labels[prompt.label_classes[0]]}",
        "\n",
    ]
    assert len(kept) == 6


def test_bos_and_narrative_stay():
    narrative = task(narrative="the movie was good.")
    (prompt,) = build_prompts(narrative, tiny_tokenizer("sentencepiece"), shots=1, n=1)
    kept, where = anchor_positions(prompt), parts(prompt)
    assert prompt.spans[0].role == "bos"
    assert kept[: where.demos] == tuple(range(where.demos))
    assert text_of(prompt, range(1, where.demos)).split()[:2] == ["the", "movie"]


def test_whole_label_words_stay():
    long_labels = task(labels=("bad sport", "good movie"))
    (prompt,) = build_prompts(long_labels, tiny_tokenizer("bpe"), shots=1, n=1)
    assert all(len(word) > 1 for word in prompt.label_words)
    kept = set(anchor_positions(prompt))
    assert all(set(range(s.start, s.stop)) <= kept for s in prompt.label_spans)
    (drawn,) = random_positions(prompt, seed=0, draws=1)
    firsts = {s.start for s in prompt.label_spans}
    pieces = {p for s in prompt.label_spans for p in range(s.start + 1, s.stop)}
    assert not firsts & set(drawn)
    assert pieces <= set(drawn)


@pytest.mark.parametrize("shots", [1, 2])
def test_a_random_token_of_the_same_text_replaces_each_label(shots):
    (prompt,) = build_prompts(task(), tiny_tokenizer("bpe"), shots=shots, n=1)
    anchors = set(anchor_positions(prompt))
    demos_of_text = {
        position: span.demo
        for span in prompt.spans
        if span.role == "demo_text"
        for position in range(span.start, span.stop)
    }
    seen = set()
    for seed in range(20):
        (drawn,) = random_positions(prompt, seed=seed, draws=1)
        assert list(drawn) == sorted(set(drawn))
        assert len(drawn) == len(anchors)
        assert anchors - set(drawn) == set(prompt.label_positions)
        new = set(drawn) - anchors
        assert sorted(demos_of_text[position] for position in new) == list(range(2 * shots))
        seen |= new
    assert seen == set(demos_of_text)


def test_draws_differ_and_begin_alike():
    (prompt,) = build_prompts(task(), tiny_tokenizer("bpe"), shots=2, n=1)
    many = random_positions(prompt, seed=5, draws=20)
    assert len(set(many)) == 20
    assert random_positions(prompt, seed=5, draws=1) == many[:1]
    assert random_positions(prompt, seed=5, draws=7) == many[:7]
    assert random_positions(prompt, seed=6, draws=20) != many


def test_there_are_no_more_draws_than_sets():
    """Texts of 2 and 3 tokens: six sets."""
    spans = (
        Span("format", 0, 0, 1), Span("demo_text", 0, 1, 3), Span("format", 0, 3, 4),
        Span("label_word", 0, 4, 5), Span("demo_text", 1, 5, 8), Span("format", 1, 8, 9),
        Span("label_word", 1, 9, 10), Span("query_text", None, 10, 11), Span("target", None, 11, 12),
    )  # fmt: skip
    prompt = Prompt(tuple(range(1, 13)), spans, (0, 1), ((30,), (31,)))
    assert anchor_positions(prompt) == (0, 3, 4, 8, 9)
    drawn = random_positions(prompt, seed=0, draws=20)
    expected = {(0, a, 3, b, 8) for a in (1, 2) for b in (5, 6, 7)}
    assert set(drawn) == expected


def test_a_draw_depends_on_the_demonstrations_alone(gpt2):
    batch = build_prompts(task(), gpt2, shots=1, n=6, demonstrations="per_prompt")
    together = compress_demonstrations(gpt2, batch, method="hidden_random").kept
    alone = [
        compress_demonstrations(gpt2, batch[[i]], method="hidden_random").kept[0] for i in range(6)
    ]
    assert list(together) == alone


# What is computed behind them.


@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
@pytest.mark.parametrize("shots", [1, 2])
def test_keeping_everything_is_full_in_context_learning(setting, demonstrations, shots):
    model, _ = setting
    batch = build_prompts(task(), model, shots=shots, n=6, demonstrations=demonstrations)
    batch = clear_prompts(model, batch)
    full = predict(model, batch)
    keep = [range(parts(prompt).query) for prompt in batch]
    for method in ("hidden_anchor", "text_anchor"):
        found = compress_demonstrations(model, batch, method=method, keep=keep)
        close(model)(found.label_logits, full.label_logits)
        assert found.label_loyalty.value == found.word_loyalty.value == 1.0
        assert (
            found.demonstration_share.tolist() == found.prompt_share.tolist() == [1.0] * len(batch)
        )


@pytest.mark.parametrize("position", ["true", "overlap"])
@pytest.mark.parametrize("method", ["hidden_anchor", "hidden_random"])
def test_the_cache_cut_by_hand(setting, method, position):
    model, batch = setting
    found = compress_demonstrations(model, batch, method=method, position=position)
    query = parts(batch[0]).query
    first = query if position == "true" else 0
    expected = [
        by_hugging_face(model, prompt, kept, query, first)
        for prompt, kept in zip(batch, found.kept, strict=True)
    ]
    close(model)(found.label_logits, torch.stack(expected))


@pytest.mark.parametrize("family", WITHOUT_WINDOW)
def test_what_is_left_out_is_not_seen(family):
    """Whole prompts in one pass, where queries may not attend to the texts."""
    model = tiny_model(family)
    batch = build_prompts(task(), model, shots=2, n=6)
    found = compress_demonstrations(model, batch)
    expected = by_hiding(model, batch, found.kept[0], parts(batch[0]).query)
    close(model)(found.label_logits, expected)


def test_a_sliding_window_counts_cached_columns():
    """Gemma's windows see kept tokens that lay outside them in the full prompt."""
    model = tiny_model("gemma3")
    batch = build_prompts(task("{text}: {label}"), model, shots=2, n=4)
    found = compress_demonstrations(model, batch)
    hidden = by_hiding(model, batch, found.kept[0], parts(batch[0]).query)
    assert not torch.allclose(found.label_logits, hidden, atol=1e-2)


def test_text_anchors_are_a_prompt_of_their_own(setting):
    model, batch = setting
    found = compress_demonstrations(model, batch, method="text_anchor")
    short = []
    for prompt in batch:
        kept = anchor_positions(prompt)
        tokens = [prompt.tokens[i] for i in (*kept, *range(parts(prompt).query, len(prompt)))]
        places = [kept.index(p) for p in prompt.label_positions]
        short.append(
            Prompt.from_positions(
                tokens, label_positions=places, label_classes=prompt.label_classes,
                label_tokens=prompt.label_tokens,
            )
        )  # fmt: skip
    close(model)(found.label_logits, predict(model, PromptBatch(tuple(short))).label_logits)
    again = compress_demonstrations(model, batch, method="text_anchor", position="overlap")
    assert torch.equal(again.label_logits, found.label_logits)


def test_the_position_of_the_query_matters(setting):
    model, batch = setting
    true, overlap = (
        compress_demonstrations(model, batch, position=position).label_logits
        for position in ("true", "overlap")
    )
    assert not torch.allclose(true, overlap, atol=1e-3)


@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor", "hidden_random"])
def test_prompts_together_are_prompts_alone(setting, method):
    model, batch = setting
    assert len(set(batch.lengths.tolist())) > 1
    together = compress_demonstrations(model, batch, method=method)
    one = compress_demonstrations(model, batch, method=method, batch_size=1)
    close(model)(one.label_logits, together.label_logits)
    for i in range(len(batch)):
        alone = compress_demonstrations(model, batch[[i]], method=method)
        close(model)(alone.label_logits[0], together.label_logits[i])


def test_sets_of_demonstrations_do_not_mix(setting):
    model, _ = setting
    one, two = (build_prompts(task(), model, shots=1, n=4, seed=seed) for seed in (0, 1))
    assert one[0].tokens[: parts(one[0]).query] != two[0].tokens[: parts(two[0]).query]
    mixed = PromptBatch(tuple(p for pair in zip(one, two, strict=True) for p in pair))
    found = compress_demonstrations(model, mixed)
    for start, own in enumerate((one, two)):
        expected = compress_demonstrations(model, own)
        assert found.kept[start::2] == expected.kept
        close(model)(found.label_logits[start::2], expected.label_logits)


def test_other_positions_for_each_prompt(gpt2, prompts):
    query = parts(prompts[0]).query
    keep = [sorted({0, 3, 2 + i, query - 1}) for i in range(len(prompts))]
    found = compress_demonstrations(gpt2, prompts, keep=keep)
    assert found.kept == tuple(map(tuple, keep))
    expected = [
        by_hugging_face(gpt2, prompt, kept, query, query)
        for prompt, kept in zip(prompts, keep, strict=True)
    ]
    close(gpt2)(found.label_logits, torch.stack(expected))


def test_multi_token_labels(gpt2):
    batch = build_prompts(task(labels=("bad sport", "good movie")), gpt2, shots=2, n=4)
    found = compress_demonstrations(gpt2, batch)
    expected = by_hiding(gpt2, batch, found.kept[0], parts(batch[0]).query)
    close(gpt2)(found.label_logits, expected)


def test_one_row_of_positions_serves_all(gpt2, prompts):
    kept = list(anchor_positions(prompts[0]))
    rows = [compress_demonstrations(gpt2, prompts, keep=k) for k in
            (kept, torch.tensor(kept), [kept] * 6, torch.tensor([kept] * 6))]  # fmt: skip
    plain = compress_demonstrations(gpt2, prompts)
    for found in rows:
        assert found.kept == plain.kept
        assert torch.equal(found.label_logits, plain.label_logits)


def test_a_target_inside_the_query(gpt2, prompts):
    """What follows the target is not read."""
    longer = [
        Prompt.from_positions(
            (*p.tokens, 5, 6, 7), label_positions=p.label_positions, label_classes=p.label_classes,
            label_tokens=p.label_tokens, target=p.target,
        )
        for p in prompts
    ]  # fmt: skip
    keep = anchor_positions(prompts[0])
    found = compress_demonstrations(gpt2, PromptBatch(tuple(longer)), keep=keep)
    plain = compress_demonstrations(gpt2, prompts)
    close(gpt2)(found.label_logits, plain.label_logits)


def test_a_batch_that_does_not_fit_is_halved(gpt2, prompts, monkeypatch):
    expected = compress_demonstrations(gpt2, prompts, position="overlap")
    values, tried = Stack.values, []

    def small_memory(self):
        tried.append(len(self.segment.prompts))
        if len(self.segment.prompts) > 2:
            raise torch.OutOfMemoryError
        return values(self)

    monkeypatch.setattr(Stack, "values", small_memory)
    found = compress_demonstrations(gpt2, prompts, position="overlap")
    assert max(tried) > 2
    close(gpt2)(found.label_logits, expected.label_logits)


def test_no_memory_at_all(gpt2, prompts, monkeypatch):
    def no_memory(self):
        raise torch.OutOfMemoryError("at all")

    monkeypatch.setattr(Work, "begin", lambda self, segment, **_: self.keys_and_values(segment))
    monkeypatch.setattr(Stack, "values", no_memory)
    with WORDS.raises(RunError, "no_memory_all"):
        compress_demonstrations(gpt2, prompts)


def test_demonstrations_that_do_not_fit(gpt2, prompts, monkeypatch):
    def no_memory(self, segment):
        raise torch.OutOfMemoryError("at all")

    monkeypatch.setattr(Work, "keys_and_values", no_memory)
    batch = PromptBatch(prompts.prompts[:1])
    with WORDS.raises(RunError, "demonstrations_fit"):
        compress_demonstrations(gpt2, batch)


def beginnings(monkeypatch):
    """Lengths of the segments whose keys and values are computed."""
    lengths, original = [], Work.keys_and_values

    def counted(self, segment):
        lengths.append(segment.tokens.shape[1])
        return original(self, segment)

    monkeypatch.setattr(Work, "keys_and_values", counted)
    return lengths


def test_demonstrations_are_run_once(gpt2, prompts, monkeypatch):
    anchors, query = len(anchor_positions(prompts[0])), parts(prompts[0]).query
    # The engine also shares the beginning of the full prompts, by the longest common one.
    lengths = beginnings(monkeypatch)
    predict(gpt2, prompts)
    full = list(lengths)
    lengths.clear()
    compare_compression(gpt2, prompts, draws=5)
    assert sorted(lengths) == sorted([anchors, query, *full])


def test_each_set_of_demonstrations_is_run_once(gpt2, monkeypatch):
    """Two sets, their prompts mixed; with `path="whole"` every prompt runs its own."""
    one, two = (build_prompts(task(), gpt2, shots=1, n=3, seed=seed) for seed in (0, 1))
    mixed = PromptBatch(tuple(p for pair in zip(one, two, strict=True) for p in pair))
    lengths = beginnings(monkeypatch)
    shared = compress_demonstrations(gpt2, mixed)
    assert sorted(lengths) == sorted(parts(batch[0]).query for batch in (one, two))
    lengths.clear()
    apart = compress_demonstrations(gpt2, mixed, path="whole")
    assert sorted(lengths) == sorted(parts(prompt).query for prompt in mixed)
    close(gpt2)(apart.label_logits, shared.label_logits)


# How it is compared.


def test_loyalties_and_accuracy(gpt2, prompts):
    full = predict(gpt2, prompts, top_k=3)
    found = compress_demonstrations(gpt2, prompts, position="overlap", top_k=3)
    assert bool(apart(full.label_logits).all())
    same = found.label_logits.argmax(-1) == full.predicted
    assert found.label_kept.tolist() == same.tolist()
    assert found.full_predicted.tolist() == full.predicted.tolist()
    assert found.label_loyalty.value == float(same.double().mean())
    assert found.accuracy.value == float((found.predicted == prompts.answers).double().mean())
    assert found.full_accuracy.value == full.accuracy.value
    assert 0 < float(found.word_overlap.mean()) < 1
    assert set(found.word_overlap.tolist()) <= {0, 0.2, 0.5, 1}  # of 3 and 3 tokens
    assert found.word_loyalty.value == pytest.approx(float(found.word_overlap.mean()))
    assert found.label_loyalty.low <= found.label_loyalty.value <= found.label_loyalty.high


def test_shares(gpt2):
    batch = build_prompts(task(narrative="the movie was good."), gpt2, shots=1, n=3)
    found = compress_demonstrations(gpt2, batch)
    for i, (prompt, kept) in enumerate(zip(batch, found.kept, strict=True)):
        where = parts(prompt)
        texts = sum(s.stop - s.start for s in prompt.spans if s.role == "demo_text")
        demo_tokens = where.query - where.demos
        assert float(found.demonstration_share[i]) == pytest.approx(1 - texts / demo_tokens)
        assert float(found.prompt_share[i]) == pytest.approx(1 - texts / len(prompt))
        assert len(kept) == where.query - texts


def test_without_answers(gpt2):
    texts = ["Review: bad\nSentiment: Negative\nReview: good film\nSentiment:"]
    batch = prompts_from_text(texts, ["Negative", "Positive"], gpt2)
    found = compress_demonstrations(gpt2, batch, keep=batch[0].label_positions)
    assert found.correct is None
    with WORDS.raises(ResultError, "without_answers"):
        _ = found.accuracy
    assert "accuracy" not in found.summary()
    assert found.drawing().groups == ("label loyalty", "word loyalty")
    assert "correct" not in found.by_prompt()


def test_the_best_draw_is_the_first_of_the_most_loyal():
    def candidate(*kept):
        return Compressed(
            "hidden_random_top", ((sum(kept),),) * 4, torch.zeros(4, 2), torch.tensor(kept).bool(),
            torch.zeros(4), torch.zeros(4, dtype=torch.int64),
        )  # fmt: skip

    rows = [
        candidate(1, 0, 0, 0),
        candidate(1, 1, 0, 1),
        candidate(0, 1, 1, 1),
        candidate(0, 0, 0, 0),
    ]
    chosen = best(rows)
    assert chosen.draw == 1
    assert chosen.draws == (0.25, 0.75, 0.75, 0.0)
    assert chosen.label_kept.tolist() == [True, True, False, True]


def test_the_best_of_many_draws(gpt2, prompts):
    top = compress_demonstrations(gpt2, prompts, method="hidden_random_top", draws=6)
    draws = random_positions(prompts[0], seed=0, draws=6)
    singles = [
        compress_demonstrations(gpt2, prompts, method="hidden_random", keep=kept) for kept in draws
    ]
    for logits in (predict(gpt2, prompts).label_logits, *(one.label_logits for one in singles)):
        assert bool(apart(logits).all())
    loyalties = [one.label_loyalty.value for one in singles]
    assert top.provenance["draws"] == {
        "hidden_random_top": {
            "draw": loyalties.index(max(loyalties)),
            "label_loyalty_of_draws": loyalties,
        }
    }
    assert len(set(loyalties)) > 1
    assert top.label_loyalty.value == max(loyalties)
    assert top.kept[0] == draws[loyalties.index(max(loyalties))]
    plain = compress_demonstrations(gpt2, prompts, method="hidden_random")
    assert plain.label_loyalty.value == loyalties[0]


@pytest.mark.slow
def test_speed_is_measured_but_not_judged(gpt2, prompts):
    found = compress_demonstrations(gpt2, prompts, timing=True)
    speed = found.provenance["speed"]
    assert speed["prompts"] == 6
    for way in ("full", "cached", "compressed"):
        assert len(speed[way]) == speed["repeats"] >= 3
        assert min(speed[way]) > 0
    assert found.speed_up > 0
    assert found.speed_up_cached > 0
    quick = compress_demonstrations(gpt2, prompts)
    assert quick.speed_up is quick.speed_up_cached is None
    assert "speed" not in quick.provenance


def test_speed_ratios():
    speed = Speed(4, full=(6.0, 9.0, 100.0), cached=(4.0, 6.0, 5.0), compressed=(2.0, 1.0, 3.0))
    assert speed.up == 4.5
    assert speed.up_cached == 2.5


@pytest.mark.slow
def test_result_in_words_files_and_figures(gpt2, prompts, tmp_path):
    found = compress_demonstrations(gpt2, prompts, position="overlap")
    assert found.summary().startswith("hidden_anchor: label loyalty ")
    assert found.provenance["variants"]["position"] == "overlap"
    assert list(found.by_prompt()["correct"]) == found.correct.tolist()
    assert list(found.by_prompt("accuracy")["accuracy"]) == found.correct.tolist()
    assert found.to_pandas().label_loyalty.tolist() == [found.label_loyalty.value]
    bars = found.drawing()
    assert bars.groups[0] == "label loyalty"
    assert float(bars.values[0, 0]) == pytest.approx(found.label_loyalty.value)
    assert len(found.plot().data) == 1
    loaded = Result.load(found.save(tmp_path / "result"))
    assert loaded.kept == found.kept
    assert loaded.speed_up == found.speed_up
    assert torch.equal(loaded.label_kept, found.label_kept)
    assert loaded.summary() == found.summary()


# The table.


@pytest.fixture(scope="module")
def table(gpt2, prompts):
    return compare_compression(gpt2, prompts, draws=4, timing=True)


def test_the_table_holds_what_single_methods_give(gpt2, prompts, table):
    assert table.methods == ("hidden_anchor", "text_anchor", "hidden_random", "hidden_random_top")
    for row, method in enumerate(table.methods):
        single = compress_demonstrations(gpt2, prompts, method=method, draws=4)
        assert torch.equal(table.label_logits[row], single.label_logits)
        assert table.kept[row] == single.kept
        assert table.label_loyalty(method) == pytest.approx(single.label_loyalty)
        assert table.word_loyalty(method) == pytest.approx(single.word_loyalty)
        assert table.accuracy(method) == pytest.approx(single.accuracy)
    assert table.full_accuracy == single.full_accuracy
    assert len(table.provenance["draws"]["hidden_random_top"]["label_loyalty_of_draws"]) == 4


def test_what_a_constant_answer_keeps(gpt2, prompts, table):
    found = compress_demonstrations(gpt2, prompts)
    predicted = torch.tensor([0, 1, 1, 1, 0, 1])
    for result, written in ((found, "0.667"), (table, "0.67")):
        answers = replace(result, full_predicted=predicted)
        assert answers.constant_loyalty == 4 / 6
        WORDS(answers.summary(), "constant_answer", written)
    assert answers.drawing().levels == ((4 / 6, "always “Positive” 0.67"),)
    WORDS(answers.figures()[0].answer, "what_constant_answer_keeps", "0.67")


def test_differences_are_paired(table):
    same = table.difference("text_anchor", "text_anchor")
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)  # so few prompts could hide a change
    assert 0 < same.high < 0.5
    for quantity in ("label_loyalty", "word_loyalty", "accuracy"):
        there = table.difference("hidden_anchor", "text_anchor", quantity)
        back = table.difference("text_anchor", "hidden_anchor", quantity)
        value = getattr(table, quantity)
        expected = value("hidden_anchor").value - value("text_anchor").value
        assert there.value == pytest.approx(expected)
        assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=0.02)


def test_full_prompts_are_run_once(gpt2, prompts, monkeypatch):
    calls, original = [], running.run

    def counted(*args, **options):
        calls.append(args)
        return original(*args, **options)

    monkeypatch.setattr(running, "run", counted)
    compare_compression(gpt2, prompts, draws=3)
    assert len(calls) == 1


def test_table_in_words_files_and_figures(table, tmp_path):
    frame = table.to_pandas()
    assert list(frame["method"]) == list(table.methods)
    assert frame["label_loyalty"][0] == table.label_loyalty("hidden_anchor").value
    assert frame["accuracy_low"][3] == table.accuracy("hidden_random_top").low
    assert set(frame["full_accuracy"]) == {table.full_accuracy.value}
    names = tuple(NAMES[own] for own in table.methods)
    dots = table.drawing()
    assert (dots.groups, dots.names) == (names, ("label loyalty", "word loyalty"))
    right = table.drawing(show="accuracy")
    assert (right.groups, right.names) == ((*names, "full prompts"), ("accuracy",))
    assert right.levels == ((0.5, "chance 0.50"),)
    for row, method in enumerate(table.methods):
        for column, value in enumerate((table.label_loyalty, table.word_loyalty)):
            ends = [float(part[row, column]) for part in (dots.values, dots.low, dots.high)]
            assert ends == pytest.approx(tuple(value(method)))
        assert float(right.values[row, 0]) == pytest.approx(table.accuracy(method).value)
    ends = [float(part[4, 0]) for part in (right.values, right.low, right.high)]
    assert ends == pytest.approx(tuple(table.full_accuracy))
    printed = table.drawing(show="table")
    assert printed.columns == ("stand-in", "label loyalty", "word loyalty", "accuracy")
    assert [row[0] for row in printed.rows] == [*names, "full prompts"]
    assert printed.rows[0][1] == said(table.label_loyalty("hidden_anchor"))
    assert printed.rows[4][3] == said(table.full_accuracy)
    assert {trace.name for trace in table.plot().data} == set(dots.names)
    assert len(table.plot(show="table").data) == 1
    loaded = Result.load(table.save(tmp_path / "table"))
    assert loaded.kept == table.kept
    assert loaded.summary() == table.summary()
    assert_close(loaded.label_logits, table.label_logits)


def test_speed_of_every_prompt(prompts, table):
    points = table.drawing(show="speed")
    assert points.x.tolist() == [len(prompt) for prompt in prompts] * 2
    full, cached, compressed = (torch.tensor(one) for one in table.provenance["speed"]["each"])
    expected = torch.cat([full / compressed, cached / compressed])
    assert_close(points.y, expected.double())
    shown = next(one for one in table.figures() if one.show == "speed")
    WORDS.starts(shown.answer, "speed_up", told(table.speed_up))
    assert "6 prompts" in shown.answer


@pytest.mark.slow
def test_the_summary_claims_no_more_than_the_intervals(table):
    kept = torch.zeros_like(table.label_kept)
    kept[0], kept[1, :1] = True, True
    clear = replace(table, label_kept=kept)
    WORDS(clear.summary(), "summary_claims_no_more", "+0.83")
    WORDS(clear.summary(), "more_labels")
    swapped = replace(table, label_kept=~kept)
    WORDS(swapped.summary(), "summary_claims_no_more_2", "−0.83")
    equal = replace(table, label_kept=torch.ones_like(kept))
    WORDS(equal.summary(), "summary_claims_no_more_3", "0.00")
    WORDS.only_if(False, equal.summary(), "more_labels")
    words = torch.zeros_like(table.word_overlap)
    words[0] = 0.5
    for labels, overlap, opening in (
        (kept, words, "Yes: "),
        (~kept, 0.5 - words, "No: "),
        (kept, 0.5 - words, "Not shown: "),
        (torch.ones_like(kept), torch.ones_like(words), "Not shown: "),
    ):
        shown = replace(table, label_kept=labels, word_overlap=overlap).figures()[0]
        assert shown.answer.startswith(opening)
        assert bool(shown.establishes) == (opening == "Yes: ")


@pytest.mark.usefixtures("unchecked")
def test_what_the_table_refuses(gpt2, prompts, table):
    with WORDS.raises(ResultError, "what_table_refuses", "'hidden_anker'"):
        table.label_loyalty("hidden_anker")
    with WORDS.raises(ResultError, "what_table_refuses_2", "'hidden_anker'"):
        table.difference("hidden_anchor", "hidden_anker")
    with WORDS.raises(ResultError, "what_table_refuses_3", "'loyalty'", "'label_loyalty'"):
        table.difference("hidden_anchor", "text_anchor", "loyalty")
    with WORDS.raises(ResultError, "what_table_refuses_4", "'tabel'", "'table'"):
        table.drawing(show="tabel")
    quick = compare_compression(gpt2, prompts, ["hidden_anchor"])
    with pytest.raises(ResultError, match="timing=True"):
        quick.drawing(show="speed")
    with WORDS.raises(ResultError, "what_table_refuses_5"):
        replace(table, correct=None).drawing(show="accuracy")
    with WORDS.raises(RunError, "what_table_refuses_6"):
        compare_compression(gpt2, prompts, [])
    found = compress_demonstrations(gpt2, prompts, method=["text_anchor", "hidden_anchor"])
    same = compare_compression(gpt2, prompts, ["text_anchor", "hidden_anchor"])
    assert found.methods == same.methods == ("text_anchor", "hidden_anchor")
    assert torch.equal(found.label_logits, same.label_logits)
    with WORDS.raises(RunError, "what_table_refuses_7"):
        compress_demonstrations(gpt2, prompts, method=[])
    with WORDS.raises(RunError, "what_table_refuses_8"):
        compare_compression(gpt2, prompts, ["text_anchor", "text_anchor"])


# What is refused.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "hidden_ancor"}, RunError, "methodhidden_ancor hidden_anchor"),
        ({"position": "zero"}, RunError, "positionzero"),
        ({"draws": 0}, RunError, "draws0"),
        ({"top_k": 0}, RunError, "top_k0"),
        ({"method": "hidden_random_top", "keep": [0, 1]}, RunError, "keep"),
        ({"keep": 3}, PromptError, "keep3"),
        ({"keep": []}, PromptError, "nothing kept"),
        ({"keep": [[0]] * 5}, PromptError, "5 rows for 6"),
        ({"keep": [0, 2, 1]}, PromptError, "must ascend"),
        ({"keep": [0, 1, 1]}, PromptError, "must ascend"),
        ({"keep": [-1, 1]}, PromptError, "position -1"),
        ({"keep": [0, 400]}, PromptError, "position 400"),
        ({"keep": [0.5, 1]}, PromptError, "whole numbers"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_options_that_make_no_sense(gpt2, prompts, options, error, message):
    with WORDS.raises(error, message):
        compress_demonstrations(gpt2, prompts, **options)


def test_positions_of_the_query(gpt2, prompts):
    query = parts(prompts[0]).query
    with WORDS.raises(PromptError, "position_of_the_query", query):
        compress_demonstrations(gpt2, prompts, keep=[0, query])
    with WORDS.raises(PromptError, "positions_query", "2"):
        compress_demonstrations(gpt2, prompts, keep=[[0], [0], [0, query], [0], [0], [0]])


@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor", "hidden_random"])
def test_prompts_without_text_roles(gpt2, prompts, method):
    bare = PromptBatch(
        tuple(
            Prompt.from_positions(
                p.tokens, label_positions=p.label_positions, label_classes=p.label_classes,
                label_tokens=p.label_tokens,
            )
            for p in prompts
        )
    )  # fmt: skip
    with WORDS.raises(PromptError, "prompts_without_text_roles"):
        compress_demonstrations(gpt2, bare, method=method)
    with WORDS.raises(PromptError, "prompts_without_text_roles_2", "0"):
        compress_demonstrations(gpt2, bare, method=method, keep=[0])
    with WORDS.raises(PromptError, "beyond_the_target", bare[0].target):
        compress_demonstrations(gpt2, bare, method=method, keep=[0, bare[0].target])


def test_prompts_found_in_raw_text(gpt2):
    texts = ["Review: bad\nSentiment: Negative\nReview: good film\nSentiment:"]
    batch = prompts_from_text(texts, ["Negative", "Positive"], gpt2)
    with WORDS.raises(PromptError, "prompts_found_raw_text"):
        compress_demonstrations(gpt2, batch)


def test_prompts_without_demonstrations(gpt2):
    batch = build_prompts(task(), gpt2, shots=0, n=2)
    for keep in (None, [0]):
        with WORDS.raises(PromptError, "prompts_without_demonstrations"):
            compress_demonstrations(gpt2, batch, keep=keep)


@pytest.mark.slow
def test_a_model_that_counts_positions_itself(gpt2, prompts, monkeypatch):
    """Left-out columns are hidden instead of cut."""
    cut = compress_demonstrations(gpt2, prompts)
    assert cut.provenance["cache"] == "cut"
    monkeypatch.setitem(vars(adapt(gpt2)), "takes_positions", False)
    hidden = compress_demonstrations(gpt2, prompts)
    close(gpt2)(hidden.label_logits, cut.label_logits)
    assert hidden.provenance["cache"] == "hidden"
    assert hidden.speed_up is None
    with WORDS.raises(RunError, "model_counts_positions_itself", "0"):
        compress_demonstrations(gpt2, prompts, position="overlap")
    compress_demonstrations(gpt2, prompts, position="overlap", method="text_anchor")


def test_which_models_take_positions(setting):
    assert adapt(setting[0]).takes_positions


def test_a_model_without_position_ids(monkeypatch):
    adapted = adapt(tiny_model("gpt2", seed=3))
    forward = type(adapted).forward

    def counted(self, tokens, mask, positions, **options):
        places = torch.arange(tokens.shape[1])[None].expand_as(tokens)
        return forward(self, tokens, mask, places, **options)

    monkeypatch.setattr(type(adapted), "forward", counted)
    assert not adapted.takes_positions
