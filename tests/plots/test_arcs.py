"""Arcs between tokens: which edges, where they begin and end, how wide, and what is left out."""

import re
from html import unescape

import numpy as np
import pytest
import torch

from icl_mech.errors import ResultError
from icl_mech.plots.arcs import (
    BELOW,
    SIDE,
    TALLEST,
    THICK,
    THIN,
    WIDTH,
    Edges,
    arcs_html,
    arcs_view,
)
from icl_mech.plots.prompt_view import Text
from tests.said import Words

WORDS = Words(__file__)

ROLES = ("bos", "demo_text", "label_word", "query_text", "target")
TEXT = Text(("<s>", " good", " <yes>", " bad", ":"), ROLES)
# Destination, source; the diagonal is no edge.
EDGES = {(4, 2): 4.0, (2, 1): 2.0, (3, 0): 1.0, (4, 3): 1.0, (1, 1): 9.0}


def matrix(edges=EDGES, size=5):
    weights = np.zeros((size, size))
    for place, weight in edges.items():
        weights[place] = weight
    return weights


def drawn(html):
    """Class, width, ends, height and words of every arc."""
    pattern = (
        r'<path class="icl-a-(\w+)" stroke-width="([\d.]+)" d="M([\d.]+) (\d+)'
        r'C([\d.]+) ([\d.-]+) ([\d.]+) ([\d.-]+) ([\d.]+) (\d+)"><title>(.*?)</title>'
    )
    return re.findall(pattern, html)


def middle(place):
    """Where a token of five stands."""
    return f"{SIDE + (WIDTH - 2 * SIDE) * (place + 0.5) / 5:.1f}"


@pytest.mark.parametrize("kind", [torch.tensor, torch.FloatTensor, list, np.asarray])
def test_the_strongest_edges_without_the_diagonal(kind):
    edges = Edges.of(kind(matrix().tolist()), 5, 2)
    assert edges.drawn == ((4, 2, 4.0), (2, 1, 2.0))
    assert edges.count == 4
    assert edges.share == pytest.approx(6 / 8)


def test_no_more_edges_than_have_a_weight():
    edges = Edges.of(matrix(), 5, 50)
    assert [place[:2] for place in edges.drawn] == [(4, 2), (2, 1), (3, 0), (4, 3)]
    assert edges.share == pytest.approx(1)
    assert Edges.of(np.zeros((3, 3)), 3, 5) == Edges((), 0, 0.0)


def test_arcs_lead_from_the_token_that_is_read():
    arcs = drawn(arcs_html(TEXT, matrix(), name="a<b"))
    assert len(arcs) == 4
    kind, width, left, base, first, top, second, _, right, end, words = arcs[-1]
    assert (kind, left, right) == ("label", middle(2), middle(4))
    assert (first, second, base, end) == (left, right, "248", "248")
    assert unescape(words) == "“␣<yes>” (2) → “:” (4): a<b 4"
    assert float(width) == THICK
    assert [arc[0] for arc in arcs[:3]] == ["query", "template", "text"]
    # The widths of 1 and 2 of 4.
    assert [float(arc[1]) for arc in arcs[:3]] == pytest.approx(
        [THIN + (THICK - THIN) * part for part in (0.25, 0.25, 0.5)], abs=0.01
    )
    # The longest arc, of three tokens, is the tallest: a cubic curve reaches 3/4 of the way.
    assert float(arcs[1][5]) == pytest.approx(248 - TALLEST * 4 / 3, abs=0.1)
    assert float(top) == pytest.approx(248 - TALLEST * (2 / 3) * 4 / 3, abs=0.1)


def test_tokens_at_the_ends_are_written_and_escaped():
    html = arcs_html(TEXT, matrix({(2, 1): 1.0}))
    words = re.findall(r'<text class="icl-b-(\w+)" x="([\d.]+)".*?>(.*?)</text>', html)
    assert [(kind, unescape(word)) for kind, _, word in words] == [
        ("text", "good"), ("label", "<yes>"), ("target", ":"),
    ]  # fmt: skip
    assert "<yes>" not in html
    assert [float(x) for _, x, _ in words] == [float(middle(i)) + 3 for i in (1, 2, 4)]


def test_words_that_would_cover_each_other_are_left_out():
    """At 200 tokens three stand in the room of one word; label words go first."""
    roles = ["demo_text"] * 200
    roles[101] = "label_word"
    edges = {(101, 100): 5.0, (102, 50): 1.0}
    html = arcs_html(Text(tuple(f"w{i}" for i in range(200)), tuple(roles)), matrix(edges, 200))
    assert re.findall(r">(w\d+)</text>", html) == ["w50", "w101"]


def test_a_row_of_roles_below_the_arcs():
    ticks = re.findall(
        r'<rect class="icl-b-(\w+)" x="([\d.]+)" y="248" width="([\d.]+)" height="(\d)"/>',
        arcs_html(TEXT, matrix()),
    )
    assert [tick[0] for tick in ticks] == ["template", "text", "label", "query", "target"]
    assert [tick[3] for tick in ticks] == ["4", "4", "8", "4", "8"]
    centres = [float(x) + float(wide) / 2 for _, x, wide, _ in ticks]
    assert centres == pytest.approx([float(middle(i)) for i in range(5)], abs=0.11)
    assert f'viewBox="0 0 {WIDTH:.0f} {TALLEST + 16 + BELOW:.0f}"' in arcs_html(TEXT, matrix())


def test_what_is_left_out_is_said():
    some = unescape(arcs_html(TEXT, matrix(), name="saliency", top=2))
    WORDS(some, "what_left_out_said", "2", "4", "75")
    WORDS(some, "what_left_out_said_2", "2", "4")
    WORDS(unescape(arcs_html(TEXT, matrix())), "what_left_out_said_3", "4", "100")
    none = arcs_html(TEXT, np.eye(5), name="saliency")
    WORDS(none, "what_left_out_said_4", "No")
    assert not drawn(none)


def test_the_key_names_the_roles_arcs_come_from():
    key = arcs_html(TEXT, matrix({(4, 2): 1.0, (4, 0): 1.0})).split('<div class="icl-wide">')[0]
    assert re.findall(r"</svg> from (.*?)</span>", key) == ["label words", "the template"]


def test_a_view_has_its_styles():
    view = arcs_view(TEXT, matrix(), name="n")
    assert repr(view) == "<arcs between 5 tokens by n>"
    for kind in ("text", "label", "template", "query", "target", "unknown"):
        assert f".icl-arcs .icl-a-{kind}{{stroke:var(--icl-" in view.html


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (np.zeros((4, 5)), {}, "shape [4, 5]"),
        (matrix({(4, 2): -1.0}), {}, "negative undefined"),
        (matrix({(4, 2): np.nan}), {}, "negative undefined"),
        (matrix({(2, 4): 1.0}), {}, "edges tokens later"),
        (matrix(), {"top": 0}, "top0"),
    ],
)
def test_matrices_that_are_no_edges(weights, options, message):
    with WORDS.raises(ResultError, message):
        arcs_html(TEXT, weights, **options)
