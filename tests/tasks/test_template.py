"""`Template`: its pieces, and every pattern it refuses."""

import pytest

from icl_mech.errors import TaskError
from icl_mech.tasks import Example, Template

REVIEW = Template("Review: {text}\nSentiment:{label}")


def test_pieces_of_a_demonstration():
    assert [tuple(piece) for piece in REVIEW.pieces(Example("so dull", 0), " Negative")] == [
        ("format", "Review: "),
        ("text", "so dull"),
        ("format", "\nSentiment:"),
        ("label", " Negative"),
    ]


def test_pieces_of_the_query_stop_where_the_label_would_stand():
    template = Template("{text}:{label}.")
    assert [tuple(piece) for piece in template.pieces(Example("tulip", 1), None)] == [
        ("text", "tulip"),
        ("format", ":"),
    ]
    assert [tuple(piece) for piece in template.pieces(Example("tulip", 1), " plant")] == [
        ("text", "tulip"),
        ("format", ":"),
        ("label", " plant"),
        ("format", "."),
    ]


def test_pieces_of_a_pair():
    template = Template("{text}\nHypothesis: {text2}?{label}")
    assert template.is_pair
    assert not REVIEW.is_pair
    assert [tuple(piece) for piece in template.pieces(Example("a", 0, "b"), None)] == [
        ("text", "a"),
        ("format", "\nHypothesis: "),
        ("text", "b"),
        ("format", "?"),
    ]


def test_doubled_braces_are_braces_of_the_prompt():
    template = Template("{{{text}}} {{x}}:{label}{{}}")
    pieces = list(template.pieces(Example("a", 0), " no"))
    assert "".join(piece.text for piece in pieces) == "{a} {x}: no{}"
    assert [piece.kind for piece in pieces if piece.kind != "format"] == ["text", "label"]


def test_braces_in_a_text_are_kept():
    pieces = REVIEW.pieces(Example("{label} {x", 0), " no")
    assert "".join(piece.text for piece in pieces) == "Review: {label} {x\nSentiment: no"


@pytest.mark.parametrize(
    ("pattern", "fragments"),
    [
        ("Review: {text}", ["{label} 0 times", "exactly once"]),
        ("Sentiment:{label}", ["{text} 0 times", "exactly once"]),
        ("", ["{text} 0 times"]),
        ("{text} {text}:{label}", ["{text} 2 times"]),
        ("{text}:{label}:{label}", ["{label} 2 times"]),
        ("{text}{text2}{text2}:{label}", ["{text2} 2 times"]),
        ("{text}: {topic}:{label}", ["placeholder {topic}", "{text2} (pair tasks)"]),
        ("{text}: {}:{label}", ["placeholder {}"]),
        ("{text.name}:{label}", ["placeholder {text.name}"]),
        ("{text:>9}:{label}", ["formats a placeholder", "bare name"]),
        ("{text}:{label!r}", ["formats a placeholder", "bare name"]),
        ("{text}:{label", ["cannot be read", "'{text}:{label'"]),
        ("{label}: {text}", ["text after {label}", "put {label} last"]),
        ("{text}:{label} {text2}", ["text after {label}"]),
        ("Review: {text}\nSentiment: {label}", ["space before {label}", "Sentiment:{label}'"]),
        ("{text}:\t{label}", ["space before {label}", "write ':{label}'"]),
        ("{{label}}: {text}: {label}", ["space before {label}"]),
        ("Review:{text}{label}", ["no sign before {label}"]),
        ("{text}{label}", ["no sign before {label}", "'{text}:{label}'"]),
    ],
)
def test_refused_patterns(pattern, fragments):
    with pytest.raises(TaskError) as caught:
        Template(pattern)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "example", "field"),
    [
        ("{text}:{label}", Example(" \n", 1), "'text'"),
        ("{text}/{text2}:{label}", Example("a", 1), "'text2'"),
        ("{text}/{text2}:{label}", Example("a", 1, " "), "'text2'"),
    ],
)
def test_empty_texts_are_refused(pattern, example, field):
    with pytest.raises(TaskError) as caught:
        list(Template(pattern).pieces(example, None))
    assert f"empty {field} (label 1)" in str(caught.value)
