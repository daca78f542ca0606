"""The map of heads alone: its modes and scales, previews, groups of heads, and ways to a head by finger and keys."""

import base64
import json

import pytest

from tests.browser import test_explore_page as alone
from tests.browser.chromium import RESTED, serious
from tests.browser.test_explore_page import HEADS, LAYERS, answers, flow, state
from tests.said import Words

WORDS = Words(__file__)

explorer = alone.explorer

SIZE = len(state()["tokens"])
TARGET = SIZE - 1


def attention(value=0.5):
    """Values of a mode: the larger, the later the layer and head."""
    cells = LAYERS * HEADS
    return [
        [value * (layer * HEADS + head + 1) / cells for head in range(HEADS)]
        for layer in range(LAYERS)
    ]


def shown(own, mode="labels", value=0.5, gen=1):
    own.say(
        {
            "kind": "part",
            "gen": gen,
            "part": "heads",
            "data": {"mode": mode, "values": attention(value)},
        }
    )


def rows(own, token=TARGET, gen=1):
    """Every head attends to one token: head `h` of layer `l` to token `l`."""
    codes = bytearray(LAYERS * HEADS * (token + 1))
    for cell in range(LAYERS * HEADS):
        codes[cell * (token + 1) + min(cell // HEADS, token)] = 255
    maps = base64.b64encode(bytes(codes)).decode()
    own.say(
        {
            "kind": "part",
            "gen": gen,
            "part": "rows",
            "data": {"token": token, "t": SIZE, "maps": maps},
        }
    )


def place(own, layer, head):
    svg = own.page.locator("svg[data-places]")
    svg.scroll_into_view_if_needed()
    box, at = svg.bounding_box(), json.loads(svg.get_attribute("data-places"))
    x = box["x"] + at["first"] + layer * at["column"]
    return x, box["y"] + at["heads"] + (head + 0.5) * at["cell"]


def choose(own, mode):
    own.page.get_by_role("group", name="What the map of heads shows").get_by_text(mode).click()


def zeroed(*heads):
    change = {"what": "heads", "layers": [0, 0], "demo": None, "token": None, "factor": None}
    return {**change, "heads": [*map(list, heads)], "words": f"{len(heads)} heads set to zero"}


def scale(own):
    own.say()
    return own.page.locator(".ex-head-scale [role=img]").get_attribute("aria-label")


def arcs(own):
    own.page.wait_for_timeout(200)
    own.page.evaluate(RESTED)
    own.say()
    return own.page.locator(".ex-arc").count()


def test_a_mode_is_asked_for_without_a_new_state_and_keeps_its_scale(explorer):
    own = explorer()
    WORDS.exactly(scale(own), "signed_scale")
    choose(own, "to label words")
    sent = own.page.evaluate("window.sent.at(-1)")
    assert (sent["do"], sent["look"]["heads"]) == ("look", "labels")
    assert "measuring" in own.text(".ex-top") or "not measured" in own.text(".ex-top")
    shown(own, value=0.5)
    WORDS.exactly(scale(own), "scale")
    own.say(state(2, started=False))
    shown(own, value=0.2, gen=2)
    WORDS.exactly(scale(own), "scale")
    shown(own, value=0.75, gen=2)
    WORDS.exactly(scale(own), "wider_scale")
    choose(own, "logit")
    WORDS.exactly(scale(own), "signed_scale")


def test_change_is_now_minus_the_reference(explorer):
    own = explorer()
    moved = answers()
    moved["heads"] = [[0.1, -0.2, 0.3]] * (LAYERS - 1) + [[0.1, -0.6, 0.4]]
    own.say(state(2, started=False))
    own.measured(2, now=moved, ref=answers())
    choose(own, "now − start")
    WORDS.exactly(scale(own), "change_scale")
    assert own.text(".ex-chip").split() == [f"{LAYERS - 1}.1", "−0.40"]


def test_a_head_under_the_pointer_is_previewed_and_nothing_else_changes(explorer):
    own = explorer()
    x, y = place(own, 3, 1)
    own.page.mouse.move(x, y)
    sent = own.page.evaluate("window.sent.at(-1)")
    assert (sent["do"], sent["look"]["rows"]) == ("look", True)
    count = own.page.evaluate("window.sent.length")
    rows(own)
    assert arcs(own) == 1
    assert "head 3.1" in own.text(".ex-prompt-view .ex-say")
    own.page.mouse.move(*place(own, 4, 2))
    assert arcs(own) == 1
    assert "head 4.2" in own.text(".ex-prompt-view .ex-say")
    pressed = own.page.locator(".ex-prompt-view [aria-pressed=true]")
    assert pressed.inner_text() == "Roles"
    own.page.mouse.move(5, 5)
    assert arcs(own) == 0
    assert pressed.inner_text() == "Roles"
    assert own.page.evaluate("window.sent.length") == count
    own.page.mouse.click(x, y)
    assert own.last() == {"do": "head", "layer": 3, "head": 1}
    own.page.keyboard.down("Shift")
    own.page.mouse.click(x, y)
    own.page.keyboard.up("Shift")
    assert own.last() == {"do": "attend", "layer": 3, "head": 1}


def test_keys_preview_and_choose_the_top_heads(explorer):
    own = explorer()
    shown(own)
    choose(own, "to label words")
    own.page.locator(".ex-tracks").focus()
    own.page.keyboard.press("ArrowDown")
    rows(own)
    assert arcs(own) == 1
    WORDS.exactly(own.text(".ex-reading"), "reading")
    own.page.keyboard.press("Escape")
    assert arcs(own) == 0
    own.page.keyboard.press("1")
    assert own.last() == {"do": "attend", "layer": LAYERS - 1, "head": HEADS - 1}
    own.page.keyboard.press("z")
    best = [[5, 2], [5, 1], [5, 0], [4, 2], [4, 1]]
    assert own.last() == {"do": "heads", "heads": best}
    own.page.keyboard.press("m")
    assert own.page.evaluate("window.sent.at(-1).look.heads") == "texts"


def test_zeroed_heads_stay_chips_and_stand_beside_random_ones(explorer):
    own = explorer()
    own.page.get_by_role("button", name="Zero these five").click()
    best = own.last()["heads"]
    own.say(state(2, changes=[zeroed(*best)], started=False))
    after = answers()
    after["heads"] = [
        [0 if [layer, head] in best else 0.3 for head in range(HEADS)] for layer in range(LAYERS)
    ]
    own.measured(2, now=after)
    random = [0.38, 0.4, 0.36, 0.41, 0.4]
    own.measured(2, null={"count": 5, "without": 0.4, "zeroed": 0.1, "random": random})
    WORDS.exactly(own.text(".ex-versus"), "outside")
    own.measured(2, null={"count": 5, "without": 0.4, "zeroed": 0.37, "random": random})
    assert "within" in own.text(".ex-versus")
    own.page.get_by_role("button", name="Restore these five").click()
    assert own.last() == {"do": "heads", "heads": best}
    own.say(state(3))
    assert own.page.locator(".ex-versus").is_hidden()


def test_every_head_in_small_and_the_cursors_layer_as_strips(explorer):
    own = explorer()
    own.page.get_by_role("button", name="each head").click()
    assert own.page.evaluate("window.sent.at(-1).look.rows") is True
    rows(own)
    own.say()
    strips = own.page.locator(".ex-strip")
    assert strips.count() == HEADS
    layer = own.page.evaluate("window.sent.at(-1).look.layer")
    assert strips.first.inner_text().startswith(f"{layer}.0")
    strips.nth(1).click()
    assert own.last() == {"do": "attend", "layer": layer, "head": 1}
    assert own.text(".ex-head-scale").split("\n")[0] == "demonstration text"


def test_a_finger_chooses_a_head_and_the_bar_acts(explorer):
    own = explorer(390, has_touch=True)
    own.page.touchscreen.tap(*place(own, 2, 1))
    own.say()
    assert own.page.evaluate("window.sent.filter(own => own.do != 'look').length") == 0
    bar = own.page.locator(".ex-head-bar")
    assert bar.get_attribute("aria-label") == "Head 2.1"
    bar.get_by_role("button", name="Same head, next layer").click()
    own.say()
    assert bar.get_attribute("aria-label") == "Head 3.1"
    bar.get_by_role("button", name="Zero").click()
    assert own.last() == {"do": "head", "layer": 3, "head": 1}
    bar.get_by_role("button", name="Attention").click()
    assert own.last() == {"do": "attend", "layer": 3, "head": 1}


def test_attention_keeps_the_colours_chosen_and_returns_to_nobody(explorer):
    own = explorer()
    maps = base64.b64encode(bytes([128]) * (SIZE * (SIZE + 1) // 2)).decode()
    part = {"layer": 2, "head": 1, "maps": maps, "t": SIZE}
    own.measured(attention=part)
    pressed = own.page.locator(".ex-prompt-view [aria-pressed=true]")
    assert pressed.inner_text() == "Roles"  # another page, or this one before it was reloaded
    own.page.keyboard.down("Shift")
    own.page.mouse.click(*place(own, 2, 1))
    own.page.keyboard.up("Shift")
    own.measured(attention=part)
    assert pressed.inner_text() == "Reads"
    own.page.get_by_role("button", name="Roles").click()
    count = own.page.evaluate("window.sent.length")
    own.say(state(2, shown=(1, 1), started=False))
    own.measured(2, now=answers(), attention=part)
    assert pressed.inner_text() == "Roles"
    assert own.page.evaluate("window.sent.length") == count
    own.page.get_by_role("button", name="Read by").click()
    own.say()
    own.page.locator(".ex-source").click()
    own.say(state(3, started=False))
    own.measured(3, now=answers(), attention=part)
    assert own.page.locator(".ex-source").count() == 0


@pytest.mark.parametrize("width", [390, 768, 1008, 1024, 1440])
@pytest.mark.parametrize("mode", ["logit", "labels", "each"])
def test_the_legend_is_whole_at_any_width(explorer, width, mode):
    own = explorer(width)
    own.measured(flow=flow(SIZE))
    own.page.locator(".ex-tracks").focus()
    if mode == "each":
        own.page.keyboard.press("v")
        rows(own)
    elif mode == "labels":
        own.page.keyboard.press("m")
        shown(own)
    own.say()
    found = own.page.evaluate(
        """() => {
        const inside = (own, frame) => own.left >= frame.left - 1 && own.right <= frame.right + 1 && own.top >= frame.top - 1 && own.bottom <= frame.bottom + 1;
        const title = document.querySelector(".ex-heads-title"), map = document.querySelector(".ex-g-heads").getBoundingClientRect();
        const parts = [...title.querySelectorAll("button, select, .ex-key")];
        return { inside: parts.every(own => inside(own.getBoundingClientRect(), title.getBoundingClientRect())),
                 whole: parts.every(own => own.scrollWidth <= own.clientWidth + 1 || own.tagName === "SELECT"),
                 above: title.getBoundingClientRect().bottom <= map.top + 1, keys: title.querySelectorAll(".ex-key").length };
    }"""
    )
    assert found["keys"] >= 1
    assert (found["inside"], found["whole"], found["above"]) == (True, True, True), found
    assert own.page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(explorer, scheme):
    own = explorer(color_scheme=scheme)
    own.page.evaluate("() => { document.title = 'Explorer'; }")
    best = [[5, 2], [5, 1]]
    own.say(state(2, changes=[zeroed(*best)], started=False))
    random = {"count": 2, "without": 0.4, "zeroed": 0.1, "random": [0.3, 0.4]}
    own.measured(2, now=answers(), ref=answers(), flow=flow(SIZE), null=random)
    own.page.locator(".ex-tracks").focus()
    for name in ("v", "m", "ArrowUp"):
        own.page.keyboard.press(name)
    shown(own, gen=2)
    rows(own, gen=2)
    own.page.locator(".ex-strip").first.hover()
    assert own.page.locator(".ex-head-bar").is_visible()
    assert serious(own.page, dark=scheme == "dark") == []
