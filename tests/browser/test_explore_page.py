"""The explorer's page alone: what it sends for each gesture, and what it makes of what it hears."""

import base64

import pytest

from icl_mech.explorer import heads, theme
from tests.browser.chromium import DRAWN
from tests.browser.contrast import weak
from tests.said import Words

WORDS = Words(__file__)

LAYERS, HEADS, LABELS = 6, 3, [" World", " Sports", " Business", " Technology"]
HOSTILE = '<img src=x onerror="window.hacked=1">\u202e</script>'

SHELL = """<!doctype html><html lang="en"><style>body { margin: 0 } /*css*/</style><div id="explore"></div>
<script type="module">/*js*/
window.sent = [];
mount(document.getElementById("explore"), {
  send: message => window.sent.push(message),
  status: told => { window.link = told; },
  listen: heard => { window.say = heard; },
});
window.link("open");
</script></html>"""


def tokens(demos, query):
    found = []
    for number, demo in enumerate(demos):
        words = [("Text:", "format"), (" " + demo["text"], "demo_text"), ("\nAnswer:", "format")]
        words += [(LABELS[demo["shown"]], "label_word"), ("\n", "format")]
        found += [{"t": text, "r": role, "d": number} for text, role in words]
    last = [
        ("Text:", "format"),
        (" " + query, "query_text"),
        ("\nAnswer", "format"),
        (":", "target"),
    ]
    return found + [{"t": text, "r": role, "d": None} for text, role in last]


def state(gen=1, shown=(0, 1), **more):
    demos = [{"text": f"text {i}", "shown": c, "true": i} for i, c in enumerate(shown)]
    demos = more.pop("demos", demos)
    kinds = [("isolate", "isolate label words", None), ("token", "isolate the token", "token")]
    return {
        "kind": "state",
        "gen": gen,
        "seq": gen,
        "version": 1,
        "model": "m",
        "task": "t",
        "labels": LABELS,
        "demos": demos,
        "query": {"text": "q", "answer": 0, "number": 0, "of": 24},
        "tokens": tokens(demos, "q"),
        "layers": LAYERS,
        "heads": HEADS,
        "changes": [],
        "kinds": [{"what": what, "words": words, "needs": needs} for what, words, needs in kinds],
        "modes": heads.described(of_answers=False),
        "title": "start",
        "started": True,
        "undo": False,
        "redo": False,
        "named": [],
        "reference": {"index": None, "name": "start"},
        "n": 24,
        "queries": [
            {"text": f"query {i}", "answer": i % 4, "label": LABELS[i % 4]} for i in range(24)
        ],
        "shared": True,
        "note": "",
        **more,
    }


def answers(first=0.4):
    probs = [first, *[(1 - first) / 3] * 3]
    return {
        "probs": probs,
        "logits": [1.0, 2.0, 3.0, 4.0],
        "lens": [probs] * (LAYERS + 1),
        "mass": [0.01] * LAYERS + [0.9],
        "next": [["World", 0.4]] * 6,
        "top": [[[HOSTILE, 0.2]] * 5] * (LAYERS + 1),
        "heads": [[0.1, -0.2, 0.3]] * LAYERS,
        "contrast": "World against the rest",
        "ms": 1,
    }


def flow(size):
    row = [0.5] * LAYERS
    maps = base64.b64encode(bytes([200]) * (LAYERS * size * (size + 1) // 2)).decode()
    return {"values": [row] * 3, "random": row, "top": 1.0, "maps": maps, "t": size, "ms": 1}


class Explorer:
    def __init__(self, page):
        self.page = page

    def say(self, *messages):
        for message in messages:
            self.page.evaluate("message => window.say(message)", message)
        self.page.evaluate(DRAWN)

    def measured(self, gen=1, **parts):
        self.say(*({"kind": "part", "gen": gen, "part": k, "data": v} for k, v in parts.items()))

    def last(self):
        """The newest message without what every message has."""
        found = self.page.evaluate("window.sent.at(-1)")
        expected = {
            "layer",
            "token",
            "mode",
            "calibrated",
            "board",
            "pair",
            "prior",
            "heads",
            "rows",
        }
        assert set(found.pop("look")) == expected
        assert found.pop("seq") == self.page.evaluate("window.sent.length")
        return found

    def text(self, selector):
        self.page.evaluate(DRAWN)  # what a key or the mouse has changed, too
        return self.page.locator(selector).first.inner_text()

    def board(self, gen, rows=24, tried=None):
        """What was measured of the first queries: they lose the more, the later they come."""
        measured = [
            {"q": q, "before": [0.9, q % 4], "now": [0.9 - q / 40, q % 4 if q < 6 else 3]}
            for q in range(rows)
        ]
        message = {"kind": "board", "gen": gen, "of": 24, "rows": measured}
        self.say({**message, **({"done": True, "tried": tried} if tried else {})})

    def drag(self, start, stop, track=".ex-g-flow"):
        """From the middle of a layer's column to another's, by the cursor's own place."""
        columns = self.page.evaluate(
            "() => [...document.querySelectorAll('.ex-g-words rect')].map(own => own.getBoundingClientRect().x + 6)"
        )
        height = self.page.locator(track).bounding_box()["y"] + 4
        mouse = self.page.mouse
        mouse.move(columns[start + 1], height)
        mouse.down()
        mouse.move(columns[stop + 1], height, steps=3)
        mouse.up()


@pytest.fixture
def explorer(browser):
    made, errors = [], []

    def make(width=1440, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, **options
        )
        made.append(context)
        page = context.new_page()
        page.on("console", lambda own: errors.append(own.text) if own.type == "error" else None)
        page.on("pageerror", lambda own: errors.append(str(own)))
        script = theme.module().replace("</script", "<\\/script")
        page.set_content(SHELL.replace("/*css*/", theme.css()).replace("/*js*/", script))
        own = Explorer(page)
        own.say(state())
        own.measured(now=answers(), flow=flow(len(state()["tokens"])))
        return own

    yield make
    for context in made:
        context.close()
    assert errors == []


def test_gestures_in_the_prompt(explorer):
    own = explorer()
    page, words = own.page, own.page.locator(".ex-token.ex-label_word")
    words.nth(1).click()
    assert own.last() == {"do": "flip", "demo": 1}
    own.say(state(2, shown=(0, 2), started=False, undo=True))
    assert own.text(".ex-truth") == "Sports"
    page.locator(".ex-token.ex-demo_text").first.click()
    assert "Measuring" not in own.text(".ex-prompt-view .ex-say")
    page.keyboard.press("Alt+ArrowDown")
    assert own.last() == {"do": "move", "demo": 0, "by": 1}
    page.keyboard.press("e")
    page.keyboard.type("u r 0")
    page.keyboard.press("Enter")
    assert own.last() == {"do": "edit", "demo": 0, "text": "u r 0"}
    page.keyboard.press("Delete")
    assert own.last() == {"do": "drop", "demo": 0}
    page.keyboard.press("u")
    assert own.last() == {"do": "undo"}


def test_ranges_bars_and_heads(explorer):
    own = explorer()
    own.drag(1, 3)
    assert own.last() == {"do": "range", "what": "isolate", "from": 1, "to": 3}
    change = {
        "what": "isolate",
        "layers": [1, 3],
        "demo": None,
        "token": None,
        "heads": [],
        "factor": None,
        "words": "x",
    }
    own.say(state(2, changes=[change], started=False))
    own.measured(2, now=answers())
    box = own.page.locator(".ex-handle[data-end=end]").bounding_box()
    own.page.mouse.move(box["x"] + 8, box["y"] + 8)
    own.page.mouse.down()
    own.page.mouse.move(box["x"] + 80, box["y"] + 8)
    assert own.last() == {"do": "stretch", "change": 0, "from": 1, "to": 4, "over": False}
    box = own.page.locator(".ex-handle[data-end=end]").bounding_box()
    own.page.mouse.move(box["x"] + 200, box["y"] + 8)
    own.page.mouse.up()
    assert own.last() == {"do": "stretch", "change": 0, "from": 1, "to": 5, "over": True}
    own.page.locator(".ex-tracks").focus()
    for name in ("Home", "Shift+ArrowRight", "Enter"):
        own.page.keyboard.press(name)
    assert own.last() == {"do": "range", "what": "isolate", "from": 0, "to": 1}
    for name in ("ArrowDown", "Delete"):
        own.page.keyboard.press(name)
    assert own.last() == {"do": "remove", "change": 0}
    for name in ("ArrowDown", "x"):
        own.page.keyboard.press(name)
    assert own.last() == {"do": "head", "layer": 1, "head": 0}


def test_a_change_of_a_token_asks_for_the_token_first(explorer):
    own = explorer()
    before = own.page.evaluate("window.sent.length")
    own.page.get_by_role("button", name="isolate the token").click()
    own.drag(1, 3)
    assert own.page.evaluate("window.sent.length") == before
    WORDS(own.text(".ex-reading"), "choose_a_token")


def test_figures_of_an_older_state_are_pale_and_late_ones_are_dropped(explorer):
    own = explorer()
    own.say(state(2, started=False))
    heads = "document.querySelector('.ex-g-heads').classList.contains('ex-stale')"
    own.measured(1, now=answers(0.9))
    assert own.page.evaluate(heads)
    assert "0.90" not in own.text(".ex-answers")
    own.measured(2, now=answers(0.8))
    assert not own.page.evaluate(heads)
    assert "0.80" in own.text(".ex-answers")
    columns = own.page.locator(".ex-answers thead th").all_inner_texts()
    assert columns[1:] == ["✓ World", "Sports", "Business", "Technology"]


def test_a_set_is_shown_with_intervals_until_the_experiment_changes(explorer):
    own = explorer()
    WORDS.exactly(own.text(".ex-pill"), "an_example", "n = 1")
    own.page.get_by_role("button", name="Intervals").click()
    assert own.last() == {"do": "over_all"}
    own.say({"kind": "progress", "gen": 1, "share": 0.5, "words": "12 of 24"})
    own.page.get_by_role("button", name="Stop").click()
    assert own.last() == {"do": "stop"}
    line = [0.5] * (LAYERS + 1)
    side = {
        "accuracy": [0.5, 0.3, 0.7],
        "lens": line,
        "low": line,
        "high": line,
        "shares": [0.25] * 4,
    }
    found = {"n": 24, "before": side, "now": side, "same": [1, 1, 1], "difference": [0, 0, 0]}
    own.say(
        {
            "kind": "set",
            "gen": 1,
            "data": {**found, "sentence": "No change.", "warning": "5 states"},
        }
    )
    assert own.text(".ex-pill") == "n = 24 · 95 % intervals"
    assert "0.50 [0.30, 0.70]" in own.text(".ex-intervals")
    own.say(state(2, shown=(1, 1), started=False))
    WORDS.exactly(own.text(".ex-pill"), "an_example", "n = 1")


def test_errors_and_lost_connections_say_so_and_keep_the_page(explorer):
    own = explorer()
    own.page.keyboard.press("Tab")
    own.page.keyboard.press("f")
    own.say({"kind": "error", "gen": 1, "text": "Impossible: <b>why</b>"})
    assert own.text(".ex-prompt-view .ex-say") == "Impossible: <b>why</b>"
    own.page.evaluate("window.link('lost')")
    before = own.page.evaluate("window.sent.length")
    own.page.keyboard.press("f")
    own.say()
    WORDS.exactly(own.text(".ex-status"), "not_connected")
    assert own.page.evaluate("window.sent.length") == before
    own.page.evaluate("window.link('open')")
    own.say()
    assert own.text(".ex-status") == ""


def test_hostile_texts_are_texts(explorer):
    own = explorer()
    demos = [{"text": HOSTILE + "x" * 3000, "shown": 0, "true": 1}]
    own.say(state(2, demos=demos, labels=[HOSTILE, "b", "c", "d"], note=HOSTILE))
    own.measured(2, now=answers())
    own.say({"kind": "code", "code": HOSTILE}, {"kind": "error", "gen": 2, "text": HOSTILE})
    assert own.page.evaluate("window.hacked") is None
    assert own.page.locator(".icl-explore img").count() == 0
    assert own.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [390, 768, 900, 1008, 1024, 1440, 1600])
def test_nothing_overflows_and_no_legend_is_cut(explorer, width):
    own = explorer(width)
    lens = answers()["lens"]
    own.say(state(2, shown=(1, 1), started=False, changes=[]))
    own.measured(
        2,
        now=answers(),
        ref=answers(0.5),
        pair={"true": lens, "false": lens},
        prior={"zero": lens, "mean": lens, "calibrated": lens},
        flow=flow(len(state()["tokens"])),
        refflow=flow(len(state()["tokens"])),
    )
    own.board(2)
    beyond = """() => [...document.querySelectorAll('.icl-explore *')].filter(own => !own.closest('svg, h3, .ex-unseen')
        && own.getBoundingClientRect().right > innerWidth + 1).map(own => own.className)"""
    assert own.page.evaluate("document.documentElement.scrollWidth") == width
    assert own.page.evaluate(beyond) == []
    # A legend above its track neither leaves it at the right nor hangs into the drawing below.
    cut = """() => [...document.querySelectorAll('.ex-key, .ex-legend span')].filter(own =>
        own.scrollWidth > own.clientWidth + 1).map(own => own.textContent)"""
    assert own.page.evaluate(cut) == []
    foot = "Math.max(...[...document.querySelectorAll('.ex-track-head')].slice(0, 1).map(own => own.getBoundingClientRect().bottom))"
    line = own.page.locator(".ex-g-grid line").first.bounding_box()["y"]
    assert own.page.evaluate(foot) <= line


@pytest.mark.parametrize("width", [900, 1008, 1440])
def test_the_answer_and_the_layers_are_seen_together_after_any_number_of_demonstrations(
    explorer, width
):
    own = explorer(width)
    demos = [{"text": f"text {i} " * 12, "shown": 0, "true": 0} for i in range(30)]
    own.say(state(2, demos=demos))
    own.measured(2, now=answers())
    answer, layers = (
        own.page.locator(name).bounding_box() for name in (".ex-answer-view", ".ex-layers-view")
    )
    assert answer["y"] + answer["height"] <= 900
    assert layers["y"] < 200
    assert layers["x"] > answer["x"] + answer["width"]
    # The query is seen without scrolling, at the foot of the box of demonstrations.
    box, query = (
        own.page.locator(name).bounding_box()
        for name in (".ex-prompt", '.ex-block[data-kind="query"]')
    )
    assert query["y"] + query["height"] <= box["y"] + box["height"] + 1


def test_in_one_column_the_answer_stays_while_layers_scroll(explorer):
    own = explorer(390)
    own.page.locator(".ex-reading").scroll_into_view_if_needed()
    answer = own.page.locator(".ex-answer-view").bounding_box()
    assert answer["y"] == 0
    assert answer["height"] < 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_words_of_controls_are_seen_in_every_state(explorer, scheme):
    own = explorer(color_scheme=scheme)
    own.say(state(2, undo=True, redo=True, started=False))
    own.measured(2, now=answers())
    assert weak(own.page, ".icl-explore button:not(.ex-token)") == []


def test_the_lens_has_a_line_per_class_pale_where_label_words_hold_little(explorer):
    own = explorer()
    keys = ".ex-track-head:has(.ex-segmented) .ex-key"
    assert own.page.locator(keys).all_inner_texts()[:4] == [
        "✓ World",
        "Sports",
        "Business",
        "Technology",
    ]
    assert "< 10 %" in own.page.locator(".ex-track-head h3", has_text="read here").inner_text()
    opacities = (
        "[...document.querySelectorAll('.ex-g-now path')].map(own => own.getAttribute('opacity'))"
    )
    assert set(own.page.evaluate(opacities)) == {"0.22"}  # no piece between two entries of weight
    lens = answers()["lens"]
    own.measured(prior={"zero": lens, "mean": lens, "calibrated": [[0.7, 0.1, 0.1, 0.1]] * 7})
    assert "✓ zero-shot" in own.page.locator(keys).all_inner_texts()
    own.page.get_by_role("button", name="calibrated").last.click()
    own.say()
    assert "✓ zero-shot" not in own.page.locator(keys).all_inner_texts()
    sent = own.page.evaluate("window.sent.at(-1)")
    assert sent["do"] == "look"
    assert sent["look"]["prior"]


def test_a_strip_shows_every_query_before_and_after(explorer):
    own = explorer()
    own.say(state(2, shown=(1, 1), started=False))
    own.board(2, rows=12)
    WORDS(own.text(".ex-set-view .ex-note"), "half_measured")
    own.board(2, tried=[2, 3])
    WORDS(own.text(".ex-set-view .ex-note"), "all_measured")
    box = own.page.locator(".ex-queries").bounding_box()
    own.page.mouse.click(box["x"] + box["width"] - 4, box["y"] + 30)
    assert own.last() == {"do": "query", "number": 23}
    own.page.get_by_role("button", name="by change").click()
    own.say()
    own.page.mouse.click(box["x"] + 30, box["y"] + 30)
    assert own.last() == {"do": "query", "number": 23}  # the one that lost most comes first
    own.page.locator(".ex-set-view select").select_option("2")
    own.say()
    own.page.locator(".ex-queries").focus()
    own.page.keyboard.press("ArrowRight")
    assert own.last()["number"] % 4 == 2


def test_three_scripts_read_as_their_readers_read_them(explorer):
    own = explorer()
    words = [
        ("Text:", "format"),
        (" ", "demo_text"),
        ("东", "demo_text"),
        ("", "demo_text"),
        ("", "demo_text"),
        ("京", "demo_text"),
        (" مر", "demo_text"),
        ("حبا", "demo_text"),
        (" नम", "demo_text"),
        ("स्ते", "demo_text"),
        ("\nAnswer:", "format"),
        (" World", "label_word"),
        ("\n", "format"),
    ]
    shown = [{"t": text, "r": role, "d": 0} for text, role in words]
    rest = [{"t": t["t"], "r": t["r"], "d": None} for t in tokens([], "q")]
    demos = [{"text": "x", "shown": 0, "true": 0}]
    own.say(state(2, demos=demos, tokens=shown + rest))
    assert "\ufffd" not in own.text(".ex-text")
    right = 'i => document.querySelector(`.ex-token[data-i="${i}"]`).getBoundingClientRect().right'
    first, second = (own.page.evaluate(right, i) for i in (6, 7))
    assert first > second  # the first token of the Arabic word ends it at the right
    name = own.page.locator('.ex-token[data-i="3"]').get_attribute("aria-label")
    assert name.startswith("part of 东")
    # A label word that begins without a space does not look like one that begins with it.
    assert own.page.locator('.ex-token[data-i="11"] .ex-lead').count() == 1
    own.say(state(3, demos=demos, tokens=[{**t, "t": t["t"].strip()} for t in shown] + rest))
    assert own.page.locator('.ex-token[data-i="11"] .ex-lead').count() == 0


def test_the_first_minute_is_three_steps_that_can_be_skipped(explorer):
    kinds = [{"what": what, "words": what, "needs": None} for what in ("isolate", "patch")]
    own = explorer()
    own.say(state(2, kinds=kinds))
    own.measured(2, now=answers(0.4))
    steps, show = own.page.locator(".ex-tour"), own.page.get_by_role("button", name="Show me")
    own.page.get_by_role("button", name="Tour").click()
    show.click()
    assert own.last() == {"do": "flip", "demo": 0}
    own.say(state(3, shown=(1, 1), kinds=kinds, started=False))
    own.measured(3, now=answers(0.1))
    assert "0.40 → 0.10" in own.text(".ex-tour")
    own.page.get_by_role("button", name="Next", exact=True).click()
    show.click()
    assert own.last() == {"do": "range", "what": "patch", "from": 1, "to": 2}
    own.page.get_by_role("button", name="Skip").click()
    own.say()
    assert not steps.is_visible()
    own.page.keyboard.press("f")  # the button that had the focus is gone; keys work on
    assert own.last() == {"do": "flip_all"}
    own.page.get_by_role("button", name="Tour").click()
    own.say()
    assert steps.is_visible()


def test_two_keys_reach_the_second_label_word(explorer):
    own = explorer()
    own.page.locator(".icl-explore").focus()  # as the page alone does at its start
    for name in ("l", "l", "Enter"):
        own.page.keyboard.press(name)
        own.say()
    assert own.last() == {"do": "flip", "demo": 1}


def test_keys_stay_inside_and_the_theme_follows_the_notebook(explorer):
    own = explorer(color_scheme="light")
    script = "() => { window.out = []; document.addEventListener('keydown', own => window.out.push(own.key)); }"
    own.page.evaluate(script)
    own.page.locator(".ex-tracks").focus()
    own.page.keyboard.press("d")
    own.page.keyboard.press("Enter")
    assert own.page.evaluate("window.out") == []
    dark = "document.querySelector('.icl-explore').classList.contains('dark')"
    assert not own.page.evaluate(dark)
    own.page.evaluate("() => { document.body.dataset.jpThemeLight = 'false'; }")
    own.say()
    assert own.page.evaluate(dark)
