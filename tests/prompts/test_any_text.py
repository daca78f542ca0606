"""Texts as prompts: spans, target, continuation, files, views, and what is refused."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts.splitting import split_text
from tests.said import Words
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

TEXT = "The film was good. It was a story! Was it bad? No."


@pytest.fixture(scope="module", params=["bpe", "sentencepiece"])
def tokenizer(request):
    return tiny_tokenizer(request.param)


def written(prompt, number):
    start, stop = prompt.text_spans[number]
    return "".join(prompt.pieces[start:stop])


def test_spans_are_the_sentences(tokenizer):
    (prompt,) = icl.texts([TEXT], tokenizer)
    for number, (start, stop) in enumerate(split_text(TEXT, "sentences")):
        apart = len(prompt.pieces[0]) if number == 0 and tokenizer.bos_token_id is None else 0
        assert written(prompt, number).strip() == TEXT[start + apart : stop].strip()
    assert prompt.target == len(prompt) - 1
    assert prompt.tokens == tuple(tokenizer(TEXT)["input_ids"])
    assert prompt.exact
    assert prompt.spans[0].role == ("bos" if tokenizer.bos_token_id is not None else "unknown")
    assert prompt.text_spans[0][0] == 1


def test_a_continuation_is_in_no_span(tokenizer):
    (prompt,) = icl.texts([TEXT], tokenizer, continuation=" The movie is good.")
    (plain,) = icl.texts([TEXT], tokenizer)
    assert prompt.text_spans == plain.text_spans
    assert prompt.target == len(plain) - 1
    WORDS.exactly("".join(prompt.pieces[prompt.target + 1 :]), "continuation_no_span")
    each = icl.texts([TEXT, TEXT], tokenizer, continuation=[" good", " bad"])
    assert each[0].pieces[-1] != each[1].pieces[-1]


@pytest.mark.parametrize("place", [9, 12, 20])
def test_a_target_inside_belongs_to_its_span(place):
    tokenizer = tiny_tokenizer("bpe")
    (prompt,) = icl.texts([TEXT], tokenizer, target=place)
    (plain,) = icl.texts([TEXT], tokenizer)
    assert prompt.target == place
    assert prompt.text_spans == plain.text_spans
    (target,) = [span for span in prompt.spans if span.role == "target"]
    (number,) = [n for n, (a, b) in enumerate(plain.text_spans) if a <= place < b]
    assert target.demo == number


def test_given_characters_and_tokens():
    tokenizer = tiny_tokenizer("bpe")
    cuts = [(4, 8), (19, 34), (35, 46)]
    (prompt,) = icl.texts([TEXT], tokenizer, spans=[cuts])
    assert [written(prompt, i).strip() for i in range(3)] == [TEXT[a:b] for a, b in cuts]
    kinds = {span.role for span in prompt.spans if span.demo is None}
    assert kinds == {"unknown", "target"}
    (by_token,) = icl.texts([TEXT], tokenizer, spans=[[(2, 5), (5, 9)]], unit="tokens")
    assert by_token.text_spans == ((2, 5), (5, 9))
    pieces = tiny_tokenizer("sentencepiece")
    (behind,) = icl.texts([TEXT], pieces, spans=[[(0, 3), (5, 9)]], unit="tokens")
    assert behind.text_spans == ((1, 4), (6, 10))  # BOS is not counted


def test_a_text_is_cut_behind_its_anchors(tokenizer):
    (prompt,) = icl.texts([TEXT], tokenizer, anchors=[["film", (28, 33), "bad"]])
    assert [written(prompt, i).strip() for i in (1, 2, 3)] == [
        TEXT[9:33], "! Was it bad", "? No."
    ]  # fmt: skip
    assert prompt.anchors == tuple(stop - 1 for _, stop in prompt.text_spans[:-1])
    assert [prompt.pieces[place][-1] for place in prompt.anchors] == ["m", "y", "d"]
    assert prompt.text_spans[0][0] == 1
    put = int(tokenizer.bos_token_id is not None)
    (by_token,) = icl.texts([TEXT], tokenizer, anchors=[[(3, 4), (6, 9)]], unit="tokens")
    assert by_token.anchors == (3 + put, 8 + put)
    (last,) = icl.texts([TEXT], tokenizer, anchors=[["film", "No"]], continuation=" good")
    assert [last.pieces[place] for place in (last.anchors[-1], last.target)] == ["o", "."]


def test_files_digests_and_parts():
    batch = icl.texts([TEXT, TEXT + " The end."], tiny_tokenizer("bpe"), continuation=" good")
    again = icl.PromptBatch.from_dict(batch.to_dict())
    assert again.digest == batch.digest
    assert again[1].text_spans == batch[1].text_spans
    assert not again.has_classes
    assert again.label_tokens.dtype == torch.long
    other = icl.Prompt.from_spans(batch[0].tokens, batch[0].text_spans[:2], target=batch[0].target)
    assert icl.PromptBatch((other,)).digest != batch[:1].digest
    assert "4-5 spans" in repr(batch)
    assert batch.position_spans[0].max() == 3
    assert batch.where("span")[0, :2].tolist() == [False, True]
    html = batch[0].view()._repr_html_()
    assert "span 1" in html
    assert "demonstration" not in html


def test_another_models_texts_are_refused():
    batch = icl.texts([TEXT], tiny_tokenizer("sentencepiece"))
    with pytest.raises(PromptError, match="tokenizer"):
        icl.span_flow(tiny_model("gpt2"), batch)


def test_from_spans_by_hand():
    prompt = icl.Prompt.from_spans([5, 6, 7, 8, 9], [(1, 2), (3, 5)])
    assert [(s.role, s.demo, s.start, s.stop) for s in prompt.spans] == [
        ("unknown", None, 0, 1), ("span", 0, 1, 2), ("unknown", None, 2, 3), ("span", 1, 3, 4),
        ("target", 1, 4, 5),
    ]  # fmt: skip
    assert prompt.text_spans == ((1, 2), (3, 5))
    single = icl.Prompt.from_spans([5, 6], [(0, 1), (1, 2)])
    assert single.text_spans == ((0, 1), (1, 2))


def given(**options):
    return lambda: icl.texts([TEXT], tiny_tokenizer("bpe"), **options)


REFUSED = [
    ("one string", lambda: icl.texts(TEXT, tiny_tokenizer("bpe"))),
    ("nothing", lambda: icl.texts([], tiny_tokenizer("bpe"))),
    ("no second sentence", lambda: icl.texts([TEXT, "One."], tiny_tokenizer("bpe"))),
    ("no list", given(spans="items")),
    ("spans of another number", given(spans=[[(0, 3)]] * 2)),
    ("spans that overlap", given(spans=[[(0, 9), (8, 12)]])),
    ("spans out of order", given(spans=[[(8, 12), (0, 5)]])),
    ("spans that leave the text", given(spans=[[(0, 9), (10, 999)]])),
    ("tokens that leave the text", given(spans=[[(0, 9), (10, 999)]], unit="tokens")),
    ("an empty span", given(spans=[[(0, 0), (10, 12)]])),
    ("an anchor that stands nowhere", given(anchors=[["story", "plot"]])),
    ("an anchor that stands twice", given(anchors=[["good", "was a", "."]])),
    ("anchors that overlap", given(anchors=[["a story", "story!"]])),
    ("anchors that leave the text", given(anchors=[[(4, 99)]])),
    ("token anchors that leave it", given(anchors=[[(4, 99)]], unit="tokens")),
    ("no anchors", given(anchors=[[]])),
    ("an anchor at the target", given(anchors=[["film", "No."]])),
    ("an anchor behind the target", given(anchors=[["film", "bad"]], target=9)),
    ("an anchor before all", given(anchors=[[(0, 1)]], unit="tokens")),
    ("anchors of another number", given(anchors=[["film"], ["good"]])),
    ("anchors beside spans", given(anchors=[["film"]], spans="lines")),
    ("words among tokens", given(anchors=[["film"]], unit="tokens")),
    ("anchors without a list", given(anchors="film")),
    ("tokens of sentences", given(unit="tokens")),
    ("a target before the anchors", given(target=2)),
    ("a target outside", given(target=999)),
    ("targets of another number", given(target=[20, 21])),
    ("no continuation", given(continuation="")),
    ("a blank continuation", given(continuation=["  "])),
    ("target and continuation", given(target=20, continuation=" good")),
    ("too long", lambda: icl.texts([TEXT * 40], tiny_tokenizer("bpe"))),
    (
        "at the end of the context",
        lambda: icl.texts([TEXT * 14], tiny_tokenizer("bpe"), continuation=" good" * 200),
    ),
    ("special tokens", lambda: icl.texts(["One. Two <|endoftext|>"], tiny_tokenizer("bpe"))),
]  # fmt: skip


@pytest.mark.parametrize(("what", "call"), REFUSED, ids=lambda own: own if isinstance(own, str) else "")  # fmt: skip
def test_what_is_refused(what, call):
    with WORDS.raises(PromptError, what):
        call()
