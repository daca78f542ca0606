"""Sharing in Chromium: the dialog and what it sends, a link, and a saved page without a kernel or a network."""

import json

import pytest

pytest.importorskip("playwright")
from tests.browser.chromium import DRAWN, serious
from tests.browser.test_explore_page import explorer, state  # noqa: F401 - a fixture
from tests.explorer.cases import opened, serving
from tests.patience import milliseconds, until
from tests.said import Words

WORDS = Words(__file__)
HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">\u202e'
LINK = "icl1.abc-_1"


def dialog(page):
    page.get_by_role("button", name="Share", exact=True).click()
    return page.get_by_role("dialog", name="Share this state")


def shared(own, **more):
    own.say({"kind": "shared", "link": LINK, "name": "t", "content": {"now": 1}, **more})


def test_the_dialog_by_keys(explorer):  # noqa: F811
    own = explorer()
    page = own.page
    button = page.get_by_role("button", name="Share", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    asked = page.evaluate("window.sent.at(-1)")
    assert asked["do"] == "share"
    assert asked["look"]["attend"] is None
    box = page.get_by_role("dialog", name="Share this state")
    assert box.get_by_role("button", name="Copy line").is_disabled()
    shared(own)
    assert box.get_by_label("Line of Python").input_value() == f'view.open("{LINK}")'
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert {*box.get_by_role("button").all_inner_texts()} <= {*reached}
    assert serious(page) == []
    page.keyboard.press("Escape")
    assert not box.is_visible()
    assert button.evaluate("own => own === document.activeElement")


def test_copy_download_and_open(explorer, tmp_path):  # noqa: F811
    own = explorer(permissions=["clipboard-read", "clipboard-write"])
    page, box = own.page, dialog(own.page)
    shared(own)
    box.get_by_role("button", name="Copy line").click()
    box.get_by_text("copied").or_(box.get_by_text("selected")).wait_for()
    with page.expect_download() as got:
        box.get_by_role("button", name="Download state").click()
    assert got.value.suggested_filename == "t.json"
    got.value.save_as(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == {"now": 1}
    before = page.evaluate("window.sent.length")
    choose = page.locator("dialog input[type=file]")
    (tmp_path / "bad.json").write_text("{")
    choose.set_input_files(tmp_path / "bad.json")
    box.get_by_text("it is not JSON").wait_for()
    assert page.evaluate("window.sent.length") == before
    choose.set_input_files(tmp_path / "t.json")
    page.wait_for_function("n => window.sent.length > n", arg=before)
    assert own.last() == {"do": "open", "state": {"now": 1}}
    own.say({"kind": "error", "gen": 1, "text": "This is a state of another task."})
    assert "another task" in box.locator(".ex-say").inner_text()
    own.say(
        state(2, started=False), {"kind": "look", "look": {"layer": 4, "mode": "out", "token": 3}}
    )
    assert not box.is_visible()
    assert page.get_by_role("button", name="Read by").get_attribute("aria-pressed") == "true"


def test_a_page_and_a_finding_are_asked_for(explorer):  # noqa: F811
    own = explorer()
    page, box = own.page, dialog(own.page)
    shared(own)
    box.get_by_role("button", name="Save as page").click()
    assert own.last() == {"do": "save_page"}
    with page.expect_download() as got:
        own.say({"kind": "file", "name": "t.html", "text": "<p>"})
    assert got.value.suggested_filename == "t.html"
    assert "t.html" in own.text("dialog[open] .ex-say")
    box.get_by_role("button", name="Make it a finding").click()
    assert own.last() == {"do": "finding"}
    own.say({"kind": "code", "title": "As a finding", "code": "import icl_mech"})
    code = page.get_by_role("dialog", name="As a finding")
    assert code.locator("pre").inner_text() == "import icl_mech"
    page.keyboard.press("Escape")
    own.say({"kind": "code", "code": "x"})
    assert page.get_by_role("dialog", name="The same in Python").is_visible()


# A served page


def test_a_link_opens_its_state_once(browser):
    view, other = opened(), opened()
    other.flip(0).isolate(range(2))
    with serving(view) as server:
        page = browser.new_context().new_page()
        page.goto(f"{server.url}#{other.share()}")
        page.wait_for_selector(".ex-answers tr.ex-now:not(.ex-stale) td")
        page.wait_for_function("() => !location.hash")
        assert view.experiment == other.experiment
        view.flip(1)
        page.reload()
        page.wait_for_selector(".ex-answers tr.ex-now td")
        assert view.experiment != other.experiment, "a reload keeps what was changed"
        box = dialog(page)
        line = box.get_by_label("Link")
        page.wait_for_function("() => document.querySelector('.ex-line').value")
        assert line.input_value() == f"{server.url}#{view.share()}"
        view.do("reset")
        page.keyboard.press("Escape")
        page.evaluate("text => { location.hash = text; }", other.share())
        page.wait_for_function("() => !location.hash")
        until(lambda: view.experiment == other.experiment, 20, "the link to be opened")
        page.context.close()
    view.close()
    other.close()


# A saved page


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A page of kept states, one with a hostile text, of an explorer that is closed."""
    view = opened()
    view.do("flip_all").do("keep", name="false").do("reset")
    view.do("edit", demo=0, text=HOSTILE).do("keep", name=HOSTILE[:40]).do("reset")
    view.isolate(range(2)).session.asker.ask("attention 1 2", view.experiment)
    path = tmp_path_factory.mktemp("saved") / "my page.html"
    path.write_text(view.session.page(), encoding="utf-8")
    figures = view.figures("now")
    view.close()
    return path, figures


@pytest.fixture
def page(browser, saved):
    """It without network; it asks for nothing, and raises no error."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    own, errors, requests = context.new_page(), [], []
    own.on(
        "console",
        lambda said: errors.append(said.text) if said.type in ("error", "warning") else None,
    )
    own.on("pageerror", lambda error: errors.append(str(error)))
    own.on("request", lambda asked: requests.append(asked.url))
    own.goto(saved[0].as_uri())
    own.wait_for_selector(".ex-answers tr.ex-now:not(.ex-stale) td")
    yield own
    assert errors == []
    assert [url for url in requests if not url.startswith("blob:")] == [saved[0].as_uri()]
    assert not own.evaluate("window.hacked")
    context.close()


def row(page, number=None):
    """Probabilities of a row of the table; without a number, of the present state."""
    rows = page.locator(".ex-answers tbody tr")
    one = page.locator(".ex-answers tr.ex-now") if number is None else rows.nth(number)
    texts = one.locator("td").all_inner_texts()
    return [float(text) for text in texts]


def seen(page):
    page.evaluate(DRAWN)
    page.evaluate("() => new Promise(go => setTimeout(go))")
    page.evaluate(DRAWN)
    return page.locator(".ex-prompt-view .ex-say").inner_text()


def test_a_saved_page_shows_its_states(page, saved):
    assert row(page) == pytest.approx(saved[1]["probs"], abs=0.006)
    assert "saved page" in page.locator(".ex-what").inner_text()
    now = page.locator(".ex-answers tr.ex-now small")
    assert "isolated" in now.inner_text()
    before = row(page, 2)
    page.get_by_role("button", name="false", exact=True).click()
    page.wait_for_selector("text=all labels false")
    seen(page)
    assert row(page) == before
    page.get_by_role("button", name="Undo").click()
    seen(page)
    assert "isolated" in now.inner_text()
    page.get_by_role("button", name="Start", exact=True).click()
    seen(page)
    assert page.locator(".ex-answers tr.ex-ref").count() == 0
    page.get_by_role("button", name="Compare with false").click()
    seen(page)
    assert row(page, 0) == before
    page.get_by_role("button", name=HOSTILE[:10]).first.click()
    seen(page)
    assert HOSTILE[:20] in page.locator(".ex-text").inner_text()


def test_tokens_layers_and_heads_of_a_saved_page(page):
    page.locator(".ex-token.ex-demo_text").nth(3).click()
    page.locator(".ex-prompt-view .ex-say").get_by_text("Saliency, layer").wait_for()
    assert page.locator(".ex-arc").count() > 0
    page.evaluate(DRAWN)
    places = json.loads(page.locator("svg[data-places]").get_attribute("data-places"))
    frame = page.locator("svg[data-places]").bounding_box()
    head = (
        frame["x"] + places["first"] + places["column"],
        frame["y"] + places["heads"] + 2.5 * places["cell"],
    )
    page.mouse.move(*head)
    page.locator(".ex-tip").get_by_text("head 1.2").wait_for()
    page.keyboard.down("Shift")
    page.mouse.click(*head)
    page.keyboard.up("Shift")
    page.get_by_role("button", name="Attention of head 1.2").wait_for()
    page.keyboard.down("Shift")
    page.mouse.click(head[0], head[1] - places["cell"])
    page.keyboard.up("Shift")
    seen(page)
    WORDS(page.locator(".ex-layers-view .ex-say").inner_text(), "needs the model")


def test_what_a_saved_page_cannot_do_is_said_or_disabled(page):
    for name in ("Keep", "+ Add", "Flip all labels", "Next query", "Previous query"):
        assert page.get_by_role("button", name=name).first.is_disabled()
    page.locator(".ex-token.ex-label_word").first.click()
    WORDS(seen(page), "needs the model")
    assert "'my page.html'" in seen(page)
    page.keyboard.press("f")
    WORDS(seen(page), "needs the model")
    page.get_by_role("button", name="Copy as code").click()
    assert "icl.Isolate(layers=range(0, 2))" in page.locator("dialog[open] pre").inner_text()
    page.keyboard.press("Escape")
    box = dialog(page)
    seen(page)
    assert box.get_by_label("Line of Python").input_value().startswith('view.open("icl1.')
    assert box.get_by_role("button", name="Save as page").is_disabled()
    with page.expect_download() as got:
        box.get_by_role("button", name="Download state").click()
    assert got.value.suggested_filename == "stories.json"
    box.get_by_role("button", name="Make it a finding").click()
    page.wait_for_function(
        "() => document.querySelector('dialog[open] pre')?.textContent.includes('def null')",
        timeout=milliseconds(20),
    )
    assert serious(page) == []
