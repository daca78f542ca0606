"""Rationales between text and label: roles by sentence, loading, chats, and rewriting."""

from types import SimpleNamespace

import pandas as pd
import pytest

import icl_mech as icl
from icl_mech import Example, Task, Template
from icl_mech.errors import CallError, PromptError, TaskError
from icl_mech.prompts import (
    PromptBatch,
    Span,
    corrupted_rationales,
    rationale_prefix,
    with_rationales,
)
from icl_mech.prompts.drawing import examples_digest
from icl_mech.prompts.rationales import open_rationale, rationale_of, rationale_spans
from tests.prompts.test_chat import TEMPLATES, chatty
from tests.said import Words
from tests.texts.kinds import joining
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

PATTERN = "Review: {text}\nBecause: {rationale}\nSentiment: {label}"
ROWS = [
    ("a good story", "The story is good. Good is a plus.", 1),
    ("a boring plot", "The plot is bad. Bad is a minus.", 0),
    ("a wonderful film", "The word is wonderful. It praises. So it is good.", 1),
    ("a waste of hours", "A waste is bad.", 0),
    ("courage and hope", "Hope is good. It is a film of hope.", 1),
    ("terrible acting", "The acting is bad. It was terrible.", 0),
]
EXAMPLES = tuple(Example(text, label, rationale=why) for text, why, label in ROWS)
TASK = Task(
    "reasons", Template(PATTERN, "\n\n"), ("Negative", "Positive"), EXAMPLES[:3], EXAMPLES[3:]
)
KINDS = {"bpe": tiny_tokenizer("bpe"), "sentencepiece": tiny_tokenizer("sentencepiece")}


def built(tokenizer, **options):
    return icl.build_prompts(
        TASK, tokenizer, demonstrations=list(EXAMPLES[:3]), queries=list(EXAMPLES[3:]), **options
    )


def said(prompt, role, demo):
    return [prompt.text[p.start : p.stop] for p in prompt.parts if (p.role, p.demo) == (role, demo)]


@pytest.fixture(params=["bpe", "sentencepiece", "joining"])
def tokenizer(request):
    return joining() if request.param == "joining" else tiny_tokenizer(request.param)


def test_each_sentence_is_a_span_and_the_text_is_tokenised_as_a_whole(tokenizer):
    prompts = built(tokenizer)
    for prompt, query in zip(prompts, EXAMPLES[3:], strict=True):
        shown = "\n\n".join(
            PATTERN.format(text=e.text, rationale=e.rationale, label=TASK.labels[e.label])
            for e in EXAMPLES[:3]
        )
        asked = PATTERN.format(text=query.text, rationale=query.rationale, label="")
        whole = f"{shown}\n\n{asked}"
        assert whole.startswith(prompt.text)
        for label, candidate in zip(TASK.labels, prompt.candidates, strict=True):
            ids = tokenizer(whole + label + "\n\nReview: ")["input_ids"]
            assert tuple(ids[: len(prompt) + len(candidate.tokens)]) == (
                *prompt.tokens, *candidate.tokens
            )  # fmt: skip
        for demo, example in enumerate((*EXAMPLES[:3], query)):
            number = demo if demo < 3 else None
            sentences = said(prompt, "rationale", number)
            assert "".join(sentences) == example.rationale
            assert [s.strip()[-1] for s in sentences] == ["."] * example.rationale.count(".")
            spans = [s for s in prompt.spans if (s.role, s.demo) == ("rationale", number)]
            assert len(spans) == len(sentences)
        roles = [span.role for span in prompt.spans if span.demo == 0]
        assert roles == [
            "format", "demo_text", "format", "rationale", "rationale", "format", "label_word", "format"
        ] or roles[0] == "demo_text"  # fmt: skip
        assert prompt.spans[-1] == Span("target", None, len(prompt) - 1, len(prompt))


def test_examples_build_the_same_prompt_again_and_saving_keeps_it(tokenizer):
    prompts = built(tokenizer)
    for prompt in prompts:
        demonstrations, query = prompt.examples(tokenizer)
        assert (*demonstrations, query) == (*EXAMPLES[:3], query)
        again = icl.build_prompts(
            TASK, tokenizer, demonstrations=list(demonstrations), queries=[query]
        )
        assert again[0] == prompt
    loaded = PromptBatch.from_dict(prompts.to_dict())
    assert loaded.prompts == prompts.prompts
    assert loaded.digest == prompts.digest


@pytest.mark.parametrize("name", TEMPLATES)
def test_in_chats_the_rationale_begins_the_assistants_turn(name):
    template, options = TEMPLATES[name]
    tokenizer = chatty(template)
    prompts = built(tokenizer, chat=True, **options)
    for prompt, query in zip(prompts, EXAMPLES[3:], strict=True):
        for demo, example in enumerate((*EXAMPLES[:3], query)):
            number = demo if demo < 3 else None
            assert "".join(said(prompt, "rationale", number)) == example.rationale
            before = prompt.text[: prompt.text.index(example.rationale)]
            assert "assistant" in before[before.rindex(example.text) :]
        assert prompt.text.rstrip().endswith(f"{query.rationale}\nSentiment:")
        assert (
            list(prompt.tokens[: len(prompt) - 1])
            == tokenizer(prompt.text, add_special_tokens=False)["input_ids"][: len(prompt) - 1]
        )
        none = rationale_prefix(PromptBatch((prompt,), prompts.source), tokenizer, 0)[0]
        assert "rationale" not in {s.role for s in none.spans if s.demo is None}
        assert none.text.count("assistant") == prompt.text.count("assistant")


def test_prefixes_are_the_prompts_of_shorter_rationales(tokenizer):
    prompts = built(tokenizer)[[1, 2]]
    for count in (1, 2):
        wanted = [
            Example(
                e.text,
                e.label,
                rationale=" ".join(e.rationale.split(". ")[:count]).rstrip(".") + ".",
            )
            if count == 1
            else e
            for e in EXAMPLES[4:]
        ]
        cut = rationale_prefix(prompts, tokenizer, count)
        fresh = icl.build_prompts(
            TASK, tokenizer, demonstrations=list(EXAMPLES[:3]), queries=wanted
        )
        assert cut.prompts == fresh.prompts
        assert cut.source["rationale_sentences"] == count
    none = rationale_prefix(prompts, tokenizer, 0)
    for prompt, bare in zip(prompts, none, strict=True):
        text = "".join(said(prompt, "query_text", None))
        assert bare.text.rstrip().endswith(f"Review: {text}\nSentiment:")
        assert not rationale_of(bare)
        assert rationale_of(bare, 0) == rationale_of(prompt, 0)
        assert (bare.label_words, bare.answer) == (prompt.label_words, prompt.answer)


def test_given_rationales_take_the_place_of_the_old_ones(tokenizer):
    prompts = built(tokenizer)
    texts = ["It is so. Yes.", "", "A plus."]
    new = with_rationales(prompts, tokenizer, texts)
    assert [rationale_of(prompt) for prompt in new] == [("It is so.", " Yes."), (), ("A plus.",)]
    assert new[1] == rationale_prefix(prompts, tokenizer, 0)[1]
    queries = [Example(e.text, e.label, rationale="A plus.") for e in EXAMPLES[5:]]
    fresh = icl.build_prompts(TASK, tokenizer, demonstrations=list(EXAMPLES[:3]), queries=queries)
    assert new[2] == fresh[0]


def test_corrupted_rationales_come_from_another_class_or_stand_in_another_order(tokenizer):
    prompts = built(tokenizer)
    labels = {"".join(rationale_of(prompt)): prompt.answer for prompt in prompts}
    for seed in range(4):
        other = corrupted_rationales(prompts, tokenizer, seed=seed)
        for old, new in zip(prompts, other, strict=True):
            assert labels["".join(rationale_of(new))] != old.answer
            assert [rationale_of(new, demo) for demo in range(3)] == [
                rationale_of(old, demo) for demo in range(3)
            ]
        assert corrupted_rationales(prompts, tokenizer, seed=seed).prompts == other.prompts
    shown = corrupted_rationales(prompts, tokenizer, where="demonstrations")[0]
    # Each takes that of the next demonstration with another label.
    assert [rationale_of(shown, demo) for demo in range(3)] == [
        rationale_of(prompts[0], demo) for demo in (1, 2, 1)
    ]
    assert rationale_of(shown) == rationale_of(prompts[0])
    both = corrupted_rationales(prompts, tokenizer, where="both")
    assert rationale_of(both[0]) != rationale_of(prompts[0])
    assert rationale_of(both[0], 0) == rationale_of(prompts[0], 1)
    turned = corrupted_rationales(prompts[[1, 2]], tokenizer, "shuffled")
    for old, new in zip(prompts[[1, 2]], turned, strict=True):
        first, second = (sentence.strip() for sentence in rationale_of(old))
        assert rationale_of(new) == (second, f" {first}")


def test_what_cannot_be_corrupted_is_refused():
    tokenizer = KINDS["bpe"]
    prompts = built(tokenizer)
    with WORDS.raises(PromptError, "single_sentence"):
        corrupted_rationales(prompts, tokenizer, "shuffled")
    with WORDS.raises(PromptError, "no_other_class"):
        corrupted_rationales(prompts[[0, 2]], tokenizer)
    with WORDS.raises(PromptError, "too_few_sentences"):
        rationale_prefix(prompts, tokenizer, 2)
    with WORDS.raises(PromptError, "how_many_rationales", 2, 3):
        with_rationales(prompts, tokenizer, ["Yes.", "No."])
    plain = icl.build_prompts("reviews", tokenizer, n=2)
    with WORDS.raises(PromptError, "without_rationale"):
        rationale_prefix(plain, tokenizer, 0)
    with WORDS.raises(PromptError, "nothing_to_open"):
        open_rationale(plain[0])


def test_templates_show_a_rationale_right_before_the_label():
    for pattern in ("{rationale} {text}: {label}", "{text} {rationale} {rationale}: {label}"):
        with pytest.raises(TaskError, match="rationale"):
            Template(pattern)
    with WORDS.raises(TaskError, "example_without_rationale"):
        list(Template(PATTERN).pieces(Example("a film", 0), "Negative"))
    with WORDS.raises(TaskError, "blank_rationale"):
        Task("t", Template(PATTERN), ("a", "b"), (Example("x", 0, rationale=" "),), ())
    with pytest.raises(PromptError, match="rationale"):
        icl.build_prompts(TASK, KINDS["bpe"], queries=[Example("a film", 0)])


@pytest.mark.parametrize("column", ["rationale", "why"])
def test_rationales_are_a_column(column):
    frame = pd.DataFrame([{"text": t, column: why, "label": TASK.labels[c]} for t, why, c in ROWS])
    how = {"template": PATTERN, "labels": TASK.labels}
    task = icl.load_task(frame, rationale=column, **how)
    assert {e.text: e.rationale for e in (*task.train, *task.test)} == {t: w for t, w, _ in ROWS}
    if column == "rationale":
        assert icl.load_task(frame, **how).train == task.train
    with WORDS.raises(TaskError, "no_such_column", "'reason'"):
        icl.load_task(frame, rationale="reason", **how)
    with WORDS.raises(TaskError, "template_without_rationale"):
        icl.load_task(frame, rationale=column, template="reviews")
    frame.loc[2, column] = "  "
    with WORDS.raises(TaskError, "blank_in_column", 3):
        icl.load_task(frame, rationale=column, **how)


def test_free_form_answers_have_rationales_too():
    frame = pd.DataFrame(
        {"text": ["two", "three", "four", "five"], "answer": list("2345"), "why": ["It is so."] * 4}
    )
    task = icl.load_task(
        frame, template="{text}\n{rationale}\nA: {label}", answers="answer", rationale="why"
    )
    prompts = icl.build_prompts(task, KINDS["bpe"], shots=2, n=2)
    assert all(
        rationale_of(prompt, demo) == ("It is so.",) for prompt in prompts for demo in (0, 1, None)
    )
    demonstrations, query = prompts[0].examples(KINDS["bpe"])
    assert {e.rationale for e in (*demonstrations, query)} == {"It is so."}


def test_examples_without_rationale_keep_their_fingerprint():
    # The value that versions without rationales gave.
    assert examples_digest([Example("a film", 1), Example("b", 0, "c", ("d",), "e")]) == BEFORE
    assert examples_digest([EXAMPLES[0]]) != examples_digest([Example(*ROWS[0][::2])])


BEFORE = "898d74b3ea969b49"


def test_the_prompt_left_open_ends_before_the_rationale():
    model = tiny_model("gpt2")
    prompts = built(model)
    for prompt in prompts:
        opened = open_rationale(prompt)
        assert "".join(opened.pieces).endswith("\nBecause:")
        assert opened.target == len(opened) - 1
    written = icl.write_rationales(model, prompts, max_new_tokens=5, progress=False)
    assert len(written) == 3
    for old, new in zip(prompts, written, strict=True):
        assert "\n" not in "".join(rationale_of(new))
        assert [rationale_of(new, d) for d in range(3)] == [rationale_of(old, d) for d in range(3)]
        start = rationale_spans(old)[0].start - 1
        assert new.tokens[:start] == old.tokens[:start]
        assert new.answer == old.answer


def test_rationales_that_are_all_empty_are_refused(monkeypatch):
    model = tiny_model("gpt2")
    prompts = built(model)
    with WORDS.raises(PromptError, "all_empty"):
        with_rationales(prompts, model, ["", " ", "\n"])
    assert not rationale_of(with_rationales(prompts, model, ["", "Good.", ""])[0])
    monkeypatch.setattr(
        "icl_mech.measurements.generation.rationales.Generate.__call__",
        lambda *given, **how: SimpleNamespace(texts=(" ", "", "")),
    )
    with WORDS.raises(PromptError, "nothing_written"):
        icl.write_rationales(model, prompts)


def test_an_option_that_writing_does_not_take():
    model = tiny_model("gpt2")
    with WORDS.raises(CallError, "no_option"):
        icl.write_rationales(model, built(model), temprature=1)
    with WORDS.raises(CallError, "fixed_option"):
        icl.write_rationales(model, built(model), stop=".")
