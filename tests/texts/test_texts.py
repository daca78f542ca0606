"""Any text, template, labels and tokenizer: the tokens of one call with exact spans, or a refusal in words."""

import re
import warnings
from string import Formatter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from icl_mech.errors import IclMechError, PromptError, TaskError
from icl_mech.prompts import build_prompts, prompts_from_text
from icl_mech.tasks import Example, Task, Template
from tests.said import Words
from tests.texts.kinds import MANY, kinds, many_words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

LABELS = ("Negative", "Positive")
SETS = {
    "two words": LABELS,
    "stars": ("1", "2", "3", "4", "5"),
    "one to ten": tuple(map(str, range(1, 11))),
    "signs": ("-1", "0", "1"),
    "Chinese": ("正面", "负面"),
    "one beginning": ("New York", "New Delhi", "Paris"),
    "one in another": ("good", "goods", "go"),
    "letters": tuple("ABCD"),
    "capital and small": ("yes", "Yes"),
}
TEMPLATES = {
    "labels last": Template("Review: {text}\nSentiment: {label}"),
    "closed": Template("{text}: {label}.", "\n\n", "Sort them."),
    "label words inside": Template("Positive or Negative: {text}\nPositive: {label}"),
    "a pair side by side": Template("{text}{text2}: {label}"),
    "a pair": Template("{text}\nQuestion: {text2}\nAnswer: {label}!"),
    "braces": Template("{{{text}}} {{x}}: {label}{{}}"),
    "JSON": Template('{{"text": "{text}", "label": "{label}"}}'),
    "in brackets": Template("Q: {text}\nAnswer: ({label})"),
    "Chinese": Template("评论：{text}\n情感：{label}"),
    "a line of its own": Template("{text}\n\n{label}\n"),
    "line ends of others": Template("{text}\r\n=> {label}\r\n", "\t"),
    "no separator": Template("Input: {text} Output: {label} ", ""),
    "nothing but a blank": Template("{text} {label}"),
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
QUICK = settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
ANY_PROMPT = given(
    st.sampled_from(NAMES),
    st.sampled_from(tuple(TEMPLATES)),
    st.sampled_from(tuple(SETS)),
    *(TEXT, TEXT, TEXT),
)


def written(template, shown, query):
    """The text up to the query's label, and the role of each of its characters, written down by hand."""
    text, roles = template.narrative, ["narrative"] * len(template.narrative)

    def add(more, role):
        nonlocal text
        text += more
        roles.extend([role] * len(more))

    if template.narrative:
        add(template.separator, "narrative")
    for number, (one, word) in enumerate([*shown, (query, None)]):
        for literal, name, _, _ in Formatter().parse(template.pattern):
            add(literal, "format")
            if name == "label" and word is None:
                return text, roles
            if name == "label":
                add(word, f"label_word {number}")
            elif name:
                role = "query_text" if word is None else f"demo_text {number}"
                add(getattr(one, name), role)
        add(template.separator, "format")
    raise AssertionError


def built(kind, template, texts, labels=LABELS, **options):
    """The prompt, and what is written down of it; None if it is refused."""
    first, second, query = (Example(text, n % 2, text[::-1]) for n, text in enumerate(texts))
    train = (first, second, *(Example(f"text {n}", n, "b") for n in range(2, len(labels))))
    task = Task("texts", template, labels, train, (query,))
    try:
        (prompt,) = build_prompts(task, kind.tokenizer, n=1, balanced=False, bos=False, **options)
    except IclMechError:
        return None
    shown = [(train[c], labels[c]) for c in prompt.label_classes]
    text, roles = written(template, shown, query)
    begins = template.pattern.partition("{text}")[0].replace("{{", "{").replace("}}", "}")
    ends = template.pattern.rpartition("{label}")[2].replace("{{", "{").replace("}}", "}")
    after = f"{ends}{template.separator}{begins}"
    return prompt, text, roles, after


def check(kind, prompt, text, roles, after):
    """Everything a prompt says of its text and tokens, from the tokenizer's plain calls alone."""
    labels = prompt.labels
    endings = [text + label + after for label in labels]
    assert prompt.text == "".join(prompt.pieces)
    assert all(ending.startswith(prompt.text) for ending in endings)
    for kinds_of, length in ((prompt.spans, len(prompt)), (prompt.parts, len(prompt.text))):
        assert [own.stop for own in kinds_of] == [*(own.start for own in kinds_of[1:]), length]
        demos = [own.demo for own in kinds_of if own.demo is not None]
        assert demos == sorted(demos)
    said = [f"{own.role} {own.demo}" if own.role in SAID else own.role for own in prompt.parts]
    for own, role in zip(prompt.parts, said, strict=True):
        assert set(roles[own.start : own.stop]) <= {role}
    special = set(kind.tokenizer.all_special_ids) - {kind.unknown}
    assert not special & set(prompt.tokens)
    assert prompt.label_classes == tuple(
        labels.index(prompt.text[own.start : own.stop])
        for own in prompt.parts
        if own.role == "label_word"
    )
    plain = [kind.tokenizer(own, add_special_tokens=False)["input_ids"] for own in endings]
    if any(special & set(own) for own in plain):
        return
    same = next(n for n, ids in enumerate(zip(*plain, strict=False)) if len({*ids}) > 1)
    assert list(prompt.tokens) == plain[0][:same]
    assert prompt.target == same - 1
    for ids, word in zip(plain, prompt.label_words, strict=True):
        assert word
        assert list(word) == ids[same : same + len(word)]
    assert not any(
        one != other and other[: len(one)] == one
        for one in prompt.label_words
        for other in prompt.label_words
    )
    if kind.unknown not in prompt.tokens:
        assert kind.decode(prompt.tokens) in (
            kind.reads(prompt.text),
            kind.reads(prompt.text + "\ufffd"),
        )
    if kind.tokenizer.is_fast:
        offsets = kind.tokenizer(endings[0], return_offsets_mapping=True, add_special_tokens=False)
        check_roles(prompt, endings[0], roles, offsets["offset_mapping"][:same])


def check_roles(prompt, text, roles, offsets):
    """The rule of the definition: the first sign that is not white space, label words before all."""
    roles = [*roles, *["format"] * (len(text) - len(roles))]
    found = [
        f"{span.role} {span.demo}" if span.role in SAID else span.role
        for span in prompt.spans
        for _ in range(span.start, span.stop)
    ]
    end = 0
    for position, (start, stop) in enumerate(offsets[:-1]):
        if start == stop:
            start = min(start, end)
        end = max(end, stop)
        inside = roles[start:stop]
        label = next((own for own in inside if own.startswith("label_word")), None)
        sign = next((n for n in range(start, stop) if text[n].strip()), start)
        if (
            label is None
            and {*found[position : position + 1]} & {*inside}
            and found[position] != roles[sign]
        ):
            # A text whose characters all stand in tokens of the template has the first of these.
            assert found.count(found[position]) == 1
            continue
        assert found[position] == (label or roles[sign])


SAID = ("demo_text", "label_word")


def check_any(name, template, labels, first, second, query):
    found = built(kinds()[name], TEMPLATES[template], (first, second, query), SETS[labels])
    if found:
        check(kinds()[name], *found)


test_prompts_are_what_one_call_of_the_tokenizer_gives = QUICK(ANY_PROMPT(check_any))


@pytest.mark.slow
def test_ten_thousand_prompts_are_what_one_call_gives():
    settings(QUICK, max_examples=10_000)(ANY_PROMPT(check_any))()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("labels", SETS)
def test_plain_texts_are_never_refused(name, template, labels):
    texts = ("a good film", "so dull", "x, y")
    found = built(kinds()[name], TEMPLATES[template], texts, SETS[labels])
    if found is None:
        # Lower case, unknown characters make two classes one; of a word that begins another the end is dropped.
        assert "lower" in name or kinds()[name].unknown is not None
        assert labels in ("capital and small", "one in another", "Chinese", "letters")
        return
    check(kinds()[name], *found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("template", TEMPLATES)
def test_marks_that_compose_with_the_sign_before_them_belong_to_its_token(name, template):
    for labels in SETS:
        for query in ("e\u0301", "\u00e9", "e\u0301\u0323"):
            found = built(kinds()[name], TEMPLATES[template], ("x", "x", query), SETS[labels])
            if found:
                check(kinds()[name], *found)


@pytest.mark.parametrize("trap", TRAPS)
def test_what_byte_level_tokenizers_refuse(trap):
    found = built(kinds()["byte-level"], TEMPLATES["labels last"], (f"x{trap}", f"{trap}x", "x"))
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


@pytest.mark.parametrize("pattern", ["{label}: {text}", "{label}{text}", "{text}{label}"])
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


@pytest.mark.slow
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
            before = kind.decode(prompt.tokens[: span.start]).rstrip(" ")
            assert before == kind.reads(text[:start]).rstrip(" ")
            label = kind.decode(prompt.tokens[span.start : span.stop])
            assert label.strip(" ") == kind.reads(text[start:].split("\n")[0]).strip(" ")
