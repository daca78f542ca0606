"""Texts from a file in the place of a task."""

import json

import pytest

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts.text_sets import read_texts
from tests.cli.conftest import MODEL
from tests.said import Words

WORDS = Words(__file__)

TEXTS = ["One is here. Two is there. Three. Four is it.", "Five.\n\nSix. Seven. Eight goes on."]


@pytest.mark.parametrize("kind", ["txt", "json", "jsonl", "objects.jsonl"])
def test_files_of_texts(tmp_path, kind):
    file = tmp_path / f"a.{kind}"
    lines = [json.dumps({"text": own} if "objects" in kind else own) for own in TEXTS]
    content = {"txt": "\n---\n".join(TEXTS), "json": json.dumps(TEXTS)}
    file.write_text(content.get(kind, "\n".join(lines)), encoding="utf-8")
    assert read_texts(file) == (TEXTS, None)


def test_a_file_names_anchors(command, tmp_path):
    file = tmp_path / "a.jsonl"
    named = [["is here", [13, 16]], ["Six", "goes"]]
    lines = [{"text": text, "anchors": own} for text, own in zip(TEXTS, named, strict=True)]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert read_texts(file) == (TEXTS, named)
    words = ("--texts", file, "--model", MODEL, "--out", tmp_path / "run", "--quiet")
    code, _, err = command("measure", "suppression", *words)
    assert (code, err) == (0, "")
    found = icl.Analysis.load(tmp_path / "run")["suppression"]
    ends = [
        ["".join(p[a:b]).split()[-1] for a, b in s]
        for p, s in zip(found.tokens, found.spans, strict=True)
    ]
    assert [own[:-1] for own in ends] == [["here", "Two"], ["Six", "goes"]]
    assert icl.TextSet.load(file).anchors == named
    code, _, err = command("measure", "suppression", *words, "--overwrite", "--spans", "lines")
    assert code == 1
    assert "--spans" in err


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "3"])
def test_files_that_hold_something_else(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_text(content)
    with pytest.raises(PromptError, match="texts"):
        read_texts(file)


@pytest.mark.slow
def test_the_study_of_a_file(command, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("\n---\n".join(TEXTS), encoding="utf-8")
    words = ("--texts", file, "--model", MODEL, "--out", tmp_path / "run", "--quiet")
    code, _, err = command("analyze", "--study", "anchors", *words)
    assert (code, err) == (0, "")
    run = icl.Analysis.load(tmp_path / "run")
    assert len(run["suppression"].spans) == 2
    assert (tmp_path / "run" / "index.html").is_file()


def test_a_measurement_of_a_file(command, tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(TEXTS), encoding="utf-8")
    words = ("--texts", file, "--spans", "paragraphs", "--model", MODEL, "--quiet")
    code, _, err = command("measure", "suppression", *words, "--out", tmp_path / "run")
    assert code == 1
    WORDS(err, "measurement_file", "0", "1")
    code, _, err = command(
        "measure", "extraction", *words[:2], *words[4:], "--out", tmp_path / "run"
    )
    assert code == 1
    WORDS(err, "measurement_file_2", "'vocabulary'")


@pytest.mark.usefixtures("no_model")
def test_the_study_without_texts(command):
    code, _, err = command("analyze", "--study", "anchors")
    assert code == 2
    WORDS(err, "study_without_texts")
