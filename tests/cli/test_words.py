"""Words that are wrong are refused at once, in the words of the command line."""

import json

import pytest

from icl_mech.cli.console import reworded
from tests.cli.conftest import MODEL, own_data
from tests.said import Words

WORDS = Words(__file__)


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [
        ("--study", "lable_words", "label_words"),
        ("--loss", "predicted", "predicted prediction"),
        ("--study", "LabelWords", "LabelWords label_words"),
        ("--reduction", "sum", "abs_then_sum"),
        ("--labels", "wrong", "known"),
        ("--labels", "permutted", "permuted half_permuted"),
        ("--demonstrations", "each", "per_prompt"),
        ("--overlap", "refused", "refused refuse"),
        ("--labels-as", "name", "names"),
        ("--dtype", "bfloat8", "bfloat16"),
        ("--shots", "two", "integer"),
        ("--shots", "0", "demonstrations"),
        ("--n", "0", "--n 0 1"),
        ("--seed", "-1", "--seed -1 0"),
        ("--batch-size", "0", "--batch-size 0 1"),
        ("--interventions", "missing.json", "exist"),
        ("--shot", "2", "--shots"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_a_wrong_word_is_a_usage_error(command, tmp_path, option, value, known):
    code, out, err = command("analyze", "--out", tmp_path / "out", option, value)
    assert (code, out) == (2, "")
    assert option in err
    WORDS(err, known)
    assert "Value error" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--model", "gtp2", "gtp2 gpt2"),
        ("--model", "./gone", "gone"),
        ("--device", "gpu", "gpu"),
        ("--device", "cuda:77", "cuda77"),
        ("--memory", "8XB", "--memory 8XB 8GB"),
        ("--task", "missing.csv", "missing.csv"),
        ("--template", "Review: {text}", "label"),
        ("--text-column", "text", "text sentence verdict"),
        ("--label-map", "Positive", "--label-map Positive valueLabel"),
        ("--label-map", "a=Positive,b=Negative", "--label-map Positive"),
        ("--nulls", "1", "--nulls 1"),
        ("--test-split", "dev", "--test-split"),
        ("--prompt-format", "3", "--prompt-format 3"),
    ],
)
@pytest.mark.usefixtures("unchecked", "no_model")
def test_a_mistake_is_one_message(command, table, tmp_path, option, value, message):
    code, out, err = command("analyze", *own_data(table), "--out", tmp_path / "out", option, value)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    WORDS(err, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shots", 9), "the requested --shots 9"),
        (("--n", 400), "--n 400 balanced prompts need"),
        (("--label-words", "Negative,Negative"), "egative"),
    ],
)
@pytest.mark.usefixtures("unchecked", "no_weights")
def test_what_the_tokenizer_shows_is_refused_before_the_weights_are_read(
    command, table, tmp_path, options, message
):
    code, out, err = command("analyze", *own_data(table), "--out", tmp_path / "out", *options)
    assert (code, out) == (1, "")
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_weights")
def test_prompts_too_long_for_the_model_are_refused_before_its_weights_are_read(command, tmp_path):
    code, _, err = command(
        "analyze", "--model", MODEL, "--shots", 40, "--out", tmp_path / "out", "-n", 2
    )
    assert code == 1
    WORDS(err, "prompts_too_long_model")


@pytest.mark.usefixtures("no_model", "unchecked")
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "JSON"),
        ('{"intervention": "ZeroHeads"}', "expected list such"),
        ('[{"intervention": "ZeroHead"}]', "ZeroHeads"),
        ('[{"intervention": "ZeroHeads", "heads": [5]}]', "pair layer head"),
    ],
)
def test_interventions_that_are_none(command, tmp_path, document, message):
    file = tmp_path / "edits.json"
    file.write_text(document)
    code, _, err = command("analyze", "--interventions", file, "--out", tmp_path / "out")
    assert code == 1
    WORDS(err, message)


@pytest.mark.usefixtures("no_model")
def test_resume_needs_a_folder(command):
    code, _, err = command("analyze", "--resume")
    assert code == 2
    assert "--resume" in err
    assert "--out" in err


@pytest.mark.slow
def test_interventions_act(command, table, tmp_path):
    file = tmp_path / "edits.json"
    file.write_text('[{"intervention": "ZeroHeads", "heads": [[1, 0]]}]')
    given = ["measure", "predictions", *own_data(table), "--json"]
    plain = json.loads(command(*given, "--out", tmp_path / "a")[1])
    code, out, err = command(*given, "--interventions", file, "--out", tmp_path / "b")
    assert (code, err) == (0, "")
    assert json.loads(out)["results"]["predictions"]["kind"] == "Predictions"
    saved = json.loads((tmp_path / "b" / "predictions" / "result.json").read_text())
    assert saved["values"]["provenance"]["interventions"][0]["heads"] == [[1, 0]]
    assert "--interventions edits.json" in json.loads(out)["command"]
    assert "--interventions" not in plain["command"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n=4 balanced prompts; use n <= 2", "--n 4 balanced prompts; use n <= 2"),
        ("labels= names the classes", "--label-words names the classes"),
        ("labels=['a', 'b']", "--label-words ['a', 'b']"),
        ("false_labels='x' or half_labels=3", "false_labels='x' or half_labels=3"),
        ("write labels == 3", "write labels == 3"),
        ("load_task('my.csv', labels=..., ...).", "--task 'my.csv' --label-words ... ...."),
        ("Use n <= 140 or balanced=False.", "Use n <= 140 or --no-balanced."),
        ("balanced=True has no effect", "--balanced has no effect"),
        ("load_task(pandas.read_csv(path))", "load_task(pandas.read_csv(path))"),
    ],
)
def test_arguments_become_options(message, expected):
    options = {"name_or_path": "--task", "labels": "--label-words", "n": "--n"}
    options["balanced"] = "--balanced"
    assert reworded(message, options) == expected


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("isolation", "--mode", "zeros"), "zeros zero"),
        (("isolation", "--tokens", "lable"), "lable label"),
        (("flow", "--reduction", "sum_then_ab"), "sum_then_abs"),
    ],
)
def test_a_wrong_variant_is_refused_with_the_nearest_ones(command, words, near):
    code, out, err = command("measure", *words)
    assert (code, out) == (2, "")
    WORDS(err, near)
    assert "Value error" not in err


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("entry", "near"),
    [
        ("study: labelwords", "studylabelwords label_words"),
        ("labels: [permutted]", "permuted half_permuted"),
        ("path: whol", "whol whole"),
        ("stdy: label_words", "study most"),
    ],
)
def test_a_wrong_word_in_a_file_is_refused_with_the_nearest_ones(command, tmp_path, entry, near):
    file = tmp_path / "sweep.yaml"
    file.write_text(f"models: [{MODEL}]\ntasks: [reviews]\n{entry}\n")
    code, out, err = command("sweep", file, "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    WORDS(err, near)
