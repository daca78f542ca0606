"""`Prompt`: what it checks, and prompts made from bare positions."""

import pytest

from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch, Span
from tests.said import Words

WORDS = Words(__file__)

SPANS = (
    Span("bos", None, 0, 1),
    Span("demo_text", 0, 1, 4),
    Span("label_word", 0, 4, 6),
    Span("query_text", None, 6, 8),
    Span("target", None, 8, 9),
)


def prompt(**changes):
    given = {
        "tokens": tuple(range(20, 29)),
        "spans": SPANS,
        "label_classes": (1,),
        "label_words": ((7,), (24, 25)),
    }
    return Prompt(**{**given, **changes})


def bare(**changes):
    given = {"label_positions": [2, 5], "label_classes": [1, 0], "label_tokens": [15, 12]}
    return Prompt.from_positions(range(10, 20), **{**given, **changes})


def test_positions_by_hand():
    example = prompt(answer=0, false_answer=1)
    assert len(example) == 9
    assert example.target == 8
    assert example.label_positions == (4,)
    assert example.label_spans == (SPANS[2],)
    assert example.label_tokens == (7, 24)
    assert example.has_text_roles
    assert example.labels == ("class 0", "class 1")


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"spans": (SPANS[0], *SPANS[2:])}, ["gap", "start=4", "1"]),
        ({"spans": (*SPANS[:2], Span("format", 0, 3, 4), *SPANS[2:])}, ["empty span"]),
        ({"spans": (SPANS[0], Span("format", 0, 1, 1), *SPANS[1:])}, ["empty span, shifted"]),
        ({"spans": SPANS[1:]}, ["gap at the start", "0"]),
        ({"tokens": tuple(range(10))}, ["end", "9", "10 tokens"]),
        ({"spans": (*SPANS[:3], Span("query_text", None, 6, 9))}, ["no target"]),
        ({"spans": (*SPANS[:3], Span("target", None, 6, 9))}, ["target of three"]),
        ({"label_classes": ()}, ["label classes 0 1", "0", "1"]),
        ({"label_classes": (1, 0)}, ["label classes 2 1", "2", "1"]),
        ({"label_classes": (2,)}, ["label class 2", "label class 2", "2 classes"]),
        ({"label_classes": (-1,)}, ["label class -1", "label class -1"]),
        ({"answer": 2}, ["answer 2", "answer 2", "2 classes"]),
        ({"false_answer": -1}, ["false answer -1", "false answer -1"]),
        ({"label_words": ((24,), (24, 25))}, ["same token", "class 0", "class 1", "(id 24)"]),
        (
            {"label_words": ((24,), (24, 25)), "labels": ("no", "none")},
            ["same token of labels", "'no'", "'none'"],
        ),
    ],
)
def test_refused_prompts(changes, fragments):
    with WORDS.raises(PromptError, *fragments):
        prompt(**changes)


# From positions


def test_from_positions_by_hand():
    example = bare(answer=1, false_answer=0)
    assert example.tokens == tuple(range(10, 20))
    assert example.spans == (
        Span("unknown", None, 0, 2),
        Span("label_word", 0, 2, 3),
        Span("unknown", None, 3, 5),
        Span("label_word", 1, 5, 6),
        Span("unknown", None, 6, 9),
        Span("target", None, 9, 10),
    )
    assert example.label_positions == (2, 5)
    assert example.label_classes == (1, 0)
    assert example.label_words == ((15,), (12,))
    assert (example.answer, example.false_answer, example.target) == (1, 0, 9)
    assert not example.has_text_roles
    assert example.exact


def test_from_positions_with_longer_words_side_by_side():
    example = bare(label_positions=[0, 3], label_lengths=[3, 2])
    assert example.spans == (
        Span("label_word", 0, 0, 3),
        Span("label_word", 1, 3, 5),
        Span("unknown", None, 5, 9),
        Span("target", None, 9, 10),
    )


def test_from_positions_with_several_demonstrations_of_a_class():
    example = bare(label_positions=[1, 3, 4, 8], label_classes=[1, 1, 0, 1])
    assert example.label_positions == (1, 3, 4, 8)
    assert example.label_classes == (1, 1, 0, 1)
    assert [span.demo for span in example.label_spans] == [0, 1, 2, 3]


def test_from_positions_without_demonstrations():
    example = bare(label_positions=[], label_classes=[])
    assert example.spans == (Span("unknown", None, 0, 9), Span("target", None, 9, 10))


def test_the_answer_may_be_read_before_the_last_label():
    # The last demonstration is the query: its own label stands behind the target.
    example = bare(target=4)
    assert example.target == 4
    assert example.spans == (
        Span("unknown", None, 0, 2),
        Span("label_word", 0, 2, 3),
        Span("unknown", None, 3, 4),
        Span("target", None, 4, 5),
        Span("label_word", 1, 5, 6),
        Span("unknown", None, 6, 10),
    )


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"label_positions": [5, 2]}, ["descending", "[5, 2]"]),
        ({"label_positions": [2, 2]}, ["overlap", "[2, 2]"]),
        ({"label_lengths": [4, 1]}, ["overlap of lengths"]),
        ({"label_positions": [-1, 5]}, ["outside -1", "[-1, 5]", "10 tokens"]),
        ({"label_positions": [2, 10]}, ["outside 10", "[2, 10]", "10 tokens"]),
        ({"label_positions": [2, 9]}, ["at the target", "target 9"]),
        ({"label_positions": [2, 8], "label_lengths": [1, 2]}, ["reaches the target", "target 9"]),
        ({"label_lengths": [0, 1]}, ["length 0"]),
        ({"label_classes": [1]}, ["numbers of classes", "2", "1"]),
        ({"label_lengths": [1]}, ["numbers of lengths", "2", "1"]),
        ({"target": 10}, ["target 10", "10", "10 tokens"]),
        ({"target": -1}, ["target -1", "-1"]),
        ({"label_classes": [1, 2]}, ["bare label class 2", "label class 2"]),
        ({"answer": 2}, ["bare answer 2", "answer 2"]),
        ({"label_tokens": [15, 15]}, ["bare same token", "class 0", "class 1", "(id 15)"]),
    ],
)
def test_refused_positions(changes, fragments):
    with WORDS.raises(PromptError, *fragments):
        bare(**changes)


def test_an_empty_prompt_has_no_target():
    with WORDS.raises(PromptError, "empty_prompt_no_target", "-1", "0"):
        Prompt.from_positions([], label_positions=[], label_classes=[], label_tokens=[1, 2])


@pytest.mark.parametrize("role", ["bos", "narrative", "format", "demo_text", "query_text"])
def test_text_roles_of_bare_positions_are_refused(role):
    with pytest.raises(PromptError) as caught:
        PromptBatch((prompt(label_words=((15,), (12,))), bare())).where(role)
    WORDS(str(caught.value), "text_roles_bare_positions", repr(role))
    assert "build_prompts" in str(caught.value)


def test_labels_and_target_of_bare_positions_are_known():
    batch = PromptBatch((bare(label_lengths=[2, 1]),))
    assert batch.where("label_word").nonzero()[:, 1].tolist() == [2, 3, 5]
    assert batch.where("target").nonzero()[:, 1].tolist() == [9]
