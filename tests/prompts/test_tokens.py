"""Tokens and spans of built prompts: by hand, and for arbitrary texts."""

import copy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, Span, build_prompts
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.tasks import Example, Task, Template
from tests.prompts.cases import (
    KINDS,
    OBJECT,
    REVIEW,
    SENTIMENTS,
    decode,
    decoder,
    one_each,
    toy_task,
)
from tests.said import Words
from tests.texts.kinds import joining
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

TRAPS = (
    "Sentiment: Positive",
    "a\nSentiment: Negative\nReview: b",
    "  two  spaces  ",
    "\n\nline\n\n",
    " \"quoted\" 'text' ",
    "🎬👍🏽 e\u0301",
    "tab\there",
    "\xa0",
    "中文",
)
LETTERS = st.characters(exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="▁")
COMMON = st.sampled_from("abcdeRS  \n\t.,:'\"!0🎬é")
TEXTS = (st.text(COMMON | LETTERS, min_size=1, max_size=12) | st.sampled_from(TRAPS)).filter(
    str.strip
)
ARBITRARY = {
    "first": TEXTS, "second": TEXTS, "query": TEXTS, "kind": st.sampled_from(KINDS),
    "bos": st.sampled_from((None, False)), "seed": st.integers(0, 9),
}  # fmt: skip


def built(kind, first, second, query, *, template=REVIEW, **options):
    """The one prompt of these texts, and its text written down independently."""
    task = one_each([first, second], query, template)
    (prompt,) = build_prompts(task, tiny_tokenizer(kind), n=1, **options)
    shown = [
        f"Review: {(first, second)[label]}\nSentiment: {SENTIMENTS[label]}"
        for label in prompt.label_classes
    ]
    return prompt, "\n".join([*shown, f"Review: {query}\nSentiment:"])


# By hand


def test_a_review_prompt_token_by_token():
    task = toy_task()
    tokenizer = tiny_tokenizer("bpe")
    prompt, text = built("bpe", "a", "the", "and", seed=0)
    first, second = ("a", "the") if prompt.label_classes == (0, 1) else ("b", "a")
    names = [SENTIMENTS[label] for label in prompt.label_classes]
    assert tokenizer.convert_ids_to_tokens(list(prompt.tokens)) == [
        "Review", ":", f"Ġ{first}", "Ċ", "Sentiment", ":", f"Ġ{names[0]}", "Ċ",
        "Review", ":", f"Ġ{second}", "Ċ", "Sentiment", ":", f"Ġ{names[1]}", "Ċ",
        "Review", ":", "Ġand", "Ċ", "Sentiment", ":",
    ]  # fmt: skip
    assert prompt.spans == (
        Span("format", 0, 0, 2), Span("demo_text", 0, 2, 3), Span("format", 0, 3, 6),
        Span("label_word", 0, 6, 7), Span("format", 0, 7, 8),
        Span("format", 1, 8, 10), Span("demo_text", 1, 10, 11), Span("format", 1, 11, 14),
        Span("label_word", 1, 14, 15), Span("format", 1, 15, 16),
        Span("format", None, 16, 18), Span("query_text", None, 18, 19),
        Span("format", None, 19, 21), Span("target", None, 21, 22),
    )  # fmt: skip
    assert prompt.label_positions == (6, 14)
    assert prompt.target == 21
    assert prompt.label_tokens == tuple(
        tokenizer.convert_tokens_to_ids([f"Ġ{label}" for label in task.labels])
    )
    assert "".join(prompt.pieces) == text
    assert prompt.exact


def test_narrative_closing_sign_and_blank_lines_token_by_token():
    task = toy_task(("animal", "plant"), OBJECT, per_class=1)
    tokenizer = tiny_tokenizer("bpe")
    (prompt,) = build_prompts(task, tokenizer, n=1, seed=1)
    read = decoder("bpe", prompt)
    shown = [task.labels[label] for label in prompt.label_classes]
    texts = [f"train {label} 0" for label in prompt.label_classes]
    expected = [("narrative", None, "Sort them.\n\n")]
    for demo in (0, 1):
        expected += [
            ("demo_text", demo, texts[demo]),
            ("format", demo, ":"),
            ("label_word", demo, f" {shown[demo]}"),
            ("format", demo, ".\n\n"),
        ]
    expected += [("query_text", None, f"test {prompt.answer} 0"), ("target", None, ":")]
    assert [(span.role, span.demo, read(span)) for span in prompt.spans] == expected
    assert prompt.exact


def test_label_word_of_several_tokens():
    task = toy_task(("plant/vegetable", "animal"), OBJECT, per_class=1)
    for kind in KINDS:
        (prompt,) = build_prompts(task, tiny_tokenizer(kind), n=1)
        long, short = prompt.label_words
        assert len(long) > 1
        assert len(short) == 1
        for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
            assert prompt.tokens[span.start : span.stop] == prompt.label_words[label]
        assert prompt.label_tokens == (long[0], short[0])


@pytest.mark.parametrize("kind", KINDS)
def test_label_positions_are_where_the_words_stand_in_the_text(kind):
    prompt, text = built(kind, "a dull film", "a good movie", "was it good")
    offsets = tiny_tokenizer(kind)(text, return_offsets_mapping=True)["offset_mapping"]
    found, start = [], 0
    for label in prompt.label_classes:
        character = text.index(f": {SENTIMENTS[label]}", start) + 2
        start = character
        found.append(next(i for i, (begin, end) in enumerate(offsets) if begin <= character < end))
    assert prompt.label_positions == tuple(found)


@pytest.mark.parametrize("text", ["ab", "a\n\n"])
def test_line_breaks_are_split_by_what_follows_them(text):
    # As in GPT-2, two breaks are one token, but not before a letter.
    tokenizer = _breaks_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer(".\n\n")["input_ids"]) == [".", "ĊĊ"]
    apart = tokenizer.convert_ids_to_tokens(tokenizer(".\n\na")["input_ids"])
    assert apart == [".", "Ċ", "Ċ", "a"]
    task = one_each([text, "b"], "a", OBJECT)
    for prompt in build_prompts(task, tokenizer, n=2):
        assert prompt.exact


def _breaks_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("Ġ", "N"), ("Ġ", "P")]
    tokens = [*alphabet, *(first + second for first, second in merges)]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_first_tokens_are_read_in_context():
    # As in Llama's first tokenizer, every text gets one more space.
    tokenizer = copy.deepcopy(tiny_tokenizer("sentencepiece"))
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.backend_tokenizer.normalizer = spaces
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    alone = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in SENTIMENTS]
    assert {tokenizer.convert_ids_to_tokens(ids[0]) for ids in alone} == {"▁"}
    for prompt in build_prompts(toy_task(), tokenizer, n=4, shots=2):
        words = tokenizer.convert_ids_to_tokens(list(prompt.label_tokens))
        assert words == ["▁Negative", "▁Positive"]
        assert prompt.exact


def test_pieces_read_as_the_prompt():
    for kind in KINDS:
        prompt, text = built(kind, "so dull", "so good", "a\nfilm")
        shown = "".join(prompt.pieces).removeprefix("<s>").removeprefix(" ")
        assert shown == text


# BOS


def test_bos_is_what_the_tokenizer_does():
    own, _ = built("sentencepiece", "a", "b", "c")
    without, _ = built("sentencepiece", "a", "b", "c", bos=False)
    forced, _ = built("sentencepiece", "a", "b", "c", bos=True)
    assert own.spans[0] == Span("bos", None, 0, 1)
    assert own.tokens[0] == tiny_tokenizer("sentencepiece").bos_token_id
    assert own.tokens[1:] == without.tokens
    assert forced == own
    assert without.label_positions == tuple(position - 1 for position in own.label_positions)


def test_bos_can_be_forced_on_a_tokenizer_that_has_but_adds_none():
    tokenizer = copy.deepcopy(tiny_tokenizer("bpe"))
    tokenizer.bos_token = "<|endoftext|>"
    task = one_each(["a", "b"], "c")
    (plain,) = build_prompts(task, tokenizer, n=1)
    (forced,) = build_prompts(task, tokenizer, n=1, bos=True)
    assert forced.tokens == (tokenizer.bos_token_id, *plain.tokens)
    assert forced.spans[0] == Span("bos", None, 0, 1)
    assert forced.exact


def test_bos_of_a_tokenizer_without_one():
    with WORDS.raises(PromptError, "bos_tokenizer_without"):
        built("bpe", "a", "b", "c", bos=True)


def test_end_tokens_are_no_start_tokens():
    class Closing:
        """Adds ids on both sides, as encoders do."""

        bos_token_id = None

        def __call__(self, text, *, add_special_tokens):
            plain = [ord(letter) for letter in text]
            return {"input_ids": [1, 2, *plain, 3] if add_special_tokens else plain}

        def decode(self, ids, **_):
            return "".join(map(chr, ids))

    assert TextTokenizer(Closing()).start_tokens(None) == (1, 2)
    assert TextTokenizer(Closing()).start_tokens(False) == ()


# For arbitrary texts


@settings(max_examples=80, deadline=None)
@given(**ARBITRARY)
@example("Sentiment: Positive", "\n.", "Review: x", "bpe", None, 0)
def test_spans_tile_the_prompt_in_order(first, second, query, kind, bos, seed):
    prompt, _ = built(kind, first, second, query, bos=bos, seed=seed)
    start = 1 if kind == "sentencepiece" and bos is None else 0
    roles = [(span.role, span.demo) for span in prompt.spans]
    expected = [("bos", None)] * start
    for demo in (0, 1):
        expected += [
            ("format", demo), ("demo_text", demo), ("format", demo), ("label_word", demo),
            ("format", demo),
        ]  # fmt: skip
    assert roles == [
        *expected, ("format", None), ("query_text", None), ("format", None), ("target", None)
    ]  # fmt: skip
    edges = [span.start for span in prompt.spans] + [len(prompt)]
    assert edges == [0] + [span.stop for span in prompt.spans]
    assert edges == sorted(set(edges))
    assert prompt.target == len(prompt) - 1


@settings(max_examples=120, deadline=None)
@given(**ARBITRARY)
@example(" a", "a ", "a\n", "bpe", None, 0)
@example(" a", "a ", "a\n", "sentencepiece", None, 0)
def test_every_part_reads_as_its_text(first, second, query, kind, bos, seed):
    prompt, text = built(kind, first, second, query, bos=bos, seed=seed)
    pieces = []
    for label in prompt.label_classes:
        shown = (first, second)[label]
        pieces += ["Review: ", shown, "\nSentiment: ", SENTIMENTS[label], "\n"]
    pieces += ["Review: ", query, "\nSentiment:"]
    assert "".join(pieces) == text == prompt.text
    assert [text[part.start : part.stop] for part in prompt.parts] == pieces


@settings(max_examples=80, deadline=None)
@given(**ARBITRARY)
def test_label_spans_hold_the_ids_of_their_class(first, second, query, kind, bos, seed):
    prompt, _ = built(kind, first, second, query, bos=bos, seed=seed)
    assert sorted(prompt.label_classes) == [0, 1]
    for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
        ids = prompt.tokens[span.start : span.stop]
        assert ids == prompt.label_words[label]
        assert decode(kind, ids).strip() == SENTIMENTS[label]


@settings(max_examples=120, deadline=None)
@given(**ARBITRARY)
@example("a\n", "b", "c", "bpe", None, 0)
@example("a  ", "b", "c", "sentencepiece", None, 0)
def test_tokens_are_those_of_the_whole_text(first, second, query, kind, bos, seed):
    prompt, text = built(kind, first, second, query, bos=bos, seed=seed)
    ids = tiny_tokenizer(kind)(text, add_special_tokens=bos is None)["input_ids"]
    assert prompt.tokens == tuple(ids)


def test_a_token_of_two_roles_belongs_to_its_first_sign_and_is_named():
    merging = Template("{text}Positiv {label}")
    for prompt in build_prompts(one_each(["a", "b"], "c", merging), _merging_tokenizer(), n=1):
        joined = [prompt.pieces[position] for position in prompt.shared_tokens]
        assert joined == [f"{'ab'[c]}P" for c in prompt.label_classes] + ["cP"]
        texts = [span for span in prompt.spans if span.role in ("demo_text", "query_text")]
        assert [prompt.pieces[span.start] for span in texts] == joined


def test_label_words_have_every_token_with_a_letter_of_theirs():
    tokenizer = joining()
    train = (Example("a", 0), Example("b", 1))
    task = Task("x", Template("{text} is({label})"), ("positive", "other"), train, (Example("c"),))
    (prompt,) = build_prompts(task, tokenizer, n=1, balanced=False)
    words = {
        label: tokenizer.convert_ids_to_tokens(list(prompt.tokens[span.start : span.stop]))
        for label, span in zip(prompt.label_classes, prompt.label_spans, strict=True)
    }
    assert words[0] == ["(positive"]
    assert "".join(words[1]) == "other"
    # Compared where the whole texts first differ: before the sign that one class's token begins with.
    assert prompt.text.endswith(" is")
    assert [one.text for one in prompt.candidates] == ["(positive", "(other"]


def _merging_tokenizer():
    """One that joins a text's last letter and the sign after it."""
    letters = sorted(set("abc Positve\nNgr"))
    merges = [(" ", "N"), (" ", "P"), ("a", "P"), ("b", "P"), ("c", "P")]
    tokens = [*letters, *(first + second for first, second in merges)]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))


def test_prompts_are_plain_values():
    first, _ = built("bpe", "a", "b", "c", seed=3)
    second, _ = built("bpe", "a", "b", "c", seed=3)
    assert isinstance(first, Prompt)
    assert first == second
    assert len({first, second}) == 1
