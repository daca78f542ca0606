"""Contrast of the words of controls, in every state a reader can bring them into."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

LEAST = 4.5
"""Contrast that text needs by WCAG 2 AA."""

STATES = {"": [], "hover": ["hover"], "active": ["hover", "active"], "focus": ["focus", "focus-visible"]}  # fmt: skip
"""Pseudo-classes that a browser sets while a control is used."""

STILL = "*, ::before, ::after { transition: none !important; animation: none !important; }"

WORDS_OF = r"""selector => [...document.querySelectorAll(selector)].map(own =>
    own.checkVisibility({visibilityProperty: true}) && !own.matches(":disabled, [aria-disabled=true]")
    && !own.closest("fieldset:disabled") ? own.textContent.trim().replace(/\s+/g, " ") : "")"""

PRESS = """([selector, pressed]) => [...document.querySelectorAll(selector)].map(own => {
    const name = ["aria-pressed", "aria-selected", "aria-current", "aria-checked"].find(one => own.hasAttribute(one));
    const input = own.control ?? own.querySelector("input");
    if (name) own.setAttribute(name, pressed);
    else if (/^(radio|checkbox)$/.test(input?.type)) {
        input.name = "";  // else one of a group lifts the others
        input.checked = pressed;
    } else return false;
    return true;
})"""
"""Presses all controls or lifts them, without an event; gives which of them can be pressed."""

RATIOS = """selector => {
    const brush = Object.assign(document.createElement("canvas"), {width: 1, height: 1})
        .getContext("2d", {willReadFrequently: true});
    const channels = colour => {
        brush.clearRect(0, 0, 1, 1);
        brush.fillStyle = colour;
        brush.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
        return [[r, g, b], a / 255];
    };
    const over = ([top, alpha], below) => below.map((value, k) => alpha * top[k] + (1 - alpha) * value);
    const above = own => own ? [...above(own.parentElement), own] : [];
    const light = rgb => rgb.map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, k) => sum + value * [0.2126, 0.7152, 0.0722][k], 0);
    const contrast = own => {
        let ground = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255], opaque = 1;
        for (const one of above(own)) {
            const look = getComputedStyle(one), [colour, alpha] = channels(look.backgroundColor);
            opaque *= Number(look.opacity);
            ground = over([colour, alpha * opaque], ground);
        }
        const look = getComputedStyle(own), [ink, alpha] = channels(own.ownerSVGElement ? look.fill : look.color);
        const [low, high] = [light(over([ink, alpha * opaque], ground)), light(ground)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    return [...document.querySelectorAll(selector)].map(own => {
        const walker = document.createTreeWalker(own, NodeFilter.SHOW_TEXT), ratios = [];
        while (walker.nextNode()) {
            const {data, parentElement} = walker.currentNode;
            if (data.trim() && parentElement.checkVisibility()) ratios.push(contrast(parentElement));
        }
        return ratios.length ? Math.min(...ratios) : null;
    });
}"""


class Contrast(NamedTuple):
    """Lowest contrast of the words of a control in a state.

    Attributes:
        text: The words.
        state: Such as `rest`, `hover` or `pressed hover`.
        ratio: From 1 to 21.
    """

    text: str
    state: str
    ratio: float


def contrasts(page: Any, selector: str) -> list[Contrast]:
    """Contrast of all visible controls that a selector finds, except disabled ones.

    They are brought into the states of `STATES`, pressed and not pressed where they can be. The
    page cannot be used any more afterwards.

    Args:
        page: Playwright's page, in Chromium.
        selector: Of buttons, of labels of radio buttons, of tabs, of links.
    """
    page.add_style_tag(content=STILL)
    texts, seen = page.evaluate(WORDS_OF, selector), []
    with _pseudo_classes(page, selector) as force:
        for pressed in (False, True):
            can = page.evaluate(PRESS, [selector, pressed])
            for state, classes in STATES.items():
                force(classes)
                ratios = page.evaluate(RATIOS, selector)
                name = " ".join(filter(None, ("pressed" * pressed, state))) or "rest"
                for text, own, ratio in zip(texts, can, ratios, strict=True):
                    if text and ratio is not None and (own or not pressed):
                        seen.append(Contrast(text, name, ratio))
    return seen


def weak(page: Any, selector: str) -> list[Contrast]:
    """The contrasts below `LEAST`; at least one control must have been looked at."""
    seen = contrasts(page, selector)
    assert seen
    return [own for own in seen if own.ratio < LEAST]


@contextmanager
def _pseudo_classes(page: Any, selector: str) -> Iterator[Callable[[Sequence[str]], None]]:
    """Gives a function that forces pseudo-classes on all elements that a selector finds."""
    tools = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        tools.send(f"{domain}.enable")
    root = tools.send("DOM.getDocument")["root"]["nodeId"]
    nodes = tools.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})["nodeIds"]

    def force(classes: Sequence[str]) -> None:
        for node in nodes:
            state = {"nodeId": node, "forcedPseudoClasses": [*classes]}
            tools.send("CSS.forcePseudoState", state)

    yield force
    tools.detach()
