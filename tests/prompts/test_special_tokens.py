"""Special tokens of the model: control tokens in a template, letters in a text."""

import copy

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from icl_mech.errors import PromptError
from icl_mech.measurements.compression.behind_demonstrations import behind_demonstrations
from icl_mech.prompts import build_prompts, prompts_from_text
from icl_mech.tasks import Example, Task, Template
from tests.prompts.cases import REVIEW, SENTIMENTS, decoder, one_each
from tests.tiny import tiny_tokenizer

SPECIAL = {"bpe": "<|endoftext|>", "sentencepiece": "</s>"}
CHAT = Template("<|im_start|>Review: {text}<|im_end|>\nSentiment: {label}<|im_end|>\n", "")


def chatty(kind="bpe"):
    tokenizer = copy.deepcopy(tiny_tokenizer(kind))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return tokenizer


def control(tokenizer, prompt):
    special = set(tokenizer.all_special_ids)
    return [tokenizer.convert_ids_to_tokens(i) for i in prompt.tokens if i in special]


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("place", ["a{}b", "{}", "{} end", "a\n{}\n"])
def test_a_special_token_in_a_text_is_read_as_letters(kind, place):
    text = place.format(SPECIAL[kind])
    tokenizer = tiny_tokenizer(kind)
    task = one_each([text, "dull"], text)
    (prompt,) = build_prompts(task, tokenizer, n=1, bos=False)
    assert control(tokenizer, prompt) == []
    assert prompt.exact
    read = decoder(kind, prompt)
    shown = [read(s) for s in prompt.spans if s.role in ("demo_text", "query_text")]
    assert sum(one.strip() == text.strip() for one in shown) == 2
    with pytest.raises(PromptError) as caught:
        build_prompts(task, tokenizer, n=1, special_tokens="refuse")
    assert SPECIAL[kind] in str(caught.value)
    assert "special_tokens='text'" in str(caught.value)


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_special_token_in_a_label_word_is_read_as_letters(kind):
    tokenizer = tiny_tokenizer(kind)
    examples = (Example("a", 0), Example("b", 1))
    task = Task("x", REVIEW, (f"Negative{SPECIAL[kind]}", "Positive"), examples, (Example("c", 0),))
    (prompt,) = build_prompts(task, tokenizer, n=1, bos=False, balanced=False)
    assert control(tokenizer, prompt) == []
    with pytest.raises(PromptError, match="special_tokens='refuse'"):
        build_prompts(task, tokenizer, n=1, balanced=False, special_tokens="refuse")


def test_other_texts_are_tokenised_as_before():
    task = one_each(["so </ s>", "a < b | c"], "<|end|>")
    plain = build_prompts(task, chatty(), n=1)
    assert plain.prompts == build_prompts(task, chatty(), n=1, special_tokens="refuse").prompts


@pytest.mark.parametrize("text", ["dull", "a <|im_end|> b", "<|im_start|>", "x<|endoftext|>"])
def test_the_template_s_own_special_tokens_stay_control_tokens(text):
    tokenizer = chatty()
    (prompt,) = build_prompts(one_each([text, "good"], "so so", CHAT), tokenizer, n=1)
    demonstration = ["<|im_start|>", "<|im_end|>", "<|im_end|>"]
    assert control(tokenizer, prompt) == [*2 * demonstration, "<|im_start|>", "<|im_end|>"]
    assert prompt.exact
    if text == "dull":
        whole = "".join(prompt.pieces)
        assert prompt.tokens == tuple(tokenizer(whole)["input_ids"])


def test_a_text_that_cannot_be_written_as_letters_is_refused():
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((c, -1.0) for c in " \nReviw:SntmPosgNa</>c.|")]
    pieces += [(" Negative", -1.0), (" Positive", -1.0)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.Unigram(pieces, unk_id=0)),
        unk_token="<unk>", eos_token=AddedToken("</s>", special=True),
    )  # fmt: skip
    with pytest.raises(PromptError, match="</s>, which cannot be written as text"):
        build_prompts(one_each(["a </s>", "a"], "a"), tokenizer, n=1)
    build_prompts(one_each(["a é", "a"], "a"), tokenizer, n=1)  # <unk> is no control token


def test_finished_texts_must_say_what_their_special_tokens_are():
    tokenizer = chatty()
    text = "<|im_start|>Review: a<|im_end|>\nSentiment: Positive<|im_end|>\nSentiment:"
    with pytest.raises(PromptError, match=r"<\|im_start\|>, <\|im_end\|>.*'control'"):
        prompts_from_text([text], SENTIMENTS, tokenizer)
    (prompt,) = prompts_from_text([text], SENTIMENTS, tokenizer, special_tokens="control")
    assert prompt.tokens == tuple(tokenizer(text)["input_ids"])
    assert prompt.exact
    assert prompt.pieces[prompt.label_positions[0]] == " Positive"
    (prompt,) = prompts_from_text([text], SENTIMENTS, tokenizer, special_tokens="text")
    assert control(tokenizer, prompt) == []
    assert prompt.exact


@pytest.mark.parametrize("bos", [None, True])
def test_a_bos_token_that_a_text_writes_is_not_put_twice(bos):
    tokenizer = tiny_tokenizer("sentencepiece")
    text = "<s>Review: a\nSentiment: Positive\nReview: b\nSentiment:"
    (prompt,) = prompts_from_text([text], SENTIMENTS, tokenizer, special_tokens="control", bos=bos)
    assert prompt.tokens == tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert [s.role for s in prompt.spans][:2] == ["bos", "demo_text"]
    assert prompt.spans[0].stop == 1
    template = Template("Review: {text}\nSentiment: {label}", narrative="<s>Sort them.")
    (prompt,) = build_prompts(one_each(["a", "b"], "c", template), tokenizer, n=1, bos=bos)
    assert control(tokenizer, prompt) == ["<s>"]
    assert prompt.spans[0].role == "bos"
    assert prompt.exact
    alone = Template("Review: {text}\nSentiment: {label}", narrative="<s>", separator="")
    (prompt,) = build_prompts(one_each(["a", "b"], "c", alone), tokenizer, n=1, bos=bos)
    assert [(s.role, s.stop) for s in prompt.spans][:2] == [("bos", 1), ("format", 4)]
    (prompt,) = prompts_from_text([text], SENTIMENTS, tokenizer, special_tokens="text", bos=bos)
    assert control(tokenizer, prompt) == ["<s>"]
    assert prompt.spans[0].stop == prompt.spans[1].start == 1
    letters = prompts_from_text([text], SENTIMENTS, tokenizer, special_tokens="text", bos=False)
    assert prompt.tokens[1:] == letters[0].tokens


def test_a_text_that_is_written_as_a_piece_of_the_template():
    template = Template("Q:{text}<|im_end|>A: {label}", separator="\n")
    for texts in (["a", "b"], ["<|im_end|>A:", "b"]):
        (prompt,) = build_prompts(one_each(texts, "c", template), chatty(), n=1)
        assert control(chatty(), prompt) == 3 * ["<|im_end|>"]


def test_queries_behind_a_compressed_context_are_letters_too():
    tokenizer = tiny_tokenizer("bpe")
    task = one_each(["a", "b"], "c").describe()
    ((tokens, spans),) = behind_demonstrations((), (), ["x<|endoftext|>"], task, tokenizer)
    assert tokenizer.eos_token_id not in tokens
    assert [span.role for span in spans] == ["format", "query_text", "format", "target"]
