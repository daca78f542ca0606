"""Texts measured as prompts with demonstrations: the same numbers as by hand, on the raw tokens."""

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import Isolation, Predict, running
from icl_mech.measurements.any_answer import as_demonstrations
from icl_mech.measurements.passes import Options
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.running import Item
from icl_mech.models import adapt
from icl_mech.prompts import Prompt, PromptBatch
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

TEXT = "The film was good. It was a story! Was it bad? The plot was good. We left."
TEXTS = [TEXT, TEXT.replace("film", "movie was a good movie"), TEXT.replace("plot", "story")]

LETTERS = {
    "bos": "b",
    "format": "f",
    "demo_text": "t",
    "label_word": "a",
    "query_text": "q",
    "target": "T",
}


@pytest.fixture(scope="module")
def model():
    return adapt(tiny_model("gpt2"))


@pytest.fixture(scope="module")
def prompts(model):
    return icl.texts(TEXTS, model)


def demonstrations(model, *sets):
    return as_demonstrations(model, sets, Options())


@pytest.mark.parametrize(
    ("length", "spans", "target", "roles"),
    [
        (10, [(1, 4), (4, 7), (7, 10)], None, "fttattaqqT"),
        (10, [(1, 3), (5, 8), (8, 10)], None, "ftaffttaqT"),
        (10, [(1, 4), (4, 7), (7, 10)], 5, "fttaqTffff"),
        (9, [(1, 4), (4, 7)], 6, "fttaqqTff"),
        (5, [(1, 2), (2, 3), (3, 5)], None, "faaqT"),
        (6, [(1, 3), (3, 5)], None, "ftataT"),
    ],
    ids=[
        "spans",
        "gap",
        "target in the middle",
        "continuation",
        "one token",
        "target behind spans",
    ],
)
def test_spans_before_the_target_are_demonstrations(model, length, spans, target, roles):
    text = Prompt.from_spans(range(5, 5 + length), spans, target=target)
    (made,) = demonstrations(model, PromptBatch((text,)))
    (prompt,) = made
    laid = "".join(LETTERS[span.role] * (span.stop - span.start) for span in prompt.spans)
    assert laid == roles
    assert prompt.tokens == text.tokens
    assert prompt.anchors == text.anchors
    assert prompt.units == text.units
    assert prompt.target == text.target


def test_a_first_token_stays_apart():
    own = adapt(tiny_model("llama"))
    texts = icl.texts(TEXTS, own, bos=True)
    (made,) = demonstrations(own, texts)
    assert {prompt.spans[0].role for prompt in made} == {"bos"}


def plain(model, prompts, *interventions, count=5):
    """What is read of the raw texts."""
    (read,) = run(model, prompts, [PredictionReading(count)], interventions)
    return read[2]


def test_followed_tokens_are_those_of_the_plain_model(model, prompts):
    top = plain(model, prompts)
    for own in (icl.Isolate([0, 1]), icl.ZeroHeads([(0, 1), (1, 2)]), icl.Suppress([0])):
        item = Item.checked(Predict(), model, prompts, Options(interventions=(own,)))
        assert torch.equal(item.data.choice_tokens, top[:, :2])


def test_a_given_next_token_is_followed(model):
    texts = icl.texts(TEXTS, model, continuation=" good")
    (made,) = demonstrations(model, texts)
    assert [p.label_tokens[0] for p in made] == [p.tokens[p.target + 1] for p in texts]


def test_of_a_pair_the_false_side_teaches_its_own_token(model):
    true = icl.texts(TEXTS, model, continuation=" good")
    false = icl.texts(TEXTS, model, continuation=" bad")
    for side, made in enumerate(demonstrations(model, true, false)):
        for prompt, one, two in zip(made, true, false, strict=True):
            assert prompt.label_tokens == (one.tokens[one.target + 1], two.tokens[two.target + 1])
            assert prompt.answer == 0
            assert prompt.false_answer == (1 if side else None)


def test_isolation_is_that_of_the_raw_texts(model, prompts):
    found = icl.isolation(model, prompts, depths=[1, 2], tokens="label")
    top = plain(model, prompts)
    anchors = [prompt.anchors for prompt in prompts]
    for window, (side, depth, _) in enumerate(found.windows):
        layers = range(depth) if side == "first" else range(3 - depth, 3)
        cut = plain(model, prompts, icl.Isolate(layers, positions=anchors))
        assert torch.equal(found.label_kept[window], (cut[:, 0] == top[:, 0]).double())
        shared = [len(set(a) & set(b)) for a, b in zip(cut.tolist(), top.tolist(), strict=True)]
        overlap = torch.tensor([own / (10 - own) for own in shared])
        assert torch.allclose(found.word_overlap[window].float(), overlap)
    # What anchors read in the last layer reaches no target.
    last = found.windows.index(("last", 1, "label"))
    assert found.label_kept[last].all()
    assert torch.allclose(found.log_prob[last], torch.zeros(3, dtype=torch.float64), atol=1e-6)
    first = found.windows.index(("first", 2, "label"))
    own = icl.predict(model, prompts).log_probs[:, 0]
    cut = icl.predict(model, prompts, interventions=[icl.Isolate([0, 1])]).log_probs[:, 0]
    assert torch.allclose(found.log_prob[first].float(), cut - own, atol=1e-6)


def test_classes_have_no_change_of_the_answer(model):
    from tests.engine.test_paths import TASK

    found = icl.isolation(model, icl.build_prompts(TASK, model, shots=1, n=2), tokens="label")
    assert found.log_prob is None
    assert list(found.quantities()) == ["label_loyalty", "word_loyalty"]


@pytest.mark.parametrize("family", ["gpt2", "llama", "neox"])
def test_predict_and_lens_are_those_of_plain_hugging_face(family):
    own, plain_model = tiny_model(family), tiny_hf(family)
    texts = icl.texts(TEXTS, own)
    found = icl.predict(own, texts)
    lens = icl.logit_lens(own, texts)
    for row, prompt in enumerate(texts):
        with torch.no_grad():
            out = plain_model(torch.tensor([prompt.tokens]), output_hidden_states=True)
        logits = out.logits[0, prompt.target]
        assert found.top_tokens[row].tolist() == logits.topk(5).indices.tolist()
        two = logits.topk(2).indices
        wanted = logits.log_softmax(-1)[two]
        assert torch.allclose(found.log_probs[row], wanted, atol=1e-5, rtol=0)
        assert torch.allclose(lens.label_logits[row, -1], logits[two], atol=1e-5, rtol=0)
        if family == "gpt2":
            for layer, hidden in enumerate(out.hidden_states[:-1]):
                normed = plain_model.transformer.ln_f(hidden[0, prompt.target])
                read = plain_model.lm_head(normed)[two]
                assert torch.allclose(lens.label_logits[row, layer], read, atol=1e-5, rtol=0)


def test_flow_is_that_of_saliency_maps(model, prompts):
    flow = icl.flow_scores(model, prompts)
    maps = icl.saliency_maps(model, prompts)
    for row, prompt in enumerate(prompts):
        anchors, target = list(prompt.anchors), prompt.target
        for layer in range(3):
            edges = maps.values[row][layer]
            count = edges.shape[0]
            into = torch.zeros(count, count, dtype=torch.bool)
            for anchor in anchors:
                into[anchor, :anchor] = True
            out = torch.zeros_like(into)
            out[target, anchors] = True
            below = torch.ones_like(into).tril(-1)
            below[target + 1 :] = False
            own = [edges[into].mean(), edges[out].mean(), edges[below & ~into & ~out].mean()]
            assert torch.allclose(
                flow.per_prompt[row, :, layer].float(), torch.stack(own).float(), rtol=1e-4
            )


def test_another_greedy_token_is_another_answer(model, prompts):
    (made,) = demonstrations(model, prompts[:1])
    followed, rival = made[0].label_tokens
    other = next(token for token in range(9) if token not in (followed, rival))
    # The followed token stays above its rival, but is not the likeliest any more.
    logits = torch.tensor([[2.0, 1.0]])
    top = torch.tensor([[-1.0, -2.0]])
    plain_run = (logits, logits - 3, torch.tensor([[followed, rival]]), top)
    cut = (logits, logits - 4, torch.tensor([[other, followed]]), top)
    measurement = Isolation(depths=[1], tokens="label", top_k=2)
    found = measurement.result(model, made, [[(plain_run,), (cut,), (plain_run,)]])
    assert found.label_kept[:, 0].tolist() == [0, 1]
    assert found.log_prob[:, 0].tolist() == [-1, 0]
    assert found.labels == ("next token", "its rival", "another token")
    assert found.drawing("answers").columns == found.labels


def test_loyalty_under_other_changes_goes_by_the_greedy_token(model, prompts):
    before, cuts = [icl.ZeroHeads([(0, 2)])], [icl.Isolate([0])]
    found = icl.isolation(model, prompts, depths=[1], draws=1, interventions=before)
    plain, cut = (
        icl.predict(model, prompts, interventions=own) for own in (before, [*before, *cuts])
    )
    kept = plain.top_tokens[:, 0] == cut.top_tokens[:, 0]
    # One answer is neither the token followed nor its rival before, and another such one after.
    assert ((plain.predicted == 2) & (cut.predicted == 2) & ~kept).any()
    rows = found.label_kept[found.windows.index(("first", 1, "label"))]
    assert rows.tolist() == kept.double().tolist()


def test_interventions_act_on_the_same_tokens_in_either_layout(model, prompts):
    for change in (icl.Suppress([1]), icl.Cut(["spans", "bos"], "target"), icl.Isolate([0, 1])):
        own = icl.predict(model, prompts, interventions=[change]).top_tokens
        (read,) = run(model, prompts, [PredictionReading(5)], [change])
        assert own.tolist() == read[2].tolist()
    shown = icl.build_prompts(TASK, model, shots=2, n=2)
    with WORDS.raises(RunError, "interventions_act_same_tokens", "'anchors'", "'units'"):
        icl.span_flow(model, shown, interventions=[icl.Cut(["label_word", "bos"], "target")])


def test_the_same_texts_become_demonstrations_once(model, prompts, monkeypatch):
    calls = []
    plain = running.as_demonstrations
    monkeypatch.setattr(running, "as_demonstrations", lambda *a: calls.append(a) or plain(*a))
    icl.measure(model, prompts, Isolation(depths=(1,), draws=1), Predict(), progress=False)
    assert len(calls) == 1


def test_spans_display_nothing_that_a_lens_could_look_for(model, prompts):
    with WORDS.raises(PromptError, "spans_display_nothing_lens"):
        icl.logit_lens(model, prompts, at="demonstrations")
