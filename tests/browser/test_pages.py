"""Pages of both studies in Chromium: drawn, true, operable, without a network."""

import math
import re

import pytest

from icl_mech.studies.competence import QUESTION
from tests.browser import cases
from tests.browser.contrast import weak
from tests.browser.sheets import sheets
from tests.said import Words

WORDS = Words(__file__)

pytestmark = pytest.mark.browser
STUDIES = ("label_words", "overthinking")

POINTS = """id => {
    const own = document.getElementById(id);
    return own.querySelectorAll(".main-svg").length
        ? own.querySelectorAll(".points path, .trace path, .hm image, .heatmaplayer image, .bars path").length : -1;
}"""


def numbers(text):
    """All numbers in a text, true minus signs included."""
    found = re.findall(r"[−-]?\d+\.?\d*", text)
    return [float(number.replace("−", "-")) for number in found]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize(
    "size", ["desk", *(pytest.param(own, marks=pytest.mark.slow) for own in ("phone", "wide"))]
)
def test_every_figure_is_drawn_and_nothing_overflows(opened, name, size):
    page = opened(name, size)
    plots = page.plots()
    assert len(plots) >= 5
    assert {plot: page.run(POINTS, plot) for plot in plots if page.run(POINTS, plot) < 1} == {}
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0
    widths = page.run(
        "[...document.querySelectorAll('.plot svg.main-svg')].map(own => own.getBoundingClientRect().right)"
    )
    assert max(widths) <= page.run("innerWidth")


@pytest.mark.slow
def test_hovering_shows_the_numbers_of_the_result(opened):
    page, flow = opened("label_words"), cases.label_words().flow
    figure = page.figure("flow")
    named = [i for i, trace in enumerate(figure["data"]) if trace.get("name") not in (None, "", "untrained")
             and "y" in trace and trace.get("hoverinfo") != "skip" and len(trace["y"]) == flow.values.shape[1]]  # fmt: skip
    assert len(named) >= 3
    for score, curve in enumerate(named[:3]):
        for layer in range(flow.values.shape[1]):
            shown = page.hover("flow", curve, layer)
            percent = "%" in shown
            expected = float(flow.values[score, layer]) * (100 if percent else 1)
            assert any(
                abs(number - expected) <= (0.51 if percent else 0.006) for number in numbers(shown)
            ), shown


@pytest.mark.slow
def test_hovering_shows_the_scores_of_heads(opened):
    page, scores = opened("overthinking"), cases.overthinking().head_scores
    name = next(plot for plot in page.plots() if plot.startswith("head_scores"))[: -len("-plot")]
    (trace, *_) = [t for t in page.figure(name)["data"] if t["type"] == "heatmap"]
    by_cell = {
        (x, y): trace["z"][i][j] for i, y in enumerate(trace["y"]) for j, x in enumerate(trace["x"])
    }
    expected = scores.interval(layer=2, head=1).value
    assert min(abs(by_cell[cell] - expected) for cell in ((2, 1), (1, 2))) < 1e-4


def test_the_slider_moves_map_prompt_and_flow_together(opened):
    page = opened("label_words")
    slider = page.page.locator("#saliency_maps input.layer")
    before = page.figure("saliency_maps")["data"][0]["z"]
    page.page.locator("label", has_text="Reads").first.click()
    coloured = page.run(
        "[...document.querySelectorAll('#prompt-text .t')].map(own => own.style.background)"
    )
    page.page.mouse.move(0, 0)  # a token under the mouse says what it is in the same place
    layer = int(slider.input_value())
    slider.press("ArrowLeft" if layer else "ArrowRight")
    moved = int(slider.input_value())
    assert abs(moved - layer) == 1
    assert page.figure("saliency_maps")["data"][0]["z"] != before
    assert (
        page.run(
            "[...document.querySelectorAll('#prompt-text .t')].map(own => own.style.background)"
        )
        != coloured
    )
    lines = [s for s in page.figure("flow")["layout"]["shapes"] if s.get("name") == "layer"]
    assert [line["x0"] for line in lines] == [moved]
    beside = page.figure("flow-2")["layout"]["shapes"]  # every panel has it
    assert [(s["xref"], s["x0"]) for s in beside if s.get("name") == "layer"] == [
        ("x", moved), ("x2", moved),
    ]  # fmt: skip
    texts = page.page.locator(".layer-out").all_inner_texts()
    assert set(texts) == {f"layer {moved}"}
    assert f"Layer {moved}" in page.status("#saliency_maps-status")
    assert f"Layer {moved}" in page.status("#prompt-status")


@pytest.mark.slow
def test_a_point_of_the_flow_sets_the_layer(opened):
    page = opened("label_words")
    for layer in (3, 1):
        page.run(
            "layer => document.getElementById('flow-plot').emit('plotly_click', {points: [{x: layer, data: {type: 'scatter'}}]})",
            layer,
        )
        assert page.page.locator("#saliency_maps input.layer").input_value() == str(layer)


@pytest.mark.slow
def test_segments_and_tokens_of_the_map_are_those_of_the_result(opened):
    page, maps = opened("label_words"), cases.label_words().saliency_maps
    layer = int(page.page.locator("#saliency_maps input.layer").input_value())
    means = maps.by_segment(0).values[layer]
    drawn = page.figure("saliency_maps")["data"][0]["z"]
    low = min(value for row in drawn for value in row if value is not None)
    for i, row in enumerate(drawn):
        for j, value in enumerate(row):
            mean = float(means[i, j])
            if value is None:
                assert mean != mean or j > i
            elif value > low + 1e-6:
                assert value == pytest.approx(math.log10(mean), abs=0.005)
    page.page.locator("label", has_text="tokens").click()
    tokens = page.figure("saliency_maps")["data"][0]["z"]
    n = len(maps.tokens[0])
    assert (len(tokens), len(tokens[0])) == (n, n)
    for i in range(1, n):
        for j in range(i):
            saliency = float(maps.values[0][layer, i, j])
            if tokens[i][j] > low + 0.02 and saliency > 0:
                assert 10 ** tokens[i][j] == pytest.approx(saliency, rel=0.025)


@pytest.mark.slow
def test_the_prompt_tells_of_its_tokens(opened):
    page, analysis = opened("label_words"), cases.label_words()
    prompt = analysis.prompts[0][0]
    tokens = page.page.locator("#prompt-text .t")
    assert tokens.count() == len(prompt)
    position = prompt.label_positions[0]
    tokens.nth(position).hover()
    shown = page.status("#prompt-status")
    assert f"position {position}" in shown
    assert "label word" in shown
    assert f"token id {prompt.tokens[position]}" in shown
    tokens.nth(prompt.target).click()
    assert f"into “{prompt.pieces[prompt.target].strip()}”" in page.status("#prompt-status")


@pytest.mark.slow
def test_the_keyboard_reaches_everything(opened):
    page = opened("label_words")
    page.page.keyboard.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.page.locator("#prompt-text").focus()
    page.page.keyboard.press("Home")
    assert "position 0" in page.status("#prompt-status")
    page.page.keyboard.press("ArrowRight")
    assert "position 1" in page.status("#prompt-status")
    last = page.page.locator("#prompt-text .t").count() - 1
    for key in ("End", "ArrowRight", "ArrowDown"):
        page.page.keyboard.press(key)
        assert f"position {last}" in page.status("#prompt-status")
    page.page.keyboard.press("Home")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    assert "position 1" in page.status("#prompt-status")
    assert page.page.locator("#prompt-into").is_checked()
    inside = page.run(
        "document.querySelectorAll('.plot [tabindex], .plot a, .plot button, .modebar').length"
    )
    assert inside == 0


@pytest.mark.slow
def test_a_cell_of_a_map_of_heads_shows_where_the_head_looks(opened):
    page, attention = opened("overthinking"), cases.overthinking().head_attention
    layer, head = attention.heads[-1]
    plot = next(plot for plot in page.plots() if plot.startswith("head_scores"))
    script = """([id, x, y]) => document.getElementById(id).emit('plotly_click', {points: [{x, y, data: {type: 'heatmap'}}]})"""
    titles = [
        axis.get("title", {}).get("text") or ""
        for key, axis in page.figure(plot[:-5])["layout"].items()
        if key.startswith("xaxis")
    ]
    if not any(title.startswith("layer") for title in titles):
        pytest.skip("no map with layers across")
    page.run(script, [plot, layer, head])
    assert f"Head {layer}.{head} attends" in page.status(f"#{plot[:-5]}-status")
    assert f"Head {layer}.{head}" in page.status("#prompt-status")
    page.run(script, [plot, 0, 3])
    if (0, 3) not in attention.heads:
        WORDS(page.status(f"#{plot[:-5]}-status"), "head_not_kept")


@pytest.mark.parametrize("name", STUDIES)
def test_every_section_has_all_its_parts(opened, name):
    page = opened(name)
    sections = page.run("""[...document.querySelectorAll('main > section')]
        .filter(own => own.querySelector('h2 .no')).map(own => ({
            id: own.id,
            heading: own.querySelector('h2').textContent.trim(),
            same: !!own.querySelector('.fold > p > a[href^="#"]'),
            answer: own.querySelector('.answer')?.textContent.trim() || '',
            figure: !!own.querySelector('figure'),
            plot: !!own.querySelector('figure .plot'),
            caption: [...own.querySelectorAll('figcaption, .more > p')].map(one => one.textContent).join(' '),
            csv: !!own.querySelector('a[download$=".csv"]'),
            png: !!own.querySelector('button[data-picture]'),
            table: !!own.querySelector('details table'),
            math: !!own.querySelector('details math'),
            origin: own.querySelectorAll('details dl.origin dt').length,
        }))""")
    assert len(sections) >= 10
    for own in sections:
        assert own["heading"].endswith("?"), own
        assert own["answer"].endswith("."), own
        assert "_" not in own["heading"] + own["answer"] + own["caption"], own
        assert own["csv"], own
        if own["same"]:  # numbers, definition and origin stand with the first figure of the result
            assert not own["math"], own
            continue
        assert own["table"], own
        assert own["png"] == own["plot"], own
        if own["figure"]:
            WORDS(own["caption"], "limits_of_a_figure")
        if not own["id"].startswith("published"):
            assert own["math"], own
            assert own["origin"] >= 1, own  # what all results share stands once, at the end
    assert page.page.locator("#origin table tr").count() > 6
    assert page.page.locator(".modebar, .plotlyjs-logo, [data-title*=hare]").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_data_can_be_saved(opened, name):
    page = opened(name)
    links = page.page.locator("a[download]")
    assert links.count() >= 5
    with page.page.expect_download() as waiting:
        links.first.click()
    text = waiting.value.path().read_text()
    assert "," in text.splitlines()[0]
    assert len(text.splitlines()) > 2


@pytest.mark.slow
def test_a_picture_can_be_saved(opened):
    page = opened("label_words", color_scheme="dark")
    with page.page.expect_download() as waiting:
        page.page.locator("#flow [data-picture]").click()
    assert waiting.value.path().read_bytes().startswith(b"\x89PNG")
    assert waiting.value.suggested_filename == "flow.png"


@pytest.mark.slow
def test_contents_follow_the_reader(opened):
    page = opened("label_words")
    page.page.locator('.contents a[href="#saliency_maps"]').click()
    page.page.wait_for_selector('.contents a[href="#saliency_maps"][aria-current]')
    phone = opened("label_words", "phone")
    assert not phone.run("document.querySelector('.contents details').open")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_the_first_level_is_short_and_the_rest_folded(opened, name):
    page = opened(name, folded=True)
    words = page.run("document.querySelector('main').innerText.split(/\\s+/).length")
    assert words < 1100  # prompt and labels of the figures among them
    assert (
        page.run(
            "[...document.querySelectorAll('.plot')].filter(own => own.checkVisibility()).length"
        )
        == 2
    )
    assert page.run("[...document.querySelectorAll('main details')].every(own => !own.open)")
    assert page.status("#findings li").startswith(QUESTION)
    page.page.locator("[data-open-all]").click()
    assert page.run("[...document.querySelectorAll('.fold')].every(own => own.open)")
    page.page.wait_for_function(
        "[...document.querySelectorAll('.plot')].every(own => own.querySelector('.main-svg'))"
    )


@pytest.mark.slow
def test_addresses_and_links_open_the_fold_they_lead_to(opened):
    page = opened("label_words", folded=True, place="#extraction")
    assert page.run("document.querySelector('#extraction .fold').open")
    assert not page.run("document.querySelector('#isolation_map .fold').open")
    page.page.locator('.contents a[href="#isolation_map"]').click()
    page.page.wait_for_selector("#isolation_map .fold[open] .main-svg")
    page.page.wait_for_function(  # it scrolls there
        "Math.abs(document.querySelector('#isolation_map').getBoundingClientRect().top) < 400"
    )


@pytest.mark.slow
def test_print_shows_the_first_level_and_what_is_open(opened):
    page = opened("label_words", folded=True, place="#extraction")
    page.page.emulate_media(media="print")
    seen = page.run(
        "[...document.querySelectorAll('main section')].filter(own => own.checkVisibility()).map(own => own.id)"
    )
    assert seen == ["findings", "one-prompt", "isolation", "flow", "extraction"]


CONTROLS = "button, .button, .choice label, summary, a"


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_words_of_controls_can_be_read_in_every_state(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.run("document.querySelectorAll('details').forEach(own => { own.open = true; })")
    assert weak(page.page, CONTROLS) == []


def test_a_control_that_hides_its_word_is_found(opened):
    page = opened("label_words", folded=True)
    rule = ".choice input:checked + label:hover { background: var(--panel); }"
    page.page.add_style_tag(content=rule)
    states = {own.state for own in weak(page.page, CONTROLS)}
    assert states == {"pressed hover", "pressed active"}


UNREADABLE = re.compile(
    r"\d[.]\d{6,}|e[-−]0|\\[a-zA-Z]+|(?:^|\t|: )(?:True|False|None|nan|NaN)(?:$|[\t;,])"
)
"""Numbers of more than five decimals, exponents as computers write them, commands of LaTeX, values of Python."""


@pytest.mark.parametrize("name", STUDIES)
def test_numbers_formulas_and_yes_and_no_are_written_for_readers(opened, name):
    page = opened(name)
    page.run("document.querySelectorAll('details').forEach(own => { own.open = true; })")
    text = page.run("document.querySelector('main').innerText")
    lines = [line for line in text.splitlines() if UNREADABLE.search(line)]
    assert lines == []


@pytest.mark.parametrize("name", STUDIES)
def test_printed_sheets_are_filled_and_cut_nothing(opened, name):
    first = sheets(opened(name, folded=True))
    assert first.cut == []
    assert min(first.filled[:-1]) >= 0.75
    whole = sheets(opened(name))
    assert whole.cut == []
    assert sum(whole.filled[:-1]) / len(whole.filled[:-1]) >= 0.75


def test_print_cites_what_is_printed(opened):
    page = opened("label_words", folded=True, place="#extraction")
    page.page.emulate_media(media="print")
    page.rested()
    cited = page.run("""[...document.querySelectorAll('main a[href^="#"]')]
        .filter(own => own.checkVisibility()).map(own => own.hash.slice(1))""")
    assert cited
    for place in set(cited):
        target = page.page.locator(f"#{place}")
        assert target.is_visible()
        assert not target.locator("> details:not([open])").count()
    page.page.emulate_media(media="screen")
    page.rested()
    assert page.page.locator(".cites").first.is_visible()
