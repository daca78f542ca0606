"""Written texts are those of Hugging Face, and of a run of the whole text at every step."""

import copy

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine.writing import Writer, continued
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import CompressContext, Generate
from icl_mech.measurements.extraction.extraction import AttentionReading
from icl_mech.measurements.generation.loop import Choice, Stops, pieces
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.engine.test_paths import TASK
from tests.margins import MARGIN
from tests.said import Words
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

NEW = 10


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=2, n=4, demonstrations="per_prompt")


@pytest.fixture(scope="module")
def plain(model, prompts):
    return icl.generate(model, prompts, max_new_tokens=NEW)


def written(result, row):
    return [token for token in result.tokens[row].tolist() if token >= 0]


def huggingface(model, prompt, **options):
    """What `generate` of Hugging Face writes behind a prompt."""
    ids = torch.tensor([prompt.tokens])
    given = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0, "max_new_tokens": NEW}
    out = model.original_model.generate(ids, **given, do_sample=False, **options)
    return out[0, len(prompt) :].tolist()


# Greedy


@pytest.mark.parametrize("family", ["gpt2", "llama", "gptj", "neox", "gemma3"])
def test_it_writes_what_hugging_face_writes(family):
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt")
    found = icl.generate(model, prompts, max_new_tokens=NEW)
    for row, prompt in enumerate(prompts):
        assert written(found, row) == huggingface(model, prompt)


@pytest.mark.parametrize(
    "change",
    [
        None,
        icl.Isolate([0, 1]),
        icl.Isolate([1, 2], tokens="random", mode="zero", redraw="prompt"),
        icl.ZeroHeads([(1, 2)]),
        icl.ZeroHeads([(0, 1), (2, 3)], at="all"),
        icl.ZeroLayers(2, part="mlp", at="all"),
        icl.Reweight(0.5 * torch.ones(3, 4, 2)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_steps_equal_runs_of_the_whole_text(family, change):
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=3, demonstrations="per_prompt")
    changes = [] if change is None else [change]
    steps, whole = (
        icl.generate(model, prompts, max_new_tokens=6, interventions=changes, path=path)
        for path in ("auto", "whole")
    )
    assert torch.equal(steps.tokens, whole.tokens)
    assert_close(steps.log_probs, whole.log_probs, atol=MARGIN, rtol=0, equal_nan=True)
    assert_close(steps.attention, whole.attention, atol=MARGIN, rtol=0, equal_nan=True)
    for own, other in zip(steps.reads, whole.reads, strict=True):
        assert_close(own, other, atol=MARGIN, rtol=0)


def test_isolated_rows_stay_isolated_for_what_is_written(model, prompts):
    """Against runs of whole prompts by the engine, which knows nothing of writing."""
    change = icl.Isolate([0, 1])
    found = icl.generate(model, prompts, max_new_tokens=4, interventions=[change])
    for row, prompt in enumerate(prompts):
        tokens = written(found, row)
        for step, token in enumerate(tokens):
            longer = continued(prompt, tokens[:step])
            one = icl.PromptBatch((longer,))
            assert longer.label_positions == prompt.label_positions
            top = icl.predict(model, one, interventions=[change], top_k=1).top_tokens
            assert int(top[0, 0]) == token


def test_interventions_change_what_is_written(model, prompts, plain):
    changed = icl.generate(
        model, prompts, max_new_tokens=NEW, interventions=[icl.ZeroLayers(1, at="all")]
    )
    assert not torch.equal(changed.tokens, plain.tokens)


def test_batches_change_nothing(model, prompts, plain):
    single = icl.generate(model, prompts, max_new_tokens=NEW, batch_size=1)
    assert torch.equal(single.tokens, plain.tokens)
    assert_close(single.attention, plain.attention, atol=MARGIN, rtol=0, equal_nan=True)


def test_log_probs_are_those_of_the_model(model, prompts, plain):
    ids = torch.tensor([[*prompts[0].tokens, *written(plain, 0)]])
    with torch.no_grad():
        scores = model(ids, return_type="logits")[0].log_softmax(-1)
    start = len(prompts[0]) - 1
    for step, token in enumerate(written(plain, 0)):
        assert float(scores[start + step, token]) == pytest.approx(
            float(plain.log_probs[0, step]), abs=MARGIN
        )


# Readings


def test_attention_adds_up_to_one_and_spans_hold_what_their_columns_get(plain, prompts):
    total = plain.attention.sum(-1)
    assert_close(total, torch.ones_like(total))
    for row in range(len(prompts)):
        late = plain.attention[row, :, -1:].mean(1)
        for place, name in enumerate(plain.spans):
            own = [i for i, span in enumerate(plain.column_spans[row]) if span == name]
            assert_close(plain.reads[row][:, own].sum(1), late[:, place])
        assert "".join(plain.columns[row]).startswith("".join(prompts[row].pieces))


def test_spans_are_the_roles_of_the_prompt(plain, prompts):
    assert plain.spans[:4] == ("first token", "text 1", "label word 1", "text 2")
    assert plain.spans[-3:] == ("template", "query", "written")
    assert_close(plain.sizes[:, 0].sum(-1), prompts.lengths.float())
    assert_close(plain.sizes[:, -1].sum(-1), prompts.lengths.float() + NEW - 1)


def test_lift_is_one_for_even_attention(plain):
    even = plain.sizes / plain.sizes.sum(-1, keepdim=True)
    from dataclasses import replace

    flat = replace(plain, attention=even[:, :, None].expand_as(plain.attention))
    assert flat.lift().value == pytest.approx(1, abs=1e-6)
    lift = flat.quantities()["lift"].per_prompt
    assert_close(lift, torch.ones_like(lift), atol=1e-6, rtol=0)


def test_any_reading_of_the_target_is_taken_at_each_new_row(model, prompts, plain):
    adapted, reading = adapt(model), AttentionReading(prompts.n_labels)
    writer = Writer([reading], [])
    segment = Segment.build(adapted, prompts[:1], [0])
    from icl_mech.engine.writing import following

    text = written(plain, 0)
    state = writer.begin_writing(segment)
    for step in range(3):
        own = torch.stack([value[0] for value in state.values[0].values()])
        one = icl.PromptBatch((continued(prompts[0], text[:step]),), prompts.source)
        assert_close(own, icl.extraction(model, one).attention[0], atol=MARGIN, rtol=0)
        state = writer.go_on(following(state, text[step : step + 1]), [text[: step + 1]])


def test_readings_of_other_rows_are_refused():
    from icl_mech.measurements.whole_answers import WordReading

    with WORDS.raises(RunError, "readings_other_rows_refused"):
        Writer([WordReading(((1, 2),))], [])


# Ends


def test_a_text_ends_at_an_end_token():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4)
    free = icl.generate(model, prompts, max_new_tokens=NEW)
    end = written(free, 1)[4]
    model.original_model.generation_config.eos_token_id = [end]
    found = icl.generate(model, prompts, max_new_tokens=NEW)
    for row, prompt in enumerate(prompts):
        own = written(found, row)
        whole = written(free, row)
        stop = whole.index(end) + 1 if end in whole else len(whole)
        assert own == whole[:stop] == huggingface(model, prompt)
        assert found.endings[row] == ("end" if end in whole else "length")
    assert found.log_probs.isnan().equal(found.tokens == -1)


def test_a_text_ends_at_tokens_and_words_given(model, prompts, plain):
    first = written(plain, 0)
    by_id = icl.generate(model, prompts[:1], max_new_tokens=NEW, stop=first[3])
    assert written(by_id, 0) == first[: first.index(first[3]) + 1]
    assert by_id.endings == ("stop",)
    word = next(piece for piece in plain.pieces[0] if piece.strip())
    by_word = icl.generate(model, prompts[:1], max_new_tokens=NEW, stop=[word])
    assert by_word.texts[0] == plain.texts[0][: plain.texts[0].index(word)]
    assert word in "".join(by_word.pieces[0])


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_pieces_add_up_to_the_text(kind):
    tokenizer = tiny_tokenizer(kind)
    tokens = tokenizer("good Überraschung 😀 bad", add_special_tokens=False).input_ids
    found = pieces(tokenizer, tokens)
    assert len(found) == len(tokens)
    assert "".join(found) == tokenizer.decode(tokens)


# Drawn texts


def test_draws_are_seeded_and_do_not_depend_on_the_batch(model, prompts):
    how = {"max_new_tokens": NEW, "do_sample": True, "attention": False}
    first, again, other, single = (
        icl.generate(model, prompts, **how, **more)
        for more in ({}, {}, {"seed": 1}, {"batch_size": 1})
    )
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.tokens, single.tokens)
    assert not torch.equal(first.tokens, other.tokens)


def test_one_likeliest_token_is_greedy(model, prompts, plain):
    for narrow in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        found = icl.generate(model, prompts, max_new_tokens=NEW, do_sample=True, **narrow)
        assert torch.equal(found.tokens, plain.tokens)


def test_what_is_drawn_from():
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    half = Choice(True, top_p=0.6).narrowed(logits)
    assert half.isfinite().tolist() == [[True, True, False, False]]
    two = Choice(True, top_k=3, temperature=2.0).narrowed(logits)
    assert two.isfinite().tolist() == [[True, True, True, False]]
    assert_close(two[0, 0], logits[0, 0].double() / 2)


def test_tokens_are_drawn_in_proportion():
    logits = torch.tensor([[0.5, 0.3, 0.0, 0.2]]).log().expand(4000, -1)
    choice = Choice(True)
    drawn = choice.next_tokens(logits, [choice.draws(number) for number in range(4000)])
    shares = drawn.bincount(minlength=4).double() / 4000
    assert_close(shares, torch.tensor([0.5, 0.3, 0.0, 0.2]).double(), atol=0.03, rtol=0)


# Compressed demonstrations


def test_a_context_of_all_tokens_writes_what_the_whole_prompt_does(model):
    prompts = icl.build_prompts(TASK, model, shots=2, n=3)
    start = next(span.start for span in prompts[0].spans if span.role == "query_text")
    first = max(span.stop for span in prompts[0].spans if span.demo is not None)
    context = CompressContext(keep=range(first))(model, prompts)
    assert context.query <= start
    found = icl.generate(model, prompts, context=context, max_new_tokens=NEW)
    assert torch.equal(found.tokens, icl.generate(model, prompts, max_new_tokens=NEW).tokens)


@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor"])
def test_a_compressed_context_goes_on_as_it_predicts(model, method):
    prompts = icl.build_prompts(TASK, model, shots=2, n=3)
    context = CompressContext(method)(model, prompts)
    found = icl.generate(model, prompts, context=context, max_new_tokens=3)
    top = context.predict(model, prompts, top_k=1).top_tokens[:, 0]
    assert torch.equal(found.tokens[:, 0], top)
    assert found.sizes[0, 0].sum() == len(context) + len(prompts[0]) - context.query
    one = icl.generate(model, prompts[1:2], context=context, max_new_tokens=3)
    assert written(one, 0) == written(found, 1)


def test_overlapping_positions_stay_overlapped(model):
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)
    context = CompressContext(position="overlap")(model, prompts)
    assert context.first == 0
    found = icl.generate(model, prompts, context=context, max_new_tokens=3)
    query = context.query
    tokens = [*prompts[0].tokens[query:], *written(found, 0)]
    from icl_mech.models.huggingface import dynamic_cache

    past = dynamic_cache(context.cache(adapt(model)))
    ids = torch.tensor([tokens[:-1]])
    with torch.no_grad():
        logits = model.original_model(
            ids, past_key_values=past, position_ids=torch.arange(len(ids[0]))[None]
        ).logits[0]
    assert logits.argmax(-1)[-3:].tolist() == written(found, 0)


# Results and errors


def test_it_is_a_measurement_and_a_file(model, prompts, plain, tmp_path):
    analysis = icl.measure(model, prompts, Generate(max_new_tokens=NEW))
    assert torch.equal(analysis.generate.tokens, plain.tokens)
    plain.save(tmp_path / "text")
    from icl_mech.results import Result

    again = Result.load(tmp_path / "text")
    assert again.texts == plain.texts
    assert_close(again.attention, plain.attention, equal_nan=True)


def test_figures_and_tables(plain):
    assert plain.plot().data
    assert plain.plot(show="steps", prompt=1).data
    assert [figure.show for figure in plain.figures()] == ["spans", "steps"]
    assert len(plain.by_prompt()) == 4 * NEW
    assert plain.by_prompt("length")["length"].tolist() == [NEW] * 4
    assert plain.to_pandas().length_low.tolist() == [NEW]
    assert "length 4" in plain.summary()
    assert plain.interval("length").value == NEW


def test_prompts_without_room_are_refused(model, prompts):
    room = adapt(model).info.n_ctx - int(prompts.lengths.max())
    with WORDS.raises(PromptError, "room", room):
        icl.generate(model, prompts, max_new_tokens=room + 1)
    full = copy.copy(prompts[0])
    full = continued(full, [5] * (adapt(model).info.n_ctx - len(full)))
    with WORDS.raises(PromptError, "prompts_without_room_refused", "0"):
        icl.generate(model, icl.PromptBatch((full,)), max_new_tokens=1)


def test_the_last_place_can_be_written_to(model, prompts):
    room = adapt(model).info.n_ctx - len(prompts[0])
    long = icl.PromptBatch((continued(prompts[0], [5] * (room - 2)),))
    assert icl.generate(model, long, max_new_tokens=2).tokens.shape == (1, 2)


def test_words_to_stop_at():
    model = adapt(tiny_model("gpt2"))
    stops = Stops.of(model, ["bad", 7])
    assert (stops.words, stops.ids) == (("bad",), {7})
    assert stops.ends
