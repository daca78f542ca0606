"""The explorer in Chromium: scenes a researcher plays, a monkey, hostile texts, a server that dies.

The server runs in this process, so that what is on the screen is compared with the state in Python.
"""

import json
import random
import threading

import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("playwright")
from icl_mech.explorer.over_all import over_all
from tests.browser.chromium import DRAWN
from tests.explorer.cases import (
    OPEN,
    TASK,
    TEXTS,
    model_of,
    opened,
    opened_open,
    opened_texts,
    serving,
)
from tests.patience import milliseconds, seconds, until
from tests.said import Words

WORDS = Words(__file__)

SIZES = {"desk": (1440, 900), "cell": (900, 900), "phone": (390, 844), "wide": (1600, 1000)}

TALK = r"""(() => {
    const Plain = WebSocket;
    window.WebSocket = class extends Plain {
        constructor(...given) {
            super(...given);
            const talk = window.talk = {socket: this, sent: 0, number: 0, asked: null, answered: 0, idle: false};
            this.addEventListener("message", event => {
                const said = JSON.parse(event.data), answer = /^There is no action 'question-(\d+)'/.exec(said.text ?? "");
                if (answer) {
                    talk.answered = Number(answer[1]);
                    event.stopImmediatePropagation();
                } else if (said.kind === "state") talk.idle = false;
                else if (said.kind === "busy") talk.idle = said.part == null;
            });
        }
        send(text) { window.talk.sent += 1; super.send(text); }
        ask(number) { super.send(JSON.stringify({do: `question-${number}`})); }
    };
})()"""
"""Watches what a page and Python say to each other.

A question that Python refuses, which changes nothing, is answered after all that the page sent before it.
"""

SETTLED = """() => {
    const talk = window.talk, root = document.querySelector(".icl-explore");
    if (talk?.socket.readyState !== WebSocket.OPEN) return false;
    if (talk.asked !== talk.sent) {
        talk.asked = talk.sent;
        talk.socket.ask(talk.number += 1);
    }
    const drawn = root.querySelector(".ex-answers tr.ex-now:not(.ex-stale) td, .ex-say.ex-error");
    return talk.answered === talk.number && talk.idle && drawn && !root.querySelector(".ex-status").textContent;
}"""
"""Python has heard everything the page sent, has measured all of it, and the page shows it."""

PLACE = """([what, number]) => {
    const own = document.querySelectorAll(what)[number];
    if (!own?.checkVisibility({visibilityProperty: true}) || own.disabled) return null;
    own.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
    const box = own.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
}"""
"""The middle of something that can be clicked, in view."""


class Screen:
    """A page of a served explorer."""

    def __init__(self, browser, view, server, size="desk", **options):
        width, height = SIZES[size]
        self.view, self.server = view, server
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.add_init_script(TALK)
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.goto(server.url)
        self.settle()

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    @property
    def now(self):
        return self.view.session.history.now

    def settle(self):
        """Wait until the page has drawn all parts of the newest generation."""
        self.page.evaluate("if (window.talk) window.talk.asked = null")
        self.page.wait_for_function(SETTLED, timeout=milliseconds(90))
        assert self.view.session.wanted is None
        self.page.evaluate(DRAWN)

    def click(self, name, **more):
        self.page.get_by_role("button", name=name, **more).first.click()
        self.settle()

    def press(self, keys):
        self.page.keyboard.press(keys)
        self.settle()

    def probabilities(self):
        """Of the row `now`, as they are written."""
        row = self.page.locator(
            ".ex-answers tr", has=self.page.get_by_text("now", exact=True)
        ).first
        return [float(text) for text in row.locator("td").all_inner_texts() if text.strip()]

    def place(self, layer, head=None):
        """Pixels of a layer in the flow track, or of a head."""
        svg = self.page.locator("svg[data-places]")
        box, own = svg.bounding_box(), json.loads(svg.get_attribute("data-places"))
        y = own["flow"] if head is None else own["heads"] + (head + 0.5) * own["cell"]
        return box["x"] + own["first"] + layer * own["column"], box["y"] + y

    def drag(self, first, last):
        """Over layers of the flow track."""
        self.page.mouse.move(*self.place(first))
        self.page.mouse.down()
        self.page.mouse.move(*self.place((first + last) / 2), steps=3)
        self.page.mouse.move(*self.place(last), steps=3)
        self.page.mouse.up()
        self.settle()

    def close(self):
        own = f"http://127.0.0.1:{self.server.port}/", f"ws://127.0.0.1:{self.server.port}/"
        assert self.errors == []
        assert all(url.startswith((*own, "data:")) for url in self.requests)
        self.context.close()


@pytest.fixture
def served(browser):
    view = opened()
    with serving(view) as server:
        yield view, server
    view.close()


@pytest.fixture
def screen(browser, served):
    own = Screen(browser, *served)
    yield own
    own.close()


def as_written(view):
    return [round(own, 2) for own in view.figures()["probs"]]


def test_flip_isolate_zero_add_drop_and_undo_all(screen):
    start, first = screen.now, screen.probabilities()
    assert first == as_written(screen.view)
    screen.page.locator(".ex-label_word").first.click()
    screen.settle()
    assert screen.now.demos[0].shown == (screen.now.demos[0].true + 1) % 3
    assert screen.page.get_by_text(TASK.labels[screen.now.demos[0].true], exact=True).count()
    screen.drag(0, 1)
    assert [(own.what, own.layers) for own in screen.now.changes] == [("isolate", (0, 1))]
    WORDS(screen.page.inner_text(".ex-layers-view"), "isolated", "0–1")
    screen.page.mouse.click(*screen.place(1, 2))
    screen.settle()
    assert screen.now.changes[-1].heads == ((1, 2),)
    assert screen.probabilities() == as_written(screen.view)
    screen.press("a")
    assert len(screen.now.demos) == 4
    screen.page.locator('.ex-block[data-demo="3"]').hover()
    screen.page.keyboard.press("u")
    screen.settle()
    assert len(screen.now.demos) == 3
    for _ in range(3):
        screen.press("u")
    assert screen.now == start
    assert screen.probabilities() == first
    assert screen.page.get_by_role("button", name="Undo").is_disabled()


@pytest.mark.slow
def test_over_all_queries_and_cancel(screen, monkeypatch):
    screen.press("f")
    WORDS(screen.page.inner_text(".ex-header"), "an_example", "n = 1")
    screen.page.get_by_role("button", name="Intervals").click()
    screen.page.locator(".ex-intervals table").wait_for()
    screen.settle()
    text = screen.page.inner_text(".ex-set-view")
    assert "p(true answer)" in text
    WORDS(text, "over_all", "6")
    assert "n = 6 · 95 % intervals" in screen.page.inner_text(".ex-header")
    screen.press("u")
    assert "n = 1" in screen.page.inner_text(".ex-header")
    session, stopped = screen.view.session, threading.Event()
    plain = over_all

    def slow(*args):
        stopped.wait(seconds(60))
        return plain(*args)

    monkeypatch.setattr("icl_mech.explorer.session.over_all", slow)
    screen.press("]")
    screen.page.keyboard.press("a")
    screen.page.keyboard.press("o")
    screen.page.get_by_role("button", name="Stop").click()
    until(lambda: session.wanted is None, 20, "Python to hear of the stop")
    stopped.set()
    screen.settle()
    assert "p(true answer)" not in screen.page.inner_text(".ex-set-view")
    assert screen.view.session.wanted is None


@pytest.mark.slow
def test_the_code_on_the_screen_gives_the_numbers_on_the_screen(screen):
    screen.press("f")
    screen.drag(1, 2)
    screen.page.get_by_role("button", name="Copy as code").click()
    screen.page.wait_for_selector("dialog[open] pre")
    text = screen.page.inner_text("dialog[open] pre")
    lines = [own for own in text.splitlines() if not own.startswith(("model = ", "task = "))]
    found = {"model": model_of(), "task": TASK}
    exec("\n".join(lines), found)  # noqa: S102 - what a reader would do with them
    assert [
        round(own, 2) for own in found["after"].label_probs[0].tolist()
    ] == screen.probabilities()


@pytest.mark.slow
def test_a_reload_and_a_second_page_have_the_same_state(browser, screen):
    screen.press("f")
    screen.press("k")
    before = screen.now
    screen.page.reload()
    screen.settle()
    assert screen.probabilities() == as_written(screen.view)
    other = Screen(browser, screen.view, screen.server)
    assert other.probabilities() == as_written(screen.view)
    assert other.now == before
    assert other.page.get_by_role("button", name="A", exact=True).count() == 1
    other.close()


@pytest.mark.slow
def test_only_by_keyboard(screen):
    page = screen.page
    page.locator(".ex-layers-view [tabindex='0']").first.focus()
    for keys in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(keys)
    screen.settle()
    assert [(own.what, own.layers) for own in screen.now.changes] == [("isolate", (0, 1))]
    page.keyboard.press("Delete")
    screen.press("u")
    assert screen.view.session.history.past


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_any_width(browser, served, size, scheme):
    own = Screen(browser, *served, size=size, color_scheme=scheme)
    wide = own.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    own.close()


HOSTILE = (
    "<script>document.title='bad'</script>",
    "<img src=x onerror=\"document.title='bad'\">",
    "\u202eright to left \u202c \u0645\u0631\u062d\u0628\u0627",
    "a" * 3000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=["script", "image", "direction", "long"])
def test_hostile_texts_stay_texts(screen, text):
    screen.view.do("edit", demo=0, text=text[:400])
    screen.settle()
    assert screen.page.title() != "bad"
    assert screen.page.locator(".icl-explore script, .icl-explore img").count() == 0
    assert screen.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_at_the_same_address(browser):
    view = opened()
    with serving(view) as server:
        own = Screen(browser, view, server)
        own.press("f")
        state = own.now
    own.page.get_by_text("not connected").first.wait_for()
    own.page.keyboard.press("f")
    with serving(view, port=server.port, token=server.token):
        own.settle()
        assert own.now == state
        own.press("f")
        assert own.now.all_true
    own.context.close()
    view.close()


@pytest.fixture
def open_screen(browser):
    view = opened_open()
    with serving(view) as server:
        own = Screen(browser, view, server)
        yield own
        own.close()
    view.close()


def shown(screen):
    """What stands in the row `now`, by the heading of its column."""
    names = screen.page.locator(".ex-answers thead th").all_inner_texts()[1:]
    return dict(zip(names, screen.probabilities(), strict=True))


@pytest.mark.slow
def test_open_answers_flip_type_over_all_and_code(open_screen):
    screen, page = open_screen, open_screen.page
    right, taught = screen.now.query.words
    start, first = screen.now, shown(screen)
    assert page.get_by_role("button", name="calibrated").count() == 0
    assert [*first][:2] == [f"✓ {right}", f"✗ {taught}"]
    screen.click("Flip all answers")
    assert not any(demo.shown == demo.true for demo in screen.now.demos)
    struck = page.locator(".ex-truth").all_inner_texts()
    assert struck == [demo.words[0] for demo in start.demos]
    after, probs = shown(screen), screen.view.figures()["probs"]
    assert [after[f"✓ {right}"], after[f"✗ {taught}"]] == [round(own, 2) for own in probs[:2]]
    place = 1 + sum(own > probs[0] for own in probs)
    said = page.inner_text(".ex-rank")
    assert ("answer likeliest" if place == 1 else f"{place}") in said
    assert "of 8 choices" in said
    page.locator(".ex-label_word").first.click()
    assert (
        page.locator(".ex-menu [aria-checked='true']").inner_text().strip()
        == start.demos[0].words[1]
    )
    for key in ("ArrowDown", "u", "f"):  # keys are letters in the field
        page.keyboard.press(key)
    page.locator(".ex-menu input").fill("Output")
    screen.press("Enter")
    assert screen.now.demos[0].words[screen.now.demos[0].shown] == "Output"
    rank = "() => document.querySelector('.ex-rank').textContent.includes('of 9 choices')"
    page.wait_for_function(rank)  # its choices are measured anew
    page.get_by_role("button", name="Intervals").click()
    page.locator(".ex-intervals table").wait_for()
    text = page.inner_text(".ex-set-view")
    assert "right answer" in text
    assert "answers given" not in text
    screen.settle()
    page.get_by_role("button", name="this prompt").click()
    page.get_by_role("button", name="Copy as code").click()
    page.wait_for_selector("dialog[open] pre")
    lines = page.inner_text("dialog[open] pre").splitlines()
    found = {"model": model_of(), "task": OPEN}
    exec("\n".join(own for own in lines if not own.startswith(("model = ", "task = "))), found)  # noqa: S102 - as a reader
    assert found["after"].label_probs[0].tolist() == pytest.approx(
        screen.view.figures()["probs"], abs=1e-3
    )
    assert list(found["prompts"][0].labels[:2]) == [right, taught]


LABELLED = [
    "Flip all",
    "+ Add",
    "calibrated",
    "Intervals",
    "Tour",
    "Make it a finding",
    "true | false",
    "to label words",
]
"""Controls of label words, demonstrations and right answers."""


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_free_texts_are_read_changed_and_edited(browser, size):
    view = opened_texts()
    with serving(view) as server:
        screen = Screen(browser, view, server, size)
        page = screen.page
        for name in LABELLED:
            assert not page.get_by_role("button", name=name).filter(visible=True).count(), name
        assert "".join(page.locator(".ex-token").all_inner_texts()) == TEXTS[0]
        assert [*shown(screen).values()][:2] == as_written(view)
        page.locator(".ex-token").nth(6).click()
        page.evaluate(DRAWN)
        assert page.inner_text(".ex-prompt-view .ex-say").startswith("Saliency, layer")
        assert page.locator(".ex-arc").count() > 0
        page.locator(".ex-tracks").press("Enter")  # hides the span of the token
        screen.settle()
        assert [(own.what, own.demo) for own in screen.now.changes] == [("span", 0)]
        assert page.locator(".ex-hidden").count() > 3
        assert [*shown(screen).values()][:2] == as_written(view)
        screen.click("Next query")
        assert (screen.now.query.number, screen.now.changes) == (1, ())
        page.locator(".ex-token").nth(3).press("e")
        own = f"{TEXTS[2]} it"
        page.locator(".ex-editor textarea").fill(own)
        page.keyboard.press("Enter")
        screen.settle()
        assert screen.now.query.text == own
        screen.press("a")
        screen.press("f")
        screen.press("o")
        assert not page.locator(".ex-error").filter(visible=True).count()
        screen.close()
    view.close()


@pytest.mark.slow
def test_a_query_of_ones_own_with_an_open_answer(open_screen):
    screen, page = open_screen, open_screen.page
    page.locator('.ex-block[data-kind="query"]').hover()
    page.locator('.ex-block[data-kind="query"] .ex-tools button').click()
    page.locator(".ex-editor input").fill("Input")
    page.locator(".ex-editor textarea").fill("what is it")
    screen.press("Enter")
    assert screen.now.query.words == ("Input",)
    assert "own query" in page.inner_text(".ex-query")
    assert next(iter(shown(screen))) == "✓ Input"
    assert page.locator(".ex-answers .ex-taught").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", ["<script>document.title='bad'</script>", "\u202eleft", "a" * 200])
def test_hostile_answers_stay_texts(open_screen, text):
    simple = next(own for own in open_screen.view.session.asker.stage.queries if not own.also)
    open_screen.view.do("query", number=simple.number).answer(0, text)
    open_screen.settle()
    page = open_screen.page
    page.locator(".ex-label_word").first.click()
    assert page.title() != "bad"
    assert page.locator(".icl-explore script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


STEPS = 300

KEYS = "urkfa[]0"


def monkey(rng, screen):
    """Something a hand that knows nothing would do."""
    page = screen.page
    kind = rng.choice(["key", "key", "label", "token", "head", "arrow", "button", "drag"])
    if kind == "key":
        page.keyboard.press(rng.choice(KEYS))
    elif kind == "arrow":
        page.keyboard.press(
            rng.choice(["ArrowLeft", "ArrowRight", "Shift+ArrowRight", "Enter", "Escape", "Tab"])
        )
    elif kind == "head":
        page.mouse.click(*screen.place(rng.randrange(3), rng.randrange(4)))
    elif kind == "drag":
        box = page.locator(".ex-layers-view svg").first.bounding_box()
        page.mouse.move(
            box["x"] + rng.random() * box["width"], box["y"] + rng.random() * box["height"]
        )
        page.mouse.down()
        page.mouse.move(
            box["x"] + rng.random() * box["width"], box["y"] + rng.random() * box["height"], steps=2
        )
        page.mouse.up()
    else:
        what = {
            "label": ".ex-label_word",
            "token": ".ex-token",
            "head": "[data-head]",
            "button": ".ex-left button, .ex-right button",
        }
        count = page.locator(what[kind]).count()
        if count and (middle := page.evaluate(PLACE, [what[kind], rng.randrange(count)])):
            page.mouse.click(*middle)  # whatever is there by now


@pytest.mark.slow
def test_three_hundred_actions_of_a_monkey(screen):
    import resource

    rng, session = random.Random(4), screen.view.session
    start, first = screen.now, screen.view.figures().copy()
    memory = None
    for step in range(STEPS):
        monkey(rng, screen)
        if step % 20 == 0:
            screen.settle()
            asker = session.asker
            import icl_mech as icl

            prompts = asker.prompts(screen.now)
            found = icl.predict(
                model_of(),
                prompts,
                interventions=asker.changes(screen.now, prompts),
                progress=False,
            )
            shown = asker.ask("now", screen.now)["probs"]
            torch.testing.assert_close(
                torch.tensor(shown), found.label_probs[0], atol=1e-3, rtol=1e-3
            )
        if step == 100:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    screen.settle()
    assert len(session.history.past) > 20
    assert sum(len(own._forward_hooks) for own in session.asker.model.module.modules()) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1.2 * memory
    while session.history.now != start and len(session.history.past) > 1:
        screen.view.undo()
    screen.settle()
    assert screen.view.figures() == first
