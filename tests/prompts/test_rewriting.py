"""Prompts written anew: tokens are those of the whole text, and only what is asked for changes."""

from collections import Counter
from dataclasses import replace

import pytest

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch, build_prompts, prompts_from_text, shuffled_labels
from icl_mech.prompts.rewriting import relabelled_before, shuffled, zero_shot
from tests.measurements.test_whole_words import SETS, model, task
from tests.prompts.test_chat import TEMPLATES, chatty
from tests.said import Words
from tests.texts.kinds import joining
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

KINDS = ("bpe", "joining", "sentencepiece")


def tokenizer_of(kind):
    return joining() if kind == "joining" else tiny_tokenizer(kind)


def displayed(prompt):
    """Texts of the label words of demonstrations."""
    return [prompt.text[p.start : p.stop] for p in prompt.parts if p.role == "label_word"]


def check_written(tokenizer, before, after):
    """The rules of every prompt written anew."""
    for old, new in zip(before, after, strict=True):
        for candidate in new.candidates:
            whole = new.text + candidate.text
            read = tokenizer(whole, add_special_tokens=False)["input_ids"]
            put = new.spans[0].stop if new.spans[0].role == "bos" != new.parts[0].role else 0
            ids = (*new.tokens, *candidate.tokens)[put:]
            assert ids == tuple(read[: len(ids)])
            assert new.target == len(new) - 1
        assert new.exact
        assert new.candidates == old.candidates
        assert (new.answer, new.accepted, new.kind) == (old.answer, old.accepted, old.kind)
        query = [old.text[p.start : p.stop] for p in old.parts if p.role == "query_text"]
        assert [new.text[p.start : p.stop] for p in new.parts if p.role == "query_text"] == query
        assert "".join(new.pieces[put:]) == new.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
def test_label_words_change_places(kind, name):
    tokenizer = tokenizer_of(kind)
    labels, template = SETS[name]
    prompts = build_prompts(task(labels, template), tokenizer, shots=1, n=4)
    found = shuffled_labels(prompts, tokenizer, seed=3)
    assert found is not None
    check_written(tokenizer, prompts, found)
    for old, new in zip(prompts, found, strict=True):
        assert displayed(new) != displayed(old)
        assert Counter(displayed(new)) == Counter(displayed(old))
        assert [labels[c] for c in new.label_classes] == [own.strip() for own in displayed(new)]
        texts = [
            [p.text[s.start : s.stop] for s in p.parts if s.role == "demo_text"] for p in (old, new)
        ]
        assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("demo", [1, 3])
def test_earlier_demonstrations_display_other_labels(kind, name, demo):
    tokenizer = tokenizer_of(kind)
    labels, template = SETS[name]
    prompts = build_prompts(task(labels, template), tokenizer, shots=2, n=4)
    found, why_not = relabelled_before(prompts, tokenizer, demo)
    assert found is not None, why_not
    check_written(tokenizer, prompts, found)
    for old, new in zip(prompts, found, strict=True):
        before, after = displayed(old), displayed(new)
        assert all(one != other for one, other in zip(before[:demo], after[:demo], strict=True))
        assert before[demo:] == after[demo:]
        assert {*after} <= {*before}
        assert [labels[c] for c in new.label_classes] == [own.strip() for own in after]
    again = relabelled_before(found, tokenizer, 0).prompts
    assert [own.text for own in again] == [own.text for own in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
def test_zero_shot_prompts_are_those_built_without_demonstrations(kind, name):
    tokenizer = tokenizer_of(kind)
    own = task(*SETS[name])
    prompts = build_prompts(own, tokenizer, shots=1, n=4)
    found, why_not = zero_shot(prompts, tokenizer)
    assert found is not None, why_not
    check_written(tokenizer, prompts, found)
    expected = build_prompts(own, tokenizer, shots=0, n=4)
    assert found.digest == expected.digest
    assert [prompt.text for prompt in found] == [prompt.text for prompt in expected]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "\n", "."])
def test_a_candidate_that_begins_another_one_holds_what_follows_it(end):
    """SmolLM2 reads two line breaks as one token, so that what follows must not come twice."""
    tokenizer = icl.load_model().tokenizer
    own = task(("1", "10", "100"), "Question: {text}\nAnswer: {label}" + end)
    prompts = build_prompts(own, tokenizer, shots=1, n=2)
    assert prompts.candidates[0].text != prompts.labels[0].strip()
    found = shuffled_labels(prompts, tokenizer)
    check_written(tokenizer, prompts, found)


def test_prompts_with_labels_so_ordered_are_the_same():
    """Against `build_prompts` with demonstrations that display what was drawn."""
    tokenizer = tiny_tokenizer("bpe")
    own = task(("New York", "New Delhi", "Paris"))
    prompts = build_prompts(own, tokenizer, shots=1, n=3)
    found = shuffled_labels(prompts, tokenizer, seed=1)
    shown, _ = prompts[0].examples()
    again = [replace(e, label=c) for e, c in zip(shown, found[0].label_classes, strict=True)]
    queries = [prompt.examples()[1] for prompt in prompts]
    expected = build_prompts(own, tokenizer, demonstrations=again, queries=queries)
    assert found.digest == expected.digest


def test_demonstrations_in_common_stay_in_common():
    tokenizer = tiny_tokenizer("bpe")
    own = task(tuple("ABCD"))
    shared = build_prompts(own, tokenizer, shots=1, n=6, demonstrations="shared")
    found = shuffled_labels(shared, tokenizer)
    assert len({prompt.label_classes for prompt in found}) == 1
    assert shuffled_labels(shared[3:], tokenizer).digest == found[3:].digest
    each = build_prompts(own, tokenizer, shots=1, n=6, demonstrations="per_prompt")
    moved = shuffled_labels(each, tokenizer)
    steps = {
        tuple(p.label_classes.index(c) for c in q.label_classes)
        for p, q in zip(each, moved, strict=True)
    }
    assert len(steps) > 2
    orders = {shuffled_labels(shared, tokenizer, seed)[0].label_classes for seed in range(8)}
    assert len(orders) > 4
    assert shared[0].label_classes not in orders


def test_two_demonstrations_display_each_others_label():
    tokenizer = tiny_tokenizer("bpe")
    prompts = build_prompts(task(("yes", "no")), tokenizer, shots=1, n=2)
    found = shuffled_labels(prompts, tokenizer)
    assert found[0].label_classes == prompts[0].label_classes[::-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_chats(kind, name):
    template, options = TEMPLATES[name]
    tokenizer = chatty(template, kind)
    own = task(("New York", "New Delhi", "Paris"))
    prompts = build_prompts(own, tokenizer, shots=1, n=2, chat=True, **options)
    found = shuffled_labels(prompts, tokenizer)
    check_written(tokenizer, prompts, found)
    assert Counter(displayed(found[0])) == Counter(displayed(prompts[0]))
    bare, why_not = zero_shot(prompts, tokenizer)
    assert bare is not None, why_not
    expected = build_prompts(own, tokenizer, shots=0, n=2, chat=True, **options)
    assert [prompt.text for prompt in bare] == [prompt.text for prompt in expected]
    assert [prompt.tokens for prompt in bare] == [prompt.tokens for prompt in expected]


@pytest.mark.slow
@pytest.mark.parametrize("score", ["first", "sum"])
def test_open_answers(score):
    model = icl.load_model()
    prompts = build_prompts("past_tense", model, shots=4, n=3, score=score)
    found = shuffled_labels(prompts, model)
    check_written(model.tokenizer, prompts, found)
    assert found.score == score
    for old, new in zip(prompts, found, strict=True):
        assert displayed(old) != displayed(new)
        assert sorted(displayed(old)) == sorted(displayed(new))
        names = [new.labels[c] for c in new.label_classes]
        assert names == [own.strip() for own in displayed(new)]


@pytest.mark.parametrize("bos", [None, False])
def test_a_token_that_the_tokenizer_puts_first(bos):
    tokenizer = tiny_tokenizer("sentencepiece")
    prompts = build_prompts(task(("yes", "no")), tokenizer, shots=1, n=2, bos=bos)
    assert (prompts[0].spans[0].role == "bos") is (bos is None)
    for found in (shuffled_labels(prompts, tokenizer), zero_shot(prompts, tokenizer).prompts):
        check_written(tokenizer, prompts, found)
        assert [p.tokens[0] for p in found] == [p.tokens[0] for p in prompts]


def test_texts_with_label_words():
    tokenizer = tiny_tokenizer("bpe")
    texts = ["good film: yes\nbad film: no\nfine film: yes\na film:", "a: no\nb: yes\nc: no\nd:"]
    prompts = prompts_from_text(texts, [" yes", " no"], tokenizer, answers=[0, 1])
    found = shuffled_labels(prompts, tokenizer, seed=2)
    check_written(tokenizer, prompts, found)
    assert all(len(p) == len(q) for p, q in zip(prompts, found, strict=True))


def test_saved_and_loaded():
    tokenizer = tiny_tokenizer("bpe")
    prompts = build_prompts(task(("1", "10", "100")), tokenizer, shots=1, n=2)
    found = shuffled_labels(prompts, tokenizer)
    assert (
        shuffled_labels(PromptBatch.from_dict(prompts.to_dict()), tokenizer).digest == found.digest
    )
    again = PromptBatch.from_dict(found.to_dict())
    assert again.digest == found.digest
    assert again.source["labels"] == "shuffled"
    # Shuffled ones can be shuffled.
    assert displayed(shuffled_labels(again, tokenizer)[0]) != displayed(again[0])


def test_what_cannot_be_written():
    tokenizer = tiny_tokenizer("bpe")
    own = task(("yes", "no"))
    prompts = build_prompts(own, tokenizer, shots=1, n=2)
    first = own.train[0]
    alike = build_prompts(own, tokenizer, demonstrations=[first], queries=own.test[:2])
    assert shuffled_labels(alike, tokenizer) is None
    WORDS(shuffled(alike, tokenizer, 0).why_not, "alike")
    bare = Prompt.from_positions(
        range(9), label_positions=[2, 5], label_classes=[0, 1], label_tokens=[2, 5]
    )
    assert shuffled_labels(PromptBatch((bare,)), tokenizer) is None
    WORDS(zero_shot(PromptBatch((bare,)), tokenizer).why_not, "positions")
    other = PromptBatch(tuple(replace(p, tokens=(1, *p.tokens[1:])) for p in prompts))
    WORDS(shuffled(other, tokenizer, 0).why_not, "other_tokens")
    WORDS(shuffled(prompts, None, 0).why_not, "no_tokenizer")
    with WORDS.raises(PromptError, "no_model"):
        shuffled_labels(prompts, object())


def test_scored_by_whole_words_they_run():
    prompts = build_prompts(task(SETS["cities"][0]), model("bpe"), shots=1, n=2)
    found = shuffled_labels(prompts, model("bpe"))
    assert found.score == "sum"
    assert icl.predict(model("bpe"), found, progress=False).log_probs.isfinite().all()
