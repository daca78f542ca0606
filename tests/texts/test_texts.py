"""Any text in any template with any tokenizer: exact spans, or a refusal in words."""

import re
import warnings

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from icl_mech.errors import IclMechError, PromptError, TaskError
from icl_mech.prompts import build_prompts, prompts_from_text
from icl_mech.prompts.laying import template_pieces
from icl_mech.tasks import Example, Task, Template
from tests.said import Words
from tests.texts.kinds import MANY, kinds, many_words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

LABELS = ("Negative", "Positive")
TEMPLATES = {
    "labels last": Template("Review: {text}\nSentiment: {label}"),
    "closed": Template("{text}: {label}.", "\n\n", "Sort them."),
    "label words inside": Template("Positive or Negative: {text}\nPositive: {label}"),
    "a pair side by side": Template("{text}{text2}: {label}"),
    "a pair": Template("{text}\nQuestion: {text2}\nAnswer: {label}!"),
    "braces": Template("{{{text}}} {{x}}: {label}{{}}"),
    "line ends of others": Template("{text}\r\n=> {label}\r\n", "\t"),
    "no separator": Template("Input: {text} Output: {label} ", ""),
}
TRAPS = (
    "\0", "\ufeff", "\u200b", "a\u200bb", "\u0301", "e\u0301", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "\u202eabc\u202c",
    "שלום עולם", "مرحبا", "ﬁne ①", "ＦＵＬＬ", "İ", "ß", "中文", "a\r\nb", "\r", "\x85", "\u2028", " \xa0 ",
    "{text}", "{label", "}}", "Sentiment: Positive", " Negative", "Positive\nReview: x", "▁", "##a",
    "</s>", "<|endoftext|>", "[SEP]", "<unk>", "[UNK]", "<0x41>", "a  ", "\n\n", " .", "\U0010ffff",
)  # fmt: skip
ANY = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
TEXTS = st.lists(
    st.sampled_from(TRAPS) | st.sampled_from(("a", " ", "film", "!")) | ANY, min_size=1, max_size=3
)
TEXT = TEXTS.map("".join).filter(str.strip)
NAMES = tuple(kinds())
QUICK = settings(deadline=None, max_examples=250, suppress_health_check=list(HealthCheck))


def built(kind, template, texts, label_order=(0, 1)):
    """The prompt and its tidy pieces, written down without tokens; None if it is refused."""
    first, second, query = (Example(text, n % 2, text[::-1]) for n, text in enumerate(texts))
    task = Task("texts", template, LABELS, (first, second), (query,))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of inexact tokens
            (prompt,) = build_prompts(task, kind.tokenizer, n=1, balanced=False, bos=False)
    except IclMechError:
        return None
    shown = [((first, second)[c], f" {LABELS[c]}") for c in prompt.label_classes]
    return prompt, tidy_pieces(template_pieces(template, shown, query))


def check(kind, prompt, pieces):
    """Every span reads as its piece, and stands where the text before it ends."""
    spans = [span for span in prompt.spans if span.role != "target"]
    assert [span.stop for span in prompt.spans] == [
        *(span.start for span in prompt.spans[1:]), len(prompt)
    ]  # fmt: skip
    own = [span for span in spans if span.role not in ("format", "narrative")]
    said = [n for n, piece in enumerate(pieces) if piece.role not in ("format", "narrative")]
    assert [(s.role, s.demo) for s in own] == [(pieces[n].role, pieces[n].demo) for n in said]
    for span, number in zip(own, said, strict=True):
        ids = prompt.tokens[span.start : span.stop]
        if kind.unknown not in ids:
            assert kind.decode(ids) == kind.reads(pieces[number].text)
        before = prompt.tokens[: span.start]
        if kind.unknown not in before:
            assert kind.decode(before) == kind.reads("".join(p.text for p in pieces[:number]))
    for position, label in zip(prompt.label_positions, prompt.label_classes, strict=True):
        assert prompt.tokens[position] == prompt.label_tokens[label]
    written = "".join(piece.text for piece in pieces)
    plain = tuple(kind.tokenizer(written, add_special_tokens=False)["input_ids"])
    special = set(kind.tokenizer.all_special_ids) - {kind.unknown}
    if not special & set(plain):
        assert prompt.exact == (prompt.tokens == plain)
    assert not special & set(prompt.tokens)


@QUICK
@given(st.sampled_from(NAMES), st.sampled_from(tuple(TEMPLATES)), TEXT, TEXT, TEXT)
def test_spans_are_exact_or_the_text_is_refused(name, template, first, second, query):
    found = built(kinds()[name], TEMPLATES[template], (first, second, query))
    if found:
        check(kinds()[name], *found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("template", TEMPLATES)
def test_plain_texts_are_never_refused(name, template):
    prompt, pieces = built(kinds()[name], TEMPLATES[template], ("a good film", "so dull", "x, y"))
    check(kinds()[name], prompt, pieces)
    if template in ("labels last", "closed", "label words inside", "a pair"):
        assert prompt.exact


@pytest.mark.parametrize("trap", TRAPS)
def test_what_byte_level_tokenizers_refuse(trap):
    found = built(kinds()["byte-level"], TEMPLATES["labels last"], (f"x{trap}", trap + "x", "x"))
    assert found is not None
    check(kinds()["byte-level"], *found)


def test_texts_that_leave_no_token_are_refused_by_name():
    task = Task(
        "x",
        TEMPLATES["labels last"],
        LABELS,
        (Example("\u200b\0", 0), Example("a", 1)),
        (Example("b", 0),),
    )
    with WORDS.raises(PromptError, "texts_leave_no_token", "'\\u200b\\x00'"):
        build_prompts(task, kinds()["words"].tokenizer, n=1, balanced=False)


HALVES = st.builds(
    lambda before, half, after: before + half + after,
    st.text(max_size=3), st.characters(categories=("Cs",)), st.text(max_size=3),
)  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(HALVES)
def test_halves_of_surrogate_pairs_are_refused_everywhere(text):
    whole = Example("a", 0)
    doors = [
        lambda: Task("x", TEMPLATES["labels last"], LABELS, (Example(text, 0),), ()),
        lambda: Task("x", TEMPLATES["labels last"], LABELS, (), (Example("a", 0, text),)),
        lambda: Task("x", TEMPLATES["labels last"], (f"a{text}", "b"), (whole,), ()),
        lambda: Template(f"{text.replace('{', '').replace('}', '')}{{text}}:{{label}}"),
        lambda: Template("{text}: {label}", separator=text),
        lambda: prompts_from_text([text], LABELS, tiny_tokenizer("bpe")),
        lambda: prompts_from_text(["a:"], (f"a{text}", "b"), tiny_tokenizer("bpe")),
        lambda: prompts_from_text(["a:"], LABELS, tiny_tokenizer("bpe"), before=f"x{text}"),
    ]
    for door in doors:
        with WORDS.raises((TaskError, PromptError), "halves_surrogate_pairs_refused"):
            door()


@pytest.mark.parametrize(
    "pattern", ["{label}: {text}", "{label}{text}", "{text}: {label}", "{text}{label}"]
)
def test_labels_before_texts_are_refused(pattern):
    with pytest.raises(TaskError):
        Template(pattern)


# Many classes, label words of several tokens, unequal shots


@pytest.mark.parametrize("several", [False, True])
def test_77_classes(several):
    labels = tuple(f"{word} {MANY[-n]}{n}" if several else word for n, word in enumerate(MANY))
    tokenizer = many_words()
    examples = tuple(Example(f"text {n}", n) for n in range(77))
    task = Task("many", Template("Say: {text}\nAs: {label}"), labels, examples, (Example("x", 5),))
    (prompt,) = build_prompts(task, tokenizer, n=1, balanced=False, labels="permuted")
    assert len(prompt.label_positions) == 77
    assert len(set(prompt.label_tokens)) == 77
    assert prompt.exact
    for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
        ids = prompt.tokens[span.start : span.stop]
        assert (len(ids) > 1) == several
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == f" {labels[label]}"


SHOWN = st.lists(st.tuples(TEXT, st.sampled_from(LABELS)), max_size=4)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NAMES), SHOWN, TEXT)
@example("byte-level", [("a Positive", "Positive"), ("b", "Positive")], " Negative")
def test_finished_texts_with_any_number_of_demonstrations(name, shown, query):
    kind = kinds()[name]
    text = "".join(f"Review: {said}\nSentiment =>: {label}\n" for said, label in shown)
    text += f"Review: {query}\nSentiment =>:"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            (prompt,) = prompts_from_text(
                [text], LABELS, kind.tokenizer, before="=>:", bos=False, special_tokens="text"
            )
    except IclMechError:
        return
    assert [LABELS[c] for c in prompt.label_classes] == [label for _, label in shown]
    starts = [found.end() for found in re.finditer("=>:", text)][: len(shown)]
    for start, span in zip(starts, prompt.label_spans, strict=True):
        if kind.unknown not in prompt.tokens[: span.stop]:
            assert kind.decode(prompt.tokens[: span.start]) == kind.reads(text[:start])
            label = kind.decode(prompt.tokens[span.start : span.stop])
            assert label == kind.reads(text[start:].split("\n")[0])
