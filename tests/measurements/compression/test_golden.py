"""Compression of a tiny GPT-2, against numbers of the paper's own code.

`overlap` is what that code does for GPT-2, `true` what it does for GPT-J. Tolerances: the
folder's README.
"""

import pytest
import torch

from icl_mech import Example, PromptBatch, Template
from icl_mech.measurements.compression.compress_demonstrations import compress_demonstrations
from icl_mech.measurements.compression.kept import anchor_positions, parts, random_positions
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.laying import Asked, assemble, template_pieces
from tests.golden_data import LABEL_WORDS, arrays, document, golden_model, label_words_prompts
from tests.margins import apart, vocabulary
from tests.measurements.compression.cases import behind, compare_compression
from tests.measurements.test_label_words_golden import hooked_model

pytestmark = pytest.mark.tl3

SETS = ("sst2_s1", "sst2_s2", "agnews_s1", "agnews_s2")
OFFSETS = {"overlap": "off0", "true": "offdemo"}
METHODS = ("hidden_anchor", "text_anchor", "hidden_random")
EXACT = {"rel": 0, "abs": 1e-12}

each_set = pytest.mark.parametrize("name", SETS)
each_position = pytest.mark.parametrize("position", OFFSETS)


@pytest.fixture(scope="module")
def model():
    return golden_model("label_words", "tiny_gpt2")


@pytest.fixture(scope="module")
def golden():
    return arrays("label_words", "compress.npz")


def compressed(model, golden, name, method, position, **options):
    kept = "random_kept" if method == "hidden_random" else "kept"
    return compress_demonstrations(
        model,
        label_words_prompts(f"icl/{name}"),
        method=method,
        position=position,
        keep=[golden[f"{name}_{kept}"].tolist()] * 24,
        **options,
    )


@each_set
@each_position
@pytest.mark.parametrize("method", METHODS)
def test_class_logits(model, golden, name, method, position):
    found = compressed(model, golden, name, method, position)
    offset = "" if method == "text_anchor" else f"_{OFFSETS[position]}"
    expected = torch.from_numpy(golden[f"{name}_{method}{offset}_class_logits"])
    torch.testing.assert_close(found.label_logits, expected, rtol=0, atol=5e-5)


@each_set
@each_position
def test_loyalties_and_accuracies(model, golden, name, position):
    offset = OFFSETS[position]
    for row, method in enumerate(METHODS):
        found = compressed(model, golden, name, method, position)
        wide = compressed(model, golden, name, method, position, top_k=10)
        for value, key in (
            (found.label_loyalty, "label_loyalty"),
            (found.word_loyalty, "word_loyalty_top5"),
            (wide.word_loyalty, "word_loyalty_top10"),
        ):
            off = abs(value.value - float(golden[f"{name}_{offset}_{key}"][row]))
            assert off <= 1e-12 or off <= unclear_words(model, found, name, key), key
        assert bool((apart(found.label_logits)).all())
        full, *accuracies = golden[f"{name}_{offset}_accuracy"]
        assert found.accuracy.value == pytest.approx(float(accuracies[row]), **EXACT)
        assert found.full_accuracy.value == pytest.approx(float(full), **EXACT)


def unclear_words(model, found, name, key):
    """Share of prompts whose top tokens hang on the last bits: the word loyalty may differ by it."""
    top_k = {"word_loyalty_top5": 5, "word_loyalty_top10": 10}.get(key)
    if top_k is None:
        return 0.0
    prompts = label_words_prompts(f"icl/{name}")
    position, rows = found.provenance["variants"]["position"], []
    for prompt, kept in zip(prompts, found.kept, strict=True):
        query = parts(prompt, kept).query
        if found.method == "text_anchor":
            tokens = [prompt.tokens[place] for place in (*kept, *range(query, prompt.target + 1))]
            with torch.no_grad():
                rows.append(model.original_model(torch.tensor([tokens])).logits[0, -1])
        else:
            rows.append(behind(model, prompt, kept, query, query if position == "true" else 0))
    clear = apart(torch.stack(rows), top_k) & apart(vocabulary(model, prompts), top_k)
    return float((~clear).double().mean())


@each_set
def test_the_query_begins_behind_the_kept_tokens(golden, name):
    prompts = label_words_prompts(f"icl/{name}")
    kept = tuple(golden[f"{name}_kept"].tolist())
    assert {parts(prompt, kept).query for prompt in prompts} == {int(golden[f"{name}_demo_len"])}


def written_out(model, name) -> PromptBatch:
    """The golden prompts, built from their texts with the task's template."""
    task = document("label_words", "data.json")["tasks"][name.split("_")[0]]
    rows = document("label_words", "data.json")["prompt_sets"][f"icl/{name}"]
    reader = TextTokenizer(model.tokenizer)
    template = Template(task["template"].replace("{label}", " {label}"))
    words = [word.strip() for word in task["label_words"]]
    prompts = []
    for row in rows:
        shown = [task["train"][index] for index in row["demo_train_idx"]]
        demonstrations = [
            (Example(one["text"], one["label"]), words[one["label"]]) for one in shown
        ]
        query = task[row["query_split"]][row["query_idx"]]
        prompts.append(
            assemble(
                reader,
                template_pieces(template, demonstrations, Example(query["text"], row["label"])),
                Asked(words, words, template.closing),
                label_classes=[one["label"] for one in shown],
                answer=row["label"],
                bos=False,
            )
        )
    return PromptBatch(tuple(prompts))


@each_set
def test_roles_give_the_kept_tokens(model, golden, name):
    prompts = written_out(model, name)
    rows = document("label_words", "data.json")["prompt_sets"][f"icl/{name}"]
    assert [list(prompt.tokens) for prompt in prompts] == [row["input_ids"] for row in rows]
    for prompt in prompts:
        assert list(anchor_positions(prompt)) == golden[f"{name}_kept"].tolist()
        assert parts(prompt).query == int(golden[f"{name}_demo_len"])
        assert list(prompt.label_positions) == golden[f"{name}_label_positions"].tolist()


@each_set
def test_the_random_tokens_are_among_those_that_can_be_drawn(model, golden, name):
    prompt = written_out(model, name)[0]
    kept = set(golden[f"{name}_random_kept"].tolist())
    assert len(kept) == len(anchor_positions(prompt))
    drawn = {p for s in range(200) for p in random_positions(prompt, seed=s, draws=1)[0]}
    assert kept <= drawn


@each_set
def test_the_table_from_texts(model, golden, name):
    table = compare_compression(model, written_out(model, name), METHODS[:2], position="overlap")
    assert bool(apart(table.label_logits).all())
    for row, method in enumerate(METHODS[:2]):
        expected = float(golden[f"{name}_off0_label_loyalty"][row])
        assert table.label_loyalty(method).value == pytest.approx(expected, **EXACT)
        accuracy = float(golden[f"{name}_off0_accuracy"][row + 1])
        assert table.accuracy(method).value == pytest.approx(accuracy, **EXACT)


@pytest.mark.hooked
@each_set
@pytest.mark.parametrize("method", METHODS)
def test_a_hooked_transformer(golden, name, method):
    """It counts positions itself, so columns are hidden instead of cut."""
    hooked = hooked_model(LABEL_WORDS / "tiny_gpt2")
    found = compressed(hooked, golden, name, method, "true")
    offset = "" if method == "text_anchor" else "_offdemo"
    expected = torch.from_numpy(golden[f"{name}_{method}{offset}_class_logits"])
    torch.testing.assert_close(found.label_logits, expected, rtol=0, atol=5e-5)
