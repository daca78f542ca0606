"""Label words of several tokens: `sum` and `mean` against a plain Hugging Face loop, in every measurement."""

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch

import icl_mech as icl
from icl_mech.engine.runs import fill_means
from icl_mech.errors import IclMechError, PromptError
from icl_mech.interventions import Isolate, Patch, ZeroHeads, ZeroLayers
from icl_mech.measurements import Predict
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.tasks import Template
from tests.measurements.compression.cases import compress_context
from tests.said import Words
from tests.small import small_hf, small_model
from tests.texts.kinds import joining
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

CITIES = ("New York", "New Delhi", "Paris")
QUESTION = "Question: {text}\nAnswer: {label}"
SETS = {
    "stars": (("1", "2", "3", "4", "5"), "Review: {text}\nStars: {label}"),
    "one to ten": (tuple(map(str, range(1, 11))), "Review: {text}\nScore: {label}"),
    "one and ten": (("1", "10", "100"), QUESTION),
    "signs": (("-1", "0", "1"), "Review: {text}\nSentiment: {label}"),
    "halves": (("0.5", "1.0", "1.5"), QUESTION),
    "years": (("1999", "2000", "2001"), QUESTION),
    "Chinese": (("正面", "负面"), "评论：{text}\n情感：{label}"),
    "Japanese": (("肯定的", "否定的", "中立"), "文：{text}\n感情：{label}"),
    "Thai": (("ดี", "แย่"), "{text}\n= {label}"),
    "Korean": (("긍정", "부정"), "{text} → {label}"),
    "Arabic": (("إيجابي", "سلبي"), "{text}\n{label}"),
    "emoji": (("😀", "😡", "😐"), "{text} {label}"),
    "cities": (CITIES, QUESTION),
    "one in another": (("good", "goods", "go", "bad"), QUESTION),
    "letters in brackets": (tuple("ABCD"), "Q: {text}\nAnswer: ({label})"),
    "JSON": (("positive", "negative", "neutral"), '{{"text": "{text}", "label": "{label}"}}'),
    "a line of its own": (("yes", "no"), "{text}\n{label}\n"),
    "closed": (("card arrival", "card linking", "card swallowed"), "{text}\nIntent: {label}."),
    "case": (("yes", "Yes", "YES"), QUESTION),
    "long": (("entailment", "contradiction", "neither of them"), "{text}: {label}"),
}


@lru_cache
def model(kind):
    """A narrow random model for each vocabulary."""
    tokenizer = joining() if kind == "joining" else tiny_tokenizer(kind)
    return icl.load_model(small_hf(tokenizer, 3), tokenizer=tokenizer)


def task(labels, template=QUESTION):
    def examples(split, each):
        return tuple(
            icl.Example(f"{split} text {i}", i % len(labels)) for i in range(each * len(labels))
        )

    return icl.Task("t", icl.Template(template), labels, examples("train", 3), examples("test", 2))


def prompts(kind, labels, template=QUESTION, **options):
    return icl.build_prompts(
        task(labels, template), model(kind), shots=1, n=len(labels), demonstrations="per_prompt", **options
    )  # fmt: skip


@torch.no_grad()
def by_hand(kind, batch, score):
    """Log P of every candidate after every prompt, one call of the plain model each."""
    hf = small_hf(model(kind).tokenizer, 3)
    rows = []
    for prompt in batch:
        row = []
        for candidate in prompt.candidates:
            ids = torch.tensor([[*prompt.tokens, *candidate.tokens]])
            log_probs = hf(ids).logits[0].log_softmax(-1)
            places = range(len(prompt) - 1, ids.shape[1] - 1)
            total = log_probs[list(places), list(candidate.tokens)].sum()
            row.append(total / len(candidate.tokens) if score == "mean" else total)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "joining"])
@pytest.mark.parametrize("name", SETS)
def test_scores_equal_a_plain_loop(kind, name):
    for score in ("sum", "mean"):
        batch = prompts(kind, *SETS[name], score=score)
        expected = by_hand(kind, batch, score)
        found = icl.predict(model(kind), batch, progress=False)
        torch.testing.assert_close(found.log_probs, expected, rtol=1e-6, atol=2e-5)
        torch.testing.assert_close(found.label_logits, found.log_probs, rtol=0, atol=0)
        assert torch.equal(found.predicted, found.log_probs.argmax(-1))


@pytest.mark.parametrize("name", SETS)
def test_the_order_of_labels_does_not_matter(name):
    labels, template = SETS[name]
    order = [*range(1, len(labels)), 0]
    batch = prompts("bpe", labels, template)
    words = {own.label: own.tokens for own in batch.candidates}
    moved = tuple(labels[own] for own in order)
    again = prompts("bpe", moved, template)
    assert {own.label: own.tokens for own in again.candidates} == words
    assert again.score == batch.score
    permuted = PromptBatch(
        tuple(
            replace(
                prompt,
                label_words=tuple(prompt.label_words[own] for own in order),
                labels=moved,
                candidate_texts=(),
                label_classes=tuple(order.index(own) for own in prompt.label_classes),
                answer=order.index(prompt.answer),
            )
            for prompt in batch
        )
    )
    one, other = (icl.predict(model("bpe"), own, progress=False) for own in (batch, permuted))
    # Two runs of the same tokens: where a library's memory lies may round the last bit otherwise.
    torch.testing.assert_close(one.log_probs[:, order], other.log_probs, rtol=1e-6, atol=2e-5)
    assert not torch.allclose(one.log_probs, other.log_probs, atol=1e-2)


def test_the_first_token_is_the_default_where_it_tells_classes_apart():
    assert prompts("bpe", ("1", "2")).score == "first"
    assert prompts("bpe", CITIES).score == "sum"
    plain, whole = (prompts("bpe", ("Positive", "Negative"), score=own) for own in (None, "sum"))
    assert plain.score == "first"
    assert plain.digest != whole.digest
    one, other = (icl.predict(model("bpe"), own, progress=False) for own in (plain, whole))
    # Words of one token: the same answers, as log-probabilities instead of logits.
    torch.testing.assert_close(one.log_probs, other.label_logits, rtol=1e-6, atol=1e-5)
    assert torch.equal(one.predicted, other.predicted)


@pytest.mark.parametrize("changes", [[Isolate(range(3))], [ZeroLayers(2, "attention")]])
def test_whole_words_are_read_under_interventions(changes):
    batch = prompts("bpe", CITIES)
    found = icl.predict(model("bpe"), batch, interventions=changes, progress=False)
    rows = []
    for number, prompt in enumerate(batch):
        row = []
        for candidate in prompt.candidates:
            one = replace(prompt, label_words=((candidate.tokens),), labels=("x",), answer=0,
                          label_classes=(0,) * len(prompt.label_classes), candidate_texts=())  # fmt: skip
            alone = PromptBatch((one,))
            scored = icl.predict(
                model("bpe"), alone, interventions=changes, path="whole", progress=False
            )
            row.append(scored.log_probs[0, 0])
        rows.append(torch.stack(row))
        assert number == len(rows) - 1
    torch.testing.assert_close(found.log_probs, torch.stack(rows), rtol=0, atol=2e-5)
    plain = icl.predict(model("bpe"), batch, progress=False)
    assert not torch.allclose(plain.log_probs, found.log_probs, atol=1e-3)


def test_means_are_over_all_prompts_where_words_differ_by_prompt():
    small = small_model()
    batch = icl.build_prompts("past_tense", small, total=3, n=12, score="sum")
    lengths = torch.tensor([[len(word) for word in prompt.label_words] for prompt in batch])
    assert bool(((lengths > 1).any(0) & (lengths == 1).any(0)).any())
    edit = ZeroHeads([(0, 1), (2, 0)], kind="mean")
    ((given,),) = fill_means(adapt(small), batch, [[edit]])
    assert not given.missing()
    one, other = (
        icl.predict(small, batch, interventions=[own], progress=False) for own in (edit, given)
    )
    torch.testing.assert_close(one.log_probs, other.log_probs, rtol=1e-6, atol=2e-5)


WHOLE = {
    "predict": {},
    "compress_demonstrations": {},
    "isolation": {},
    "extraction": {},
    "edge_cuts": {},
    "gain": {},
    "leave_one_out": {},
    "diagnose_confusion": {"layer": 1, "components": 2},
    "flow_scores": {},
    "saliency_maps": {},
    "calibration": {},
}


@pytest.mark.parametrize("name", WHOLE)
def test_words_that_begin_alike_are_told_apart(name):
    batch = prompts("bpe", CITIES)
    found = getattr(icl, name)(model("bpe"), batch, progress=False, **WHOLE[name])
    plain = icl.predict(model("bpe"), batch, progress=False)
    own = getattr(found, "predicted", None)
    if own is not None and own.shape == plain.predicted.shape:
        assert torch.equal(own, plain.predicted)
    assert str(found)


@pytest.mark.parametrize("name", ["logit_lens", "head_scores"])
def test_what_reads_first_tokens_alone_says_so(name):
    batch = prompts("bpe", CITIES)
    with WORDS.raises(PromptError, "first tokens", "'New York'", "'New Delhi'"):
        getattr(icl, name)(model("bpe"), batch, progress=False)
    apart = prompts("bpe", ("New York", "Delhi", "Paris"), score="sum")
    getattr(icl, name)(model("bpe"), apart, progress=False)


def test_saliency_takes_classes_with_one_first_token_for_one():
    batch = prompts("bpe", CITIES)
    found = icl.flow_scores(model("bpe"), batch, progress=False)
    # The same prompts with two classes: those that begin with " New", and the third.
    merged = PromptBatch(
        tuple(
            replace(
                prompt,
                label_words=prompt.label_words[1:],
                labels=("New", "Paris"),
                candidate_texts=(),
                label_classes=tuple(max(own - 1, 0) for own in prompt.label_classes),
                answer=max(prompt.answer - 1, 0),
                score="first",
            )
            for prompt in batch
        )
    )
    expected = icl.flow_scores(model("bpe"), merged, progress=False)
    torch.testing.assert_close(found.per_prompt, expected.per_prompt, rtol=1e-6, atol=0)


def test_a_whole_study_of_words_that_begin_alike():
    batch = prompts("bpe", CITIES)
    found = icl.analyze(model("bpe"), batch, nulls=0, progress=False)
    (note,) = [own for own in found.notes if "scored as whole words" in own]
    assert all(repr(name) in note for name in CITIES[:2])
    assert found.results["flow"].per_prompt.isfinite().all()


@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor"])
def test_compressed_demonstrations_are_read_with_whole_words(method):
    """All positions kept: what the plain prompts say."""
    batch = prompts("bpe", CITIES)
    queries = [next(s.start for s in prompt.spans if s.demo is None) for prompt in batch]
    keep = [list(range(query)) for query in queries]
    plain = icl.predict(model("bpe"), batch, progress=False)
    found = icl.compress_demonstrations(
        model("bpe"), batch, method=method, keep=keep, progress=False
    )
    torch.testing.assert_close(found.label_logits, plain.label_logits, rtol=1e-6, atol=2e-5)
    assert torch.equal(found.predicted, plain.predicted)
    anchors = icl.compress_demonstrations(model("bpe"), batch, method=method, progress=False)
    assert not torch.allclose(anchors.label_logits, plain.label_logits, atol=1e-3)


def test_a_context_answers_with_whole_words():
    batch = icl.build_prompts(task(CITIES), model("bpe"), shots=1, n=4)
    context = compress_context(model("bpe"), batch, progress=False)
    found = context.predict(model("bpe"), batch, progress=False)
    expected = icl.compress_demonstrations(model("bpe"), batch, progress=False)
    torch.testing.assert_close(found.label_logits, expected.label_logits, rtol=1e-6, atol=2e-5)


def test_saliency_of_the_whole_vocabulary_needs_no_first_tokens_that_differ():
    found = icl.flow_scores(model("bpe"), prompts("bpe", CITIES), loss="vocab", progress=False)
    assert found.per_prompt.isfinite().all()


def test_the_end_of_a_word_is_what_demonstrations_show():
    tokenizer = joining()
    template = Template("Review: {text}\nRating: {label}.")
    batch = icl.build_prompts(
        replace(task(("1", "10")), template=template), tokenizer, shots=1, n=2
    )
    (prompt, _) = batch
    (short,) = [own for own in prompt.candidates if own.label == "1"]
    shown = prompt.label_spans[prompt.label_classes.index(0)].stop
    assert short.text == ".\n"
    assert prompt.tokens[shown] == short.tokens[-1]
    text = "Rating: 1.\n\nIt is bad.\nRating: 10.\n\nIt is good.\nRating:"
    (again,) = icl.prompts_from_text([text], ("1", "10"), tokenizer, before="Rating:")
    assert again.candidates[0].text == ".\n\n"


def test_another_score_than_that_of_the_prompts():
    batch = prompts("bpe", CITIES, score="mean")
    found = icl.predict(model("bpe"), batch, score="sum", progress=False)
    expected = icl.predict(model("bpe"), prompts("bpe", CITIES), progress=False)
    torch.testing.assert_close(found.log_probs, expected.log_probs, rtol=1e-6, atol=1e-5)
    assert torch.equal(found.label_logits, found.log_probs)
    apart = prompts("bpe", ("New York", "Delhi", "Paris"), score="sum")
    first = icl.predict(model("bpe"), apart, score="first", progress=False)
    plain = prompts("bpe", ("New York", "Delhi", "Paris"))
    expected = icl.predict(model("bpe"), plain, progress=False)
    torch.testing.assert_close(first.log_probs, expected.log_probs, rtol=1e-6, atol=1e-5)


def test_a_probability_is_that_of_the_whole_word():
    whole, mean = (prompts("bpe", CITIES, score=score) for score in ("sum", "mean"))
    vector = torch.zeros(model("bpe").cfg.d_model)
    steered = [
        icl.steer(model("bpe"), own, vector, layers=[1], progress=False) for own in (whole, mean)
    ]
    expected = icl.predict(model("bpe"), whole, progress=False).log_probs.double()
    right = expected.gather(1, whole.answers[:, None])[:, 0].exp()
    for own in steered:
        torch.testing.assert_close(own.probability[:, 0].double(), right, rtol=1e-4, atol=1e-12)


def test_what_changes_prompts_stops_before_the_answer():
    batch = prompts("bpe", CITIES)
    patch = Patch("resid_post", layers=[1], source=batch, at="all")
    same = icl.predict(model("bpe"), batch, interventions=[patch], progress=False)
    plain = icl.predict(model("bpe"), batch, progress=False)
    torch.testing.assert_close(same.log_probs, plain.log_probs, rtol=1e-5, atol=1e-4)


def test_candidates_count_in_the_context(tmp_path):
    tokenizer = tiny_tokenizer("bpe")
    (prompt, *_) = icl.build_prompts(task(CITIES), tokenizer, shots=1, n=3)
    longest = max(len(own) for own in icl.build_prompts(task(CITIES), tokenizer, shots=1, n=3))
    rest = max(len(own.tokens) for own in prompt.candidates) - 1
    assert rest
    for limit, fits in ((longest + rest, True), (longest + rest - 1, False)):
        own = SimpleNamespace(tokenizer=tokenizer, cfg=SimpleNamespace(n_ctx=limit))
        if fits:
            icl.build_prompts(task(CITIES), own, shots=1, n=3)
        else:
            with pytest.raises(PromptError, match="longest label word"):
                icl.build_prompts(task(CITIES), own, shots=1, n=3)


def test_the_explorer_compares_first_tokens():
    with pytest.raises(PromptError, match="as whole words"):
        icl.explore(model("bpe"), task(CITIES), n=2)


def test_contexts_keep_the_score():
    batch = icl.build_prompts(task(CITIES), model("bpe"), shots=1, n=3)
    context = compress_context(model("bpe"), batch, progress=False)
    texts = [next(batch[n].text[p.start : p.stop] for p in batch[n].parts if p.role == "query_text")
             for n in range(3)]  # fmt: skip
    asked = context.queries(model("bpe"), texts)
    assert asked.score == "sum"
    assert [own.tokens for own in asked] == [own.tokens for own in batch]
    one, two = (context.predict(model("bpe"), own, progress=False) for own in (asked, batch))
    torch.testing.assert_close(one.log_probs, two.log_probs, rtol=1e-6, atol=2e-5)


def test_a_sweep_of_chats_and_scores_is_saved_and_resumed(tmp_path):
    writing = {"score": "mean"}
    options = {"measurements": [Predict()], "seeds": [0], "n": 3, "writing": writing}
    kept = tmp_path / "sweep"
    icl.sweep({"tiny": model("bpe")}, {"cities": task(CITIES)}, out=kept, progress=False, **options)
    again = icl.sweep(
        {"tiny": model("bpe")}, {"cities": task(CITIES)}, out=kept, resume=True, progress=False, **options
    )  # fmt: skip
    loaded = icl.load(kept)
    assert [own.writing for own in loaded.plan] == [writing] == [own.writing for own in again.plan]
    with pytest.raises(IclMechError, match="'shots'"):
        icl.sweep(model("bpe"), task(CITIES), [Predict()], writing={"shots": 2}, progress=False)
