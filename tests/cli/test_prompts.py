"""`icl-mech prompts`: prompts with their roles, from the tokenizer alone."""

import json

import pytest
from rich.style import Style

import icl_mech as icl
from icl_mech.cli.prompts import NAMES, STYLES, coloured
from icl_mech.prompts.spans import ROLES
from tests.cli.conftest import MODEL, own_data
from tests.said import Words

WORDS = Words(__file__)

pytestmark = pytest.mark.usefixtures("no_weights")


def test_two_prompts_by_default(command):
    code, out, err = command("prompts", "--model", MODEL)
    assert (code, err) == (0, "")
    assert "Prompt 1 of 2" in out
    assert "Prompt 2 of 2" in out
    assert "Sentiment: " in out
    for name in ("demonstration text", "label word", "template", "query text", "target"):
        assert name in out
    WORDS(out, "two_prompts_default")


def test_text_is_that_of_the_prompt(command):
    document = json.loads(command("prompts", "--model", MODEL, "-n", 1, "--json")[1])
    (own,) = document["prompts"]
    assert len(own["tokens"]) == len(own["ids"]) == len(own["roles"])
    assert own["roles"].count("target") == 1
    task = icl.load_task("reviews")
    text = "".join(own["tokens"])
    assert any(example.text in text for example in task.test)
    labels = [
        t for t, role in zip(own["tokens"], own["roles"], strict=True) if role == "label_word"
    ]
    assert "Positive" in "".join(labels)


def test_a_line_for_each_token(command):
    document = json.loads(command("prompts", "--model", MODEL, "-n", 1, "--json")[1])
    _, out, _ = command("prompts", "--model", MODEL, "-n", 1, "--tokens")
    lines = [
        line.split() for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()
    ]
    rows = [line for line in lines if len(line) > 3 or line[-1] in ("template", "target")]
    assert [int(row[1]) for row in rows[: len(document["prompts"][0]["ids"])]] == (
        document["prompts"][0]["ids"]
    )


def test_false_demonstrations(command):
    given = ("prompts", "--model", MODEL, "-n", 1, "--json")
    true, false = (json.loads(command(*given, *more)[1]) for more in ((), ("--false",)))
    assert true["source"]["labels"] == "correct"
    assert false["source"]["labels"] == "permuted"


def test_own_data(command, table):
    code, out, _ = command("prompts", *own_data(table))
    assert code == 0
    WORDS(out, "own_data")


@pytest.mark.filterwarnings("ignore:.*contradictory labels")
def test_text_that_looks_like_markup_is_text(command, tmp_path):
    file = tmp_path / "odd.csv"
    rows = [f"[red]{i} </script> “é” \u05d0,{label}" for i in range(4) for label in ("bad", "good")]
    file.write_text("text,label\n" + "\n".join(rows), encoding="utf-8")
    code, out, _ = command(
        *("prompts", "--model", MODEL, "--task", file, "--label-words", "bad,good"),
        *("--template", "In: {text} Out: {label}", "--overlap", "keep"),
    )
    assert code == 0
    assert "[red]" in out


def test_roles_are_told_apart_without_colour():
    assert STYLES.keys() == NAMES.keys() == set(ROLES)
    shapes = {}
    for role in ("demo_text", "label_word", "format", "query_text", "target"):
        style = Style.parse(STYLES[role])
        marks = (style.bold, style.italic, style.underline, style.reverse)
        shapes.setdefault(marks, []).append(role)
    # The target and label words are both boxes; the target is the last token of the prompt.
    assert sorted(map(len, shapes.values())) == [1, 1, 1, 2]


def test_every_token_is_coloured():
    tokenizer = icl.load_task("reviews")
    from icl_mech.models.loading import load_tokenizer

    prompts = icl.build_prompts(tokenizer, load_tokenizer(str(MODEL)), n=1)
    text = coloured(prompts[0])
    assert text.plain == "".join(prompts[0].pieces)
    assert len(text.spans) == len(prompts[0])


def test_demonstrations_in_all(command):
    given = ("prompts", "--model", MODEL, "--task", "reviews")
    document = json.loads(command(*given, "--total", 3, "--json")[1])
    assert [len(own["label_classes"]) for own in document["prompts"]] == [3, 3]
    assert (document["source"]["total"], "shots" in document["source"]) == (3, False)
    most = json.loads(command(*given, "--total", "max", "--json")[1])
    assert most["source"]["total_bound"] == "context"
    assert max(len(own["ids"]) for own in most["prompts"]) <= most["context_length"]
    code, _, err = command(*given, "--total", "most")
    assert code
    assert "--total" in err
    code, _, err = command(*given, "--total", 3, "--shots", 1)
    assert code
    assert "--shots" in err
    assert "--total" in err


def test_tasks_with_open_answers_by_name_and_from_a_file(command, tmp_path):
    document = json.loads(
        command("prompts", "--model", MODEL, "--task", "capitals", "-n", 3, "--shots", 2, "--json")[
            1
        ]
    )
    known = {own.answers[0] for own in icl.load_task("capitals").test}
    assert all(own["choices"][own["answer"]] in known for own in document["prompts"])

    rows = ["hot,cold|chilly,warm", "big,small,large", "up,down,above", "day,night,noon"]
    rows += ["rich,poor,wealthy", "fast,slow,quick", "old,young,aged", "wet,dry,damp"]
    table = tmp_path / "pairs.csv"
    table.write_text("\n".join(["word,opposite,near", *rows]), encoding="utf-8")
    own = ("--task", table, "--template", r"Q: {text}\nA: {label}", "--text-column", "word")
    code, out, err = command(
        *("prompts", "--model", MODEL, *own, "--answers", "opposite", "--other-answers", "near"),
        *("--labels", "other", "--shots", 2, "-n", 1),
    )
    assert (code, err) == (0, "")
    (answer,) = [line for line in out.splitlines() if "false answer" in line]
    assert any(
        f"answer {a.split('|')[0]}" in answer and o in answer
        for _, a, o in (r.split(",") for r in rows)
    )

    code, out, err = command(
        "prompts", "--model", MODEL, *own, "--answers", "opposite", "--label-words", "a,b"
    )
    assert code
    assert "--answers" in err
