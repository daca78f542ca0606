"""Sentences, lines, paragraphs, steps, turns and items, by rules."""

from itertools import pairwise

import pytest

from icl_mech.prompts.splitting import split_text


def parts(text, unit="sentences"):
    return [text[start:stop] for start, stop in split_text(text, unit)]


SENTENCES = [
    ["It rained."],
    ["It rained", "."][:1],
    ["It rained.", " We left.", " Why?", " Because!", " Really?!", " Yes."],
    ["Dr. Smith met Mr. and Mrs. Brown at St. Mary's.", " They spoke."],
    ["See Fig. 3 and eq. 4, cf. Sec. 2.", " Then stop."],
    ["Use e.g. Python, i.e. a language, etc. and go.", " Done."],
    ["It costs $3.50, or 1.000,00 in 2.0.1 of www.a.com.", " Cheap."],
    ["J. R. Tolkien wrote.", " Plan B. failed.", " I did."],
    ["He lives in the U.S. Government quarter.", " At 5 p.m. John ate."],
    ["He left the U.S.", " The end.", " It was 5 p.m.", " We ate, etc.", " But then."],
    ['"Stop!" he said.', ' "Why?"', " She left."],
    ["“Go.”", " (Or not.)", " [He went.]", " ‘Fine.’", " «Bien.»"],
    ["Wait... what?", " Well...", " It rained… a bit.", " No…", " Yes."],
    ["In 1999.", " Then 2000.", " 5 came."],
    ["1. First do this.", " 2. Then that. a) third is no step."],
    ["No.", " I do not.", " So do I.", " He did."],
    ["Born Jan. 5, ca. 1900, vol. 2, no. 7.", " Died."],
    ["这是一句。", "“真的吗？”", "他说！", "好的。"],
    ["次は日本語です。", "「はい。」", "終わり"],
    ["What is 2 + 2?", " It is 4.", " ¿Sí?", " ¡No!"],
    ["A line\nbroken in two.", " One more.\n\n", "A paragraph without a stop\n\n", "The end."],
    ["It ends here.\n", "It goes on."],
    ["Yahoo! is a firm.", " Jeopardy! too, it seems."],
    ["  Blanks before.", " And after.  "],
    ["*Bold.*", " _Slanted._", " Plain."],
    ["Ümlaut. und klein bleibt.", " Groß beginnt neu."],
]  # fmt: skip


@pytest.mark.parametrize("wanted", SENTENCES, ids=lambda wanted: wanted[0][:20])
def test_sentences(wanted):
    assert parts("".join(wanted)) == wanted


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        ("lines", ["One.\n", "Two\n\n", "Three\n"]),
        ("paragraphs", ["One\ntwo\n\n", "Three\n  \n", "Four"]),
        ("steps", ["Step 1: add.\n", "Step 2: take\n 3 away.\n", "Step 3: done."]),
        ("steps", ["1. add\n", "2. take\n", "10) done"]),
        ("steps", ["Add 3.\n", "Take 2.\n\n", "So 1."]),
        ("turns", ["User: Hi\n", "Bot: Hello.\nHow are you?\n", "User: fine"]),
        ("turns", ["<|im_start|>user\nHi<|im_end|>\n", "<|im_start|>assistant\n"]),
    ],
)
def test_other_units(unit, wanted):
    assert parts("".join(wanted), unit) == wanted


def test_items_leave_what_is_none():
    text = "Buy:\n- milk\n- two\n  eggs\n* tea\n\nThen go."
    assert parts(text, "items") == ["- milk\n", "- two\n  eggs\n", "* tea\n\n"]
    assert parts("no list", "items") == []


@pytest.mark.parametrize("unit", ["sentences", "lines", "paragraphs", "steps", "turns"])
@pytest.mark.parametrize("wanted", SENTENCES, ids=lambda wanted: wanted[0][:20])
def test_spans_tile_the_text(unit, wanted):
    text = "".join(wanted)
    spans = split_text(text, unit)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert all(text[start:stop].strip() for start, stop in spans)
