"""Prompts as text: escaped, every token with its role, position and level of colour."""

import math
import re
from html.parser import HTMLParser

import pytest

from icl_mech.errors import ResultError
from icl_mech.plots.pieces import SIGNS, alone, in_text, quoted, visible
from icl_mech.plots.prompt_style import (
    LEVELS,
    ROLE_NAMES,
    ROLE_STYLES,
    Scale,
    contrast,
    level_colours,
    style,
)
from icl_mech.plots.prompt_view import SHOWN, TOKENS, Text, batch_html, prompt_html, prompt_view
from icl_mech.prompts import Prompt, Span
from icl_mech.prompts.spans import ROLES
from tests.said import Words

WORDS = Words(__file__)

PIECES = ("<s>", "a", ' <b>&"', "\n", " yes", " no", "?", ":")
SPANS = (
    Span("bos", None, 0, 1), Span("demo_text", 0, 1, 3), Span("format", 0, 3, 4),
    Span("label_word", 0, 4, 5), Span("label_word", 1, 5, 6), Span("query_text", None, 6, 7),
    Span("target", None, 7, 8),
)  # fmt: skip
PROMPT = Prompt(
    tuple(range(20, 28)), SPANS, (1, 0), ((30,), (31,)), answer=1, labels=("n<o>", "yes"),
    pieces=PIECES,
)  # fmt: skip


class Page(HTMLParser):
    """Tokens with their attributes and texts, and all text there is."""

    def __init__(self, html):
        super().__init__()
        self.tokens, self.texts, self.tags, self.open = [], [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if "data-i" in dict(attrs):
            self.open = dict(attrs)
            self.tokens.append([self.open, ""])

    def handle_endtag(self, tag):
        self.open = None if tag == "span" else self.open

    def handle_data(self, data):
        self.texts.append(data)
        if self.open is not None:
            self.tokens[-1][1] += data


def classes(token):
    return token[0]["class"].split()


def test_every_token_is_shown_as_text_with_its_place():
    page = Page(prompt_html(PROMPT))
    assert [text for _, text in page.tokens] == ["<s>", "a", ' <b>&"', "↵", " yes", " no", "?", ":"]
    assert [int(own["data-i"]) for own, _ in page.tokens] == list(range(8))
    assert [int(own["data-id"]) for own, _ in page.tokens] == list(range(20, 28))
    assert set(page.tags) <= {"div", "span", "br"}
    assert page.tags.count("br") == 1


def test_roles_are_coloured_and_said():
    tokens = Page(prompt_html(PROMPT)).tokens
    kinds = ["template", "text", "text", "template", "label", "label", "query", "target"]
    assert [classes(token) for token in tokens] == [["icl-t", f"icl-{kind}"] for kind in kinds]
    roles = ["bos", "demo_text", "demo_text", "format", "label_word", "label_word"]
    assert [own["data-role"] for own, _ in tokens[:6]] == roles
    WORDS.exactly(tokens[4][0]["title"], "roles_coloured_said", "4", "24", "1")
    assert tokens[5][0]["title"].endswith("label word (demonstration 2, shows n<o>)")
    assert tokens[2][0]["title"].startswith('“␣<b>&"” · position 2 · id 22 · demonstration text')
    WORDS.exactly(tokens[6][0]["title"], "roles_coloured_said_2", "6", "26")


def test_the_legend_names_the_roles_that_stand_there():
    legend = prompt_html(PROMPT).split('<div class="icl-body"')[0]
    for role in ROLES:
        assert (ROLE_NAMES[role] in legend) == (role in {span.role for span in SPANS})
    assert 'icl-label">label word<' in legend
    assert "icl-plain" not in legend
    assert "icl-plain" in prompt_html(PROMPT, [0.0] * 8)
    assert "icl-legend" not in prompt_html(PROMPT, legend=False)


def test_every_role_has_a_name_and_a_style():
    assert set(ROLES) == set(ROLE_NAMES) == set(ROLE_STYLES)
    for kind in set(ROLE_STYLES.values()):
        assert f".icl-t.icl-{kind}{{" in style(levels=False)


def test_prompts_without_pieces_show_ids():
    bare = Prompt.from_positions(
        (7, 8, 9), label_positions=(1,), label_classes=(0,), label_tokens=(8, 6)
    )
    assert [text for _, text in Page(prompt_html(bare)).tokens] == ["⟨7⟩", "⟨8⟩", "⟨9⟩"]


# --- numbers ---


def test_numbers_are_drawn_at_their_level():
    values = [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, math.nan, 0.049]
    tokens = Page(prompt_html(PROMPT, values, name="x<y", high=1.0)).tokens
    levels = [0, 2, 5, 10, 20, 20, None, 1]
    for token, value, level in zip(tokens, values, levels, strict=True):
        assert classes(token)[2] == ("icl-nan" if level is None else f"icl-v{level}")
        assert token[0].get("data-v") == (None if level is None else f"{value:.4g}")
    assert tokens[3][0]["title"].startswith("x<y: 0.5 · “")
    assert tokens[6][0]["title"].startswith("x<y: no value · ")


def test_numbers_around_0_have_the_other_colours():
    tokens = Page(prompt_html(PROMPT, [-2.0, -1.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0])).tokens
    levels = [classes(token)[2] for token in tokens[:5]]
    assert levels == ["icl-s0", "icl-s5", "icl-s10", "icl-s15", f"icl-s{round(20 * 2.5 / 4)}"]


def test_what_colours_cannot_say_is_written():
    values = [0.0, -3.0, 2.0, math.nan, 1.0, 9.0, 0.5, 0.25]
    html = prompt_html(PROMPT, values, low=-2.0, high=4.0)
    note = " ".join(Page(html.split('<p class="icl-note">')[1]).texts)
    assert note == (
        'Largest: “␣no” (5) 9, “a” (1) −3, “␣<b>&"” (2) 2, “␣yes” (4) 1, “?” (6) 0.5. '
        "2 values lie beyond the ends of the scale and have their colours. "
        "1 token has no value (hatched)."
    )
    one = prompt_html(PROMPT, [float(i) for i in range(8)], high=6.0)
    WORDS(one, "what_colours_cannot_say", "1")
    WORDS(prompt_html(PROMPT, [0.0] * 8), "what_colours_cannot_say_2", "0")


def test_the_scale_has_its_ends_and_name():
    html = prompt_html(PROMPT, [-2.0, 1.0, *[0.0] * 6], name="<n>")
    scale = Page(html.split('class="icl-scale">')[1].split("</div>")[0])
    assert "".join(scale.texts) == "<n> −22"
    steps = re.findall(r'icl-step (icl-s\d+)"', html)
    assert steps == [f"icl-s{level}" for level in range(0, 21, 2)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0] * 7, "7 values for 8"),
        ([[1.0]] * 8, "8 of two axes"),
        ([math.inf] * 8, "infinite"),
        (["x"] * 8, "number"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_values_that_are_none(values, message):
    with WORDS.raises(ResultError, message):
        prompt_html(PROMPT, values)


def test_scales():
    assert Scale.of([0.5, 2.0, math.nan]) == Scale(0.0, 2.0)
    assert Scale.of([-1.0, 3.0]) == Scale(-3.0, 3.0, signed=True)
    assert Scale.of([-1.0, 3.0], high=5.0) == Scale(-5.0, 5.0, signed=True)
    assert Scale.of([-1.0, 3.0], low=-2.0) == Scale(-2.0, 3.0)
    assert Scale.of([]) == Scale.of([0.0]) == Scale(0.0, 1.0)
    assert Scale.of([1.0], low=4.0) == Scale(4.0, 5.0)
    for low, high in ((2.0, 1.0), (1.0, 1.0), (0.0, math.inf)):
        with pytest.raises(ResultError, match=f"low={low} and high={high}"):
            Scale.of([1.0], low, high)
    assert Scale(0.0, 1.0).beyond([-0.1, 0.0, 1.0, 1.1, math.nan]) == 2


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_text_can_be_read_on_every_level(signed, dark):
    colours = level_colours(signed=signed, dark=dark)
    assert len(colours) == LEVELS + 1
    assert len({ground for ground, _ in colours}) == LEVELS + 1
    assert min(contrast(ink, ground) for ground, ink in colours) >= 4.5
    css = style()
    for level, (ground, ink) in enumerate(colours):
        name = f"{'s' if signed else 'v'}{level}"
        assert f"--icl-{name}:{ground};--icl-on-{name}:{ink}" in css


def test_contrast_by_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


# --- long prompts and sets ---


def test_long_prompts_leave_out_their_middle():
    long = Text(tuple(f" w{i}" for i in range(30)), ("demo_text",) * 29 + ("target",))
    html = prompt_html(long, limit=11)
    assert [int(own["data-i"]) for own, _ in Page(html).tokens] == [*range(5), *range(24, 30)]
    WORDS(html, "middle_left_out", "19", "30", "5 to 23")
    for limit in (None, 30):
        assert len(Page(prompt_html(long, limit=limit)).tokens) == 30
    with WORDS.raises(ResultError, "long_prompts_leave_out", "1", "2"):
        prompt_html(long, limit=1)
    assert repr(prompt_view(long, [0.0] * 30, name="n")) == "<text of 30 tokens coloured by n>"


def test_tokens_by_place_and_text():
    text = Text.of(PROMPT)
    assert (text.position("target"), text.position("yes"), text.position(3)) == (7, 4, 3)
    assert text.name(2) == '“␣<b>&"” (2)'
    with WORDS.raises(ResultError, "tokens_place_text", "'x'"):
        text.position("x", "into")
    with WORDS.raises(ResultError, "tokens_place_text_2", "[0, 1]"):
        Text(("a", " a"), ("unknown",) * 2).position("a")
    for place in (8, -1):
        with WORDS.raises(ResultError, "no_such_token", place, "8"):
            text.position(place)


@pytest.mark.parametrize(("count", "rest"), [(1, ""), (4, ""), (5, "1 more"), (7, "3 more")])
def test_a_set_shows_its_first_prompts(count, rest):
    html = batch_html([PROMPT] * count, "a <set>")
    lines = re.findall(r"<summary>(.*?)</summary>", html)
    assert len(lines) == min(count, SHOWN)
    WORDS.exactly(lines[0], "set_shows_first_prompts", count)
    assert len(re.findall(r"<details [^>]* open>", html)) == 1
    assert html.count("icl-legend") - style(levels=False).count("icl-legend") == 1
    WORDS(html, "set_shows_first_prompts_2")
    if rest:
        WORDS(html, rest, "prompts[4]")
    WORDS.only_if(bool(rest), html, "some_not_shown")


def test_a_set_names_the_answer_that_is_taught():
    taught = Prompt(PROMPT.tokens, SPANS, (1, 0), ((30,), (31,)), answer=1, false_answer=0,
                    labels=("n<o>", "yes"), pieces=PIECES)  # fmt: skip
    html = batch_html([taught], "")
    assert "true answer: yes, answer after the demonstrations: n&lt;o&gt;</summary>" in html
    size = TOKENS + 10
    long = Prompt.from_positions(
        range(size), label_positions=(), label_classes=(), label_tokens=(1, 2)
    )
    WORDS(batch_html([long], ""), "set_names_answer_taught", size)


# --- scripts ---

SCRIPTS = {
    "Chinese": ("服", "", "务", " 正", "", "", "面", "\n"),
    "Arabic": ("ال", "ط", "", "ع", "ام", "\n"),
    "Hindi": (" ह", "", "ै", "\n", "ै"),
    "emoji": (" 👩", "", "", "\u200d", "", "🔬", "", "", "\n"),
}


SHOWN_AS = str.maketrans({**SIGNS, "\u200d": "⟨U+200D⟩"})


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_character_of_several_tokens_is_shown_once(script):
    pieces = SCRIPTS[script]
    shown = in_text(pieces)
    assert "".join(own.text for own in shown) == "".join(pieces).translate(SHOWN_AS)
    assert [not own.text for own in shown] == [not piece for piece in pieces]
    for start, piece in enumerate(pieces):
        if piece and pieces[start + 1 : start + 2] == ("",):
            last = piece[-1]
            stop = next(i for i in range(start + 1, len(pieces)) if pieces[i])
            about = {own.about for own in shown[start:stop]}
            to = "and" if stop == start + 2 else "to"
            assert about == {f"tokens {start} {to} {stop - 1} spell “{visible(last)}”"}
            assert shown[start + 1].name == f"“⋯{visible(last)}”"
        elif piece:
            assert shown[start].about == ""


def test_a_prompt_says_which_tokens_spell_a_character():
    chinese = Text(SCRIPTS["Chinese"], ("query_text",) * 7 + ("target",))
    page = Page(prompt_html(chinese))
    assert "".join(text for _, text in page.tokens) == "服务 正面↵"
    assert "tokens 3 to 5 spell “正”" in page.tokens[4][0]["title"]
    assert "icl-more" in classes(page.tokens[4])
    assert "icl-more" not in classes(page.tokens[3])


def test_tokens_are_no_boxes_of_their_own_direction():
    html = prompt_view(Text(SCRIPTS["Arabic"], ("query_text",) * 6)).html
    assert '<div class="icl-body" dir="auto">' in html
    assert "<bdi" not in html
    assert "isolate" not in html


def test_tokens_that_stand_alone_show_their_spaces():
    assert [alone(piece) for piece in (" Negative", "Negative", "  a b ", " ", "")] == [
        "␣Negative", "Negative", "␣␣a b␣", "␣", "⋯",
    ]  # fmt: skip
    assert quoted(" Negative") == "“␣Negative”"
    assert quoted("ا") == "“\u2068ا\u2069”"
