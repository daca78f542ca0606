"""`Template`: its pieces, and every pattern it refuses."""

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, Template
from tests.said import Words

WORDS = Words(__file__)

REVIEW = Template("Review: {text}\nSentiment: {label}")


def test_pieces_of_a_demonstration():
    assert [tuple(piece) for piece in REVIEW.pieces(Example("so dull", 0), "Negative")] == [
        ("format", "Review: "),
        ("text", "so dull"),
        ("format", "\nSentiment: "),
        ("label", "Negative"),
    ]


def test_pieces_of_the_query_stop_where_the_label_would_stand():
    template = Template("{text}: {label}.")
    assert [tuple(piece) for piece in template.pieces(Example("tulip", 1), None)] == [
        ("text", "tulip"),
        ("format", ": "),
    ]
    assert [tuple(piece) for piece in template.pieces(Example("tulip", 1), "plant")] == [
        ("text", "tulip"),
        ("format", ": "),
        ("label", "plant"),
        ("format", "."),
    ]


def test_pieces_of_a_pair():
    template = Template("{text}\nHypothesis: {text2}? {label}")
    assert template.is_pair
    assert not REVIEW.is_pair
    assert [tuple(piece) for piece in template.pieces(Example("a", 0, "b"), None)] == [
        ("text", "a"),
        ("format", "\nHypothesis: "),
        ("text", "b"),
        ("format", "? "),
    ]


def test_doubled_braces_are_braces_of_the_prompt():
    template = Template("{{{text}}} {{x}}: {label}{{}}")
    pieces = list(template.pieces(Example("a", 0), "no"))
    assert "".join(piece.text for piece in pieces) == "{a} {x}: no{}"
    assert [piece.kind for piece in pieces if piece.kind != "format"] == ["text", "label"]


def test_braces_in_a_text_are_kept():
    pieces = REVIEW.pieces(Example("{label} {x", 0), "no")
    assert "".join(piece.text for piece in pieces) == "Review: {label} {x\nSentiment: no"


@pytest.mark.parametrize(
    ("pattern", "fragments"),
    [
        ("Review: {text}", ["no label", "{label} 0"]),
        ("Sentiment: {label}", ["no text", "{text} 0"]),
        ("", ["empty", "{text} 0"]),
        ("{text} {text}: {label}", ["two texts", "{text} 2"]),
        ("{text}: {label}: {label}", ["two labels", "{label} 2"]),
        ("{text}{text2}{text2}: {label}", ["two second texts", "{text2} 2"]),
        ("{text}: {topic}: {label}", ["topic", "{topic}", "{text2}"]),
        ("{text}: {}: {label}", ["no name", "{}"]),
        ("{text.name}: {label}", ["attribute", "{text.name}"]),
        ("{text:>9}: {label}", ["format"]),
        ("{text}:{label!r}", ["conversion"]),
        ("{text}:{label", ["open brace", "'{text}:{label'"]),
        ("{label}: {text}", ["text first", "{label}"]),
        ("{text}: {label} {text2}", ["second text last", "{label}"]),
        ("Review:{text}{label}", ["no sign", "{label}"]),
        ("{text}{label}", ["no sign, nothing else", "{label}", "'{text}: {label}'"]),
    ],
)
def test_refused_patterns(pattern, fragments):
    with WORDS.raises(TaskError, *fragments):
        Template(pattern)


@pytest.mark.parametrize(
    ("pattern", "example", "field"),
    [
        ("{text}: {label}", Example(" \n", 1), "'text'"),
        ("{text}/{text2}: {label}", Example("a", 1), "'text2'"),
        ("{text}/{text2}: {label}", Example("a", 1, " "), "'text2'"),
    ],
)
def test_empty_texts_are_refused(pattern, example, field):
    with pytest.raises(TaskError) as caught:
        list(Template(pattern).pieces(example, None))
    assert f"empty {field} (label 1)" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "before", "after"),
    [
        ("Review: {text}\nSentiment: {label}", "\nSentiment: ", ""),
        ("{text}:\t{label}", ":\t", ""),
        ("{text}:{label}", ":", ""),
        ("Q: {text}\nAnswer: ({label})", "\nAnswer: (", ")"),
        ('{{"text": "{text}", "label": "{label}"}}', '", "label": "', '"}'),
        ("评论：{text}\n情感：{label}。", "\n情感：", "。"),
        ("{text}\n\n{label}\n", "\n\n", "\n"),
        ("{text} {label}", " ", ""),
    ],
)
def test_a_pattern_is_literal(pattern, before, after):
    template = Template(pattern)
    assert template.label_context == (before, after)
    written = "".join(piece.text for piece in template.pieces(Example("a"), "b"))
    assert written == pattern.format(text="a", label="b")
    # What follows a label word in a prompt, up to the next text.
    begins = written[: written.index("a" + before)]
    assert template.closing == f"{after}\n{begins}"


def test_templates_recorded_by_earlier_versions_left_out_the_blank():
    earlier = {"template": "{text}\nSentiment:{label}.", "separator": "\n\n", "narrative": "So:"}
    template = Template.recorded(earlier)
    assert template == Template("{text}\nSentiment: {label}.", "\n\n", "So:")
    now = {**earlier, "template": "{text} ({label})", "spelling": "literal"}
    assert Template.recorded(now).pattern == "{text} ({label})"
