"""Sentences about label words are reworded by patterns: each pattern occurs in what the package says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import icl_mech
from icl_mech.results import answer_words

PACKAGE = Path(icl_mech.__file__).parent
UNTIL_ELSE = re.compile(r"\{% if [^%]*%\}[^{]*(?:\{\{[^}]*\}\}[^{]*)*\{% else %\}")
CODE = re.compile(r"\{#.*?#\}|\{%.*?%\}", re.DOTALL)
OPENING = re.compile(r"\{\{ opening\(.*?\}\}", re.DOTALL)
VALUE = re.compile(r"\{\{.*?\}\}|%d", re.DOTALL)
LITERAL = re.compile(r'"([^"]*)"')
ABOUT = re.compile(r"label|class|demonstration|text|template|anchor|prompt", re.IGNORECASE)


def texts_of(path):
    """Strings of a module but for its docstrings, with 1 for every value in them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node in plain:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "1" for part in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def said():
    """Everything the package can say, with 1 for values."""
    texts = []
    for path in PACKAGE.glob("words/*.jinja"):
        source = OPENING.sub("Cannot be judged:", path.read_text(encoding="utf-8"))
        for block in source.split("{% endblock %}"):
            blocks = block, UNTIL_ELSE.sub(" ", block)
            texts += [*(CODE.sub(" ", text) for text in blocks), *LITERAL.findall(block)]
    for path in PACKAGE.rglob("*.py"):
        if path.name != "answer_words.py":
            texts += texts_of(path)
    plain = {" ".join(VALUE.sub("1", text).split()) for text in texts}
    return frozenset(filter(ABOUT.search, plain))


@pytest.mark.parametrize("kind", answer_words._OTHERS)
def test_every_pattern_occurs_in_a_sentence(kind):
    texts = said()
    patterns, used = set(), set()
    for pattern, put in (*answer_words._LABEL_WORDS[kind], *answer_words._OTHERS[kind]):
        now = {answer_words._replaced(text, [(pattern, put)]) for text in texts}
        patterns.add(pattern)
        used |= {pattern} if now != texts else set()
        texts = now
    assert patterns - used == set()
