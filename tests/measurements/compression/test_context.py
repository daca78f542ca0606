"""Compressed contexts answer like compressed prompts, also after they were saved."""

import json
from dataclasses import replace

import pytest
import torch

from icl_mech import Prompt, PromptBatch, build_prompts, prompts_from_text
from icl_mech.errors import ModelError, PromptError, ResultError, RunError
from icl_mech.measurements.compression.compress_context import CompressContextResult
from icl_mech.measurements.compression.compress_demonstrations import compress_demonstrations
from icl_mech.measurements.compression.kept import parts
from icl_mech.models import adapt
from tests.measurements.compression.cases import FAMILIES, compress_context, task
from tests.said import Words
from tests.saved import reseal
from tests.tiny import tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

METHODS = ("hidden_anchor", "text_anchor", "hidden_random", "hidden_random_top")


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


@pytest.mark.parametrize("position", ["true", "overlap"])
@pytest.mark.parametrize("method", METHODS)
def test_answers_are_those_of_compressed_prompts(setting, method, position):
    model, batch = setting
    options = {"method": method, "position": position, "draws": 3}
    expected = compress_demonstrations(model, batch, **options)
    context = compress_context(model, batch, **options)
    found = context.predict(model, batch)
    assert context.kept == expected.kept[0]
    assert torch.equal(found.label_logits, expected.label_logits)
    assert found.answers.tolist() == batch.answers.tolist()


def test_saved_and_loaded(setting, tmp_path):
    model, batch = setting
    context = compress_context(model, batch)
    folder = context.save(tmp_path / "context")
    assert {file.name for file in folder.iterdir()} == {"result.json", "tensors.safetensors"}
    loaded = CompressContextResult.load(folder)
    before, after = (one.predict(model, batch) for one in (context, loaded))
    assert torch.equal(before.label_logits, after.label_logits)
    assert torch.equal(before.top_tokens, after.top_tokens)
    assert loaded.kept == context.kept
    assert loaded.spans == context.spans
    assert loaded.answer(model, ["a nice film"]) == context.answer(model, ["a nice film"])
    context.save(folder, overwrite=True)  # replaces what it wrote


def test_the_cache_is_small(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    assert len(context) == len(context.kept) < parts(prompts[0]).query
    assert {key.shape[2] for key in (*context.keys, *context.values)} == {len(context)}
    WORDS(context.summary(), "cache_small")
    assert context.shown() == [context.summary()]


def test_queries_are_written_like_those_of_build_prompts(setting):
    """The same tokens and spans for the same texts."""
    model, batch = setting
    context = compress_context(model, batch)
    texts = [example.text for example in task().test]
    written = context.queries(model, texts)
    by_tokens = {prompt.tokens: prompt for prompt in written}
    for prompt in batch:
        own = by_tokens[prompt.tokens]
        assert own.spans == prompt.spans
        assert own.label_words == prompt.label_words
        assert own.label_positions == prompt.label_positions
    predicted = context.predict(model, written).predicted.tolist()
    assert context.answer(model, texts) == [context.labels[label] for label in predicted]


@pytest.mark.parametrize("separator", ["\n", "\n\n", ". ", " ; "])
def test_separators(gpt2, separator):
    batch = build_prompts(task("{text}: {label}", separator=separator), gpt2, shots=1, n=6)
    context = compress_context(gpt2, batch)
    written = context.queries(gpt2, [example.text for example in task().test])
    assert {p.tokens for p in batch} <= {p.tokens for p in written}


def test_pairs_of_texts(gpt2):
    pair = task()
    examples = tuple(replace(example, text2="the movie") for example in pair.train)
    pair = replace(
        pair,
        template=replace(pair.template, pattern="Input: {text}\nOutput: {text2}\nAnswer: {label}"),
        train=examples,
        test=examples,
    )
    batch = build_prompts(pair, gpt2, shots=1, n=2)
    context = compress_context(gpt2, batch)
    written = context.queries(gpt2, [(example.text, example.text2) for example in pair.test])
    assert {p.tokens for p in batch} <= {p.tokens for p in written}


def test_new_queries_of_a_single_prompt(gpt2, prompts):
    context = compress_context(gpt2, prompts[0])
    assert torch.equal(
        context.predict(gpt2, prompts).label_logits,
        compress_context(gpt2, prompts).predict(gpt2, prompts).label_logits,
    )
    with WORDS.raises(PromptError, "new_queries_single_prompt"):
        context.queries(gpt2, ["a nice film"])


def test_bare_positions(gpt2, prompts):
    bare = PromptBatch(
        tuple(
            Prompt.from_positions(
                p.tokens, label_positions=p.label_positions, label_classes=p.label_classes,
                label_tokens=p.label_tokens,
            )
            for p in prompts
        )
    )  # fmt: skip
    plain = compress_context(gpt2, prompts)
    context = compress_context(gpt2, bare, keep=plain.kept)
    assert torch.equal(
        context.predict(gpt2, bare).label_logits, plain.predict(gpt2, prompts).label_logits
    )
    with WORDS.raises(PromptError, "bare_positions"):
        compress_context(gpt2, bare)


def test_other_demonstrations_are_refused(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    other = build_prompts(task(), gpt2, shots=1, n=2, seed=1)
    with WORDS.raises(PromptError, "other_demonstrations_refused", "0"):
        context.predict(gpt2, other)
    with WORDS.raises(PromptError, "other_demonstrations_refused_2", "6"):
        context.predict(gpt2, PromptBatch((*prompts, *other)))
    with WORDS.raises(PromptError, "other_demonstrations_refused_3"):
        compress_context(gpt2, PromptBatch((*prompts, *other)))
    swapped = task(labels=("Positive", "Negative"))
    with WORDS.raises(PromptError, "other_demonstrations_refused_4"):
        context.predict(gpt2, build_prompts(swapped, gpt2, shots=1, n=2))


def test_a_prompt_that_ends_inside_the_demonstrations(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    cut = Prompt.from_positions(
        context.tokens, label_positions=[], label_classes=[], label_tokens=prompts[0].label_tokens
    )
    with WORDS.raises(PromptError, "prompt_ends_inside_demonstrations"):
        context.predict(gpt2, PromptBatch((cut,)))


@pytest.mark.slow
def test_another_model_is_refused(gpt2, prompts):
    context = compress_context(gpt2, prompts)
    with WORDS.raises(ModelError, "another_model_refused", "'tiny-gpt2'", "'tiny-neox'"):
        context.predict(tiny_model("neox"), prompts)
    retrained = tiny_model("gpt2", seed=1)
    with WORDS.raises(ModelError, "another_model_refused_2"):
        context.predict(retrained, prompts)
    again = tiny_model("gpt2")
    assert torch.equal(
        context.predict(again, prompts).label_logits, context.predict(gpt2, prompts).label_logits
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_layers", 9), ("d_head", 9), ("dtype", "bfloat16"), ("revision", "other")],
)
def test_a_model_that_differs_in_one_fact(gpt2, prompts, name, value):
    context = compress_context(gpt2, prompts)
    model = {**context.provenance["model"], name: value}
    other = replace(context, provenance={**context.provenance, "model": model})
    with pytest.raises(ModelError, match=rf"\({name} {value}\)"):
        other.predict(gpt2, prompts)


def test_a_model_that_counts_positions_itself(gpt2, prompts, monkeypatch):
    context = compress_context(gpt2, prompts)
    monkeypatch.setitem(vars(adapt(gpt2)), "takes_positions", False)
    with WORDS.raises(RunError, "model_counts_positions_itself"):
        compress_context(gpt2, prompts)
    text = compress_context(gpt2, prompts, method="text_anchor")
    text.predict(gpt2, prompts)
    with WORDS.raises(RunError, "model_counts_positions_itself"):
        context.predict(gpt2, prompts)


@pytest.mark.usefixtures("unchecked")
def test_options_that_make_no_sense(gpt2, prompts):
    with pytest.raises(RunError, match="method='hidden'"):
        compress_context(gpt2, prompts, method="hidden")
    with WORDS.raises(RunError, "options_make_no_sense"):
        compress_context(gpt2, prompts, method="hidden_random_top", keep=[0])
    with WORDS.raises(PromptError, "options_make_no_sense_2"):
        compress_context(gpt2, build_prompts(task(), gpt2, shots=0, n=1))
    context = compress_context(gpt2, prompts)
    with WORDS.raises(PromptError, "options_make_no_sense_3"):
        context.queries(gpt2, "a nice film")


def test_damaged_files(gpt2, prompts, tmp_path):
    folder = compress_context(gpt2, prompts).save(tmp_path / "context")
    with WORDS.raises(ResultError, "damaged_files", "No"):
        CompressContextResult.load(tmp_path / "nothing")
    values = json.loads((folder / "result.json").read_text())["values"]
    del values["kept"]
    reseal(folder / "result.json", values=values)
    with WORDS.raises(ResultError, "damaged_files_2"):
        CompressContextResult.load(folder)
    (folder / "tensors.safetensors").unlink()
    with pytest.raises(ResultError, match="incomplete"):
        CompressContextResult.load(folder)


def test_another_kind_of_result(gpt2, prompts, tmp_path):
    result = compress_demonstrations(gpt2, prompts)
    with WORDS.raises(ResultError, "another_kind_result"):
        CompressContextResult.load(result.save(tmp_path / "result"))


def test_raw_text_prompts(gpt2):
    text = "Review: bad\nSentiment: Negative\nReview: good film\nSentiment:"
    batch = prompts_from_text([text], ["Negative", "Positive"], gpt2)
    context = compress_context(gpt2, batch, keep=batch[0].label_positions)
    with pytest.raises(PromptError, match="template"):
        context.queries(gpt2, ["good"])
