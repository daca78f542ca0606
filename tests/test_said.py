"""Sentences apart from tests: compared, renewed, all of them used; and no test that holds one itself."""

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import said
from tests.bad_inputs.case import all_cases
from tests.said import RENEW, Words, file_of, read, write

HERE = Path(__file__).parent
ROOM = "Prompt 3 has 512 tokens, which leaves room for 0 new ones. Use fewer."
OWN = {"room": "leaves room for 0 new ones", "slots": "{} has {} tokens, which"}

# --- what is compared ---


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Sentences of a module of tests that is not there."""
    monkeypatch.setattr(said, "HERE", tmp_path / "tests")
    monkeypatch.delenv(RENEW, raising=False)
    own = Words(tmp_path / "tests" / "a" / "test_b.py")
    write(own.path, OWN)
    return own


@pytest.fixture
def refuses():
    """That a comparison fails, and with which words."""

    def failing(*parts):
        return pytest.raises(pytest.fail.Exception, match="(?s)" + ".*".join(map(re.escape, parts)))

    return failing


def kept(words, **sentences):
    write(words.path, sentences)


def test_the_file_of_a_module(tmp_path, words):
    assert words.path == tmp_path / "tests" / "words" / "a" / "test_b.txt"
    assert read(words.path) == OWN
    kept(words, first="two\nlines, == none", then="…")
    assert read(words.path) == {"first": "two\nlines, == none", "then": "…"}
    assert read(words.path.with_name("none.txt")) == {}


def test_a_sentence_in_a_text(words, refuses):
    words(ROOM, "room")
    words("Prompt 3 leaves room\n  for 0 new ones", "room", "0")
    words(["other", ROOM], "room")
    with refuses("test_b.txt", "room", "room for 0", "room for 1"):
        words("leaves room for 1 new ones", "room")
    with refuses("lacks 5"):
        words(ROOM, "room", "0", 5)
    with refuses("nothing"):
        words(ROOM, "rooms")


def test_an_ellipsis_is_anything_and_white_space_a_blank(words, refuses):
    kept(words, room="Prompt 3 … room\nfor 0", signs="a (b) [c].* … d")
    words(ROOM, "room", "3")
    words("Prompt 3\nhas\nroom for   0", "room")
    words("a (b) [c].* or d", "signs")
    with refuses("room"):
        words("room for 0, Prompt 3", "room")


def test_slots_take_facts(words, refuses):
    words(ROOM, "slots", "Prompt 3", 512)
    words("Prompt 4 has 7 tokens, which", "slots", "Prompt 4", 7)
    with refuses("Prompt 3 has 511 tokens"):
        words(ROOM, "slots", "Prompt 3", 511)
    kept(words, braces="results is {}; expected a list")
    words("results is {}; expected a list", "braces")


def test_where_a_sentence_stands(words, refuses):
    kept(words, first="Prompt 3 has", last="Use fewer.", whole=ROOM)
    words.starts(f" {ROOM}", "first")
    words.ends(f"{ROOM}\n", "last")
    words.exactly(f"{ROOM}\n", "whole", 512)
    with refuses("last"):
        words.starts(ROOM, "last")
    with refuses("first"):
        words.ends(ROOM, "first")
    for more in (f"{ROOM} Now.", f"So: {ROOM}"):
        with refuses("whole"):
            words.exactly(more, "whole")


def test_a_sentence_under_a_condition(words, refuses):
    words.only_if(True, ROOM, "room")
    words.only_if(False, "much room", "room")
    with refuses("room"):
        words.only_if(False, ROOM, "room")
    with refuses("room"):
        words.only_if(True, "much room", "room")


def test_errors_and_warnings(words, refuses):
    with words.raises(ValueError, "room", "0") as caught:
        raise ValueError(ROOM)
    assert str(caught.value) == ROOM
    with words.warns(UserWarning, "room"):
        warnings.warn("other", UserWarning, stacklevel=1)
        warnings.warn(ROOM, UserWarning, stacklevel=1)
    with refuses("room"), words.raises(ValueError, "room"):
        raise ValueError("none")
    with refuses("DID NOT RAISE"), words.raises(ValueError, "room"):
        pass
    with refuses("room"), words.warns(UserWarning, "room"):
        warnings.warn("none", UserWarning, stacklevel=1)


# --- what is renewed ---

NEWER = "A prompt is short. Prompt 3 of 4 has 512 tokens: 0 new ones have room. Use fewer."


@pytest.fixture
def renewing(words, monkeypatch):
    monkeypatch.setenv(RENEW, "renew")
    return words


def test_what_still_holds_stays(renewing):
    before = read(renewing.path)
    renewing(ROOM, "room", "0")
    renewing(ROOM, "slots", "Prompt 3", 512)
    assert read(renewing.path) == before


def test_the_closest_sentence_with_the_facts_takes_the_place(renewing, monkeypatch):
    renewing(NEWER, "room", "0")
    renewing(NEWER, "slots", "Prompt 3", 512)
    assert read(renewing.path) == {
        "room": "0 new ones have room.",
        "slots": "{} of … has {} tokens:",
    }
    monkeypatch.delenv(RENEW)
    renewing(NEWER, "room", "0")
    renewing(NEWER, "slots", "Prompt 3", 512)
    with pytest.raises(pytest.fail.Exception):
        renewing(ROOM, "room")


def test_nothing_is_renewed_that_lacks_a_fact_or_is_like_nothing(renewing, refuses):
    before = read(renewing.path)
    with refuses("no sentence"):
        renewing(NEWER, "room", "7")
    with refuses("no sentence"):
        renewing("xyz", "room")
    with refuses("lacks 7"):
        renewing.exactly(NEWER, "room", "7")
    assert read(renewing.path) == before


def test_a_sentence_that_is_new(renewing):
    renewing("One is. Room 7 is. Another is.", "new", "7")
    assert read(renewing.path)["new"] == "Room 7 is."


def test_beginnings_ends_and_whole_texts_are_renewed_as_such(renewing):
    kept(renewing, first="Prompts are short.", last="Use a few.", whole="Prompt 3.")
    renewing.starts(NEWER, "first")
    renewing.ends(NEWER, "last")
    renewing.exactly(NEWER.replace(" ", "\n  "), "whole")
    assert read(renewing.path) == {
        "first": NEWER.split(" Prompt")[0],
        "last": NEWER.split("room. ")[1],
        "whole": NEWER,
    }


def test_what_hangs_on_the_machine_is_left_out(renewing):
    kept(renewing, file="cannot be read", whole="…", open="Cannot load 'x': … Check its files.")
    at = "'/tmp/run-3/x.json' cannot now be read (<f at 0x7f00aa>), see https://a.org/b/c."
    renewing(at, "file")
    renewing.exactly("x/y/z, /a, 0x7f and /home/me/file", "whole")
    renewing.exactly("Cannot now load 'x': Error 3.1. Check its files.", "open", "'x'")
    assert read(renewing.path) == {
        "file": "'…' cannot now be read (<f at …>), see https://a.org/b/c.",
        "whole": "…",  # as it still holds
        "open": "Cannot now load 'x': … Check its files.",
    }
    kept(renewing)
    renewing.exactly("x/y/z, /a, 0x7f and /home/me/file", "whole")
    assert read(renewing.path)["whole"] == "x/y/z, /a, 0x7f and …"


# --- the files that are there ---

FILES = sorted((HERE / "words").rglob("*.txt"))
CASES = {}
for _name in all_cases():
    _module, _, _what = _name.partition(": ")
    CASES.setdefault(f"cases_{_module}", set()).add(_what)


@functools.cache
def modules() -> dict[Path, ast.Module]:
    """All modules of tests."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HERE.rglob("*.py"))
    }


def strings(tree: ast.AST) -> set[str]:
    """All strings in a module."""
    return {
        own.value
        for own in ast.walk(tree)
        if isinstance(own, ast.Constant) and isinstance(own.value, str)
    }


def named(tree: ast.AST) -> set[str]:
    """Sentences that calls of `WORDS` name."""
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[0] == "WORDS":
            place = 2 if ast.unparse(call.func) == "WORDS.only_if" else 1
            if len(call.args) > place:
                found |= strings(call.args[place])
    return found


def test_every_file_of_sentences_belongs_to_a_module():
    own = {file_of(path) for path in modules() if "Words(__file__)" in path.read_text("utf-8")}
    cases = {file_of(HERE / "bad_inputs" / f"{name}.py") for name in CASES}
    assert {*FILES} == (own | cases) - {file_of(HERE / "said.py"), file_of(__file__)}


def test_sentences_are_those_that_tests_name():
    for path, tree in modules().items():
        there = {*read(file_of(path))}
        if path.stem in CASES:
            assert there == CASES[path.stem], path
        elif there:
            assert there - strings(tree) == set(), f"{path}: no test names these"
            assert named(tree) - there == set(), f"{path}: these have no sentence"


def test_files_of_sentences_are_as_they_are_written(tmp_path):
    for path in FILES:
        write(tmp_path / "again.txt", read(path))
        assert (tmp_path / "again.txt").read_text() == path.read_text(), path


# --- tests that hold sentences themselves ---

FEWEST = 4
"""So many words are a sentence that an editor may want to put in another way."""
WORD = re.compile(r"(?<!\S)[“\"'(;]*[A-Za-z][a-z]*(?:['’-][a-z]+)*[\"'”).,:;?!]*(?!\S)")
CODE = re.compile(r"\n|</?\w|\w>|=>|--\w|\{[\w\"']|\\[a-z]{2}")
"""Signs of files, HTML, command lines, templates, JSON and TeX."""
PARTS = ("startswith", "endswith", "index", "count", "find", "partition", "split")
"""Methods whose arguments are compared with a text."""

Names = dict[str, list[ast.expr]]


def is_sentence(text: str) -> bool:
    return not CODE.search(text) and len(WORD.findall(text)) >= FEWEST


def texts(node: ast.expr, names: Names) -> Iterator[str]:
    """Texts that an operand is: itself, in a list or a sum, or as what a name stands for."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(own.value) if isinstance(own, ast.Constant) else "1" for own in parts)
        case ast.Name(id=name):
            for own in names.get(name, ()):
                yield from texts(own, {**names, name: []})
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for own in parts:
                yield from texts(own, names)
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            yield from texts(left, names)
            yield from texts(right, names)
        case ast.Call(func=ast.Attribute(attr="escape" | "format" | "join"), args=parts):
            for own in [*parts, node.func.value]:
                yield from texts(own, names)


def bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they stand for, of an assignment."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple | ast.List):
        for one, own in zip(target.elts, value.elts, strict=False):
            yield from bound(one, own)


def rows(node: ast.expr, tables: Names) -> Iterator[ast.expr]:
    """Rows of a table, or of one of the module by its name."""
    for own in tables.get(node.id, ()) if isinstance(node, ast.Name) else [node]:
        for row in own.elts if isinstance(own, ast.List | ast.Tuple) else ():
            is_param = isinstance(row, ast.Call) and ast.unparse(row.func) == "pytest.param"
            yield ast.Tuple(row.args) if is_param else row


def names_in(function: ast.FunctionDef, tables: Names) -> Names:
    """What the names of a test stand for: what is assigned, gone through, or a column of its cases."""
    found: Names = {}
    for node in ast.walk(function):
        pairs: Iterable[tuple[ast.expr, ast.expr]] = ()
        match node:
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case ast.For(target=target, iter=table) | ast.comprehension(target=target, iter=table):
                pairs = [(target, row) for row in rows(table, tables)]
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[columns, table, *_]):
                own = ast.literal_eval(columns)
                own = own.split(",") if isinstance(own, str) else own
                target = ast.Tuple([ast.Name(name.strip()) for name in own])
                one = len(own) == 1
                pairs = [(target, ast.Tuple([row]) if one else row) for row in rows(table, tables)]
        for pair in pairs:
            for name, value in bound(*pair):
                found.setdefault(name, []).append(value)
    return found


def compared(function: ast.FunctionDef, tables: Names) -> Iterator[str]:
    """Texts that a test compares with: in asserts, and as what errors must match."""
    everything, own = names_in(function, tables), names_in(function, {})
    for node in ast.walk(function):
        for test in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            match test:
                case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq(), *_], comparators=others):
                    for part in [left, *others]:  # tables of a module hold data, too
                        yield from texts(part, own)
                case ast.Compare(left=left, comparators=others):
                    for part in [left, *others]:
                        yield from texts(part, everything)
                case ast.Call(func=ast.Attribute(attr=name), args=parts) if name in PARTS:
                    for part in parts:
                        yield from texts(part, everything)
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield from texts(node.value, everything)


def sentences_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Tests of a module and the sentences that they compare with."""
    tables: Names = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for name, value in bound(node.targets[0], node.value):
                tables.setdefault(name, []).append(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for text in dict.fromkeys(compared(node, tables)):
                if is_sentence(text):
                    yield node.name, text


def test_no_test_compares_sentences():
    found = [
        f"{path.relative_to(HERE)}: {name}: {text!r}"
        for path, tree in modules().items()
        for name, text in sentences_in(tree)
    ]
    assert found == [], "put them into tests/words (tests/said.py)"


HELD = """
BAD = [(1, "this one is no list")]
DATA = "this is a long text"

def test_in(x):
    assert "this one is no list" in x and f"this one is {x} list" not in x

def test_eq(x):
    assert x.notes == ("this one is no list",) != DATA

def test_parts(x):
    assert any(own.startswith("this one is no" + " list") for own in x)

def test_match(x):
    with pytest.raises(ValueError, match=r"this one is no \\(good\\) list"):
        pass

def test_named(x):
    said = "this one is no list"
    for text, told in ((x, "that one is no list"),):
        assert said in x
        assert told in text

@pytest.mark.parametrize(("x", "said"), BAD)
@pytest.mark.parametrize("told", ["that one is no list", "no list"])
def test_columns(x, said, told):
    assert told in x
    with pytest.raises(ValueError, match=re.escape(said)):
        pass
"""
FREE = """
TEXTS = ["this is a long text"]

def test_facts(x):
    "this is a long text"
    assert "supported" == x.status != "cannot be judged", "this is a long text"
    assert "--out folder is not a file" in x
    assert "<b>this is a long text</b>" in x
    assert "x=3, layer 4 of 5" in x
    assert x["this is a long name"] == 3
    assert x == TEXTS[0]
    WORDS(x, "this is a long key", "this is a long fact")

@pytest.mark.parametrize("text", TEXTS)
def test_data(text):
    assert joined(parts(text)) == text
    assert text.endswith("no long text")
"""


def test_sentences_are_found_where_tests_compare():
    found = [*sentences_in(ast.parse(HELD))]
    count = {name: [own for own, _ in found].count(name) for name, _ in found}
    assert count == {"test_in": 2, "test_eq": 1, "test_parts": 1, "test_match": 1, "test_named": 2, "test_columns": 2}  # fmt: skip
    assert [*sentences_in(ast.parse(FREE))] == []
