"""What a model cannot have of a recipe is said before anything runs, and stands in its table."""

from dataclasses import replace

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

import icl_mech as icl
from icl_mech.errors import ModelError, SweepError
from icl_mech.recipes import Reproduction, recipe, reproduce
from icl_mech.recipes.foreseen import Lack, _unmeasured, by_reason, loadable, notice, short_reason
from icl_mech.recipes.table import laid_out
from icl_mech.sweeps.item import short_name
from icl_mech.sweeps.sources import model_sources
from tests.said import Words
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = Words(__file__)

FORM = 'template: "Review: {text}\\nSentiment: {label}", labels: [Negative, Positive]'
RECIPE = f"""
title: Isolation of films
paper: label_words
place: figure 9
measures: Loyalty.
models: [gpt2-xl]
sweep:
  tasks:
    films: {{path: films.csv, {FORM}}}
    long: {{path: long.csv, {FORM}}}
  measurements: [isolation: {{depths: [DEPTH]}}]
  seeds: [0]
  n: 4
least: 4
numbers:
  - name: label loyalty
    quantity: isolation.label_loyalty
    at: {{tokens: label, side: first, depth: DEPTH}}
    published: {{gpt2-xl: {{films: 0.5, long: 0.5, mean: 0.5}}}}
"""


def written(folder, depth=2):
    for name, text in (("films", "a fine film"), ("long", "a film of great length " * 60)):
        rows = [f"{text} {i},{('Negative', 'Positive')[i % 2]}" for i in range(24)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    path = folder / "own.yaml"
    path.write_text(RECIPE.replace("DEPTH", str(depth)))
    return path


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreseen")
    return reproduce(written(folder), {"gpt2-xl": model}, out=folder / "run", progress=False)


def test_tasks_that_cannot_be_run_are_left_out_and_the_table_says_why(run):
    assert {item.task for item in run.sweep.plan} == {"films"}
    assert run.sweep.failures() == []
    films, long, mean = run.rows
    assert (films.task, long.task, mean.task) == ("films", "long", "mean")
    WORDS.exactly(films.why, "one_set")
    assert (long.here, mean.own.value) == ("–", films.own.value)
    WORDS.exactly(long.why, "long_why")
    WORDS.exactly(mean.why, "mean_why")
    _, notes = laid_out(run.rows, "")
    WORDS(" ".join(notes), "notes")
    assert " -- " in run.to_latex()


def test_what_is_left_out_is_said_before_the_runs(model, tmp_path, monkeypatch, capsys):
    def measured(*_, **__):
        assert "long" in capsys.readouterr().err
        raise ModelError("Stopped here.")

    monkeypatch.setattr("icl_mech.sweeps.work.measure", measured)
    found = reproduce(written(tmp_path), {"gpt2-xl": model}, out=tmp_path / "run")
    WORDS(found.summary(), "failed")
    text = notice(found.recipe, found.lacks)
    WORDS(text, "notice", "own", "gpt2-xl")


@pytest.mark.usefixtures("unchecked")
def test_a_recipe_of_which_nothing_is_left_is_refused_at_once(model, tmp_path, monkeypatch):
    def measured(*_, **__):
        pytest.fail("something was computed")

    monkeypatch.setattr("icl_mech.sweeps.work.measure", measured)
    with WORDS.raises(SweepError, "nothing_left", "'own'", "'tiny'"):
        reproduce(written(tmp_path, depth=9), {"tiny": model}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def one_task(folder):
    """The recipe without its task of long texts."""
    path = written(folder)
    text = path.read_text().replace(f"    long: {{path: long.csv, {FORM}}}\n", "")
    path.write_text(text.replace("long: 0.5, ", ""))
    return path


def test_runs_that_can_be_done_are_done_beside_others_of_their_task(model, tmp_path):
    """Some seeds draw the text that is too long; what is there is not refused later."""
    path = one_task(tmp_path)
    films = (tmp_path / "films.csv").read_text().splitlines()
    films[1] = f"a film of great length {'very ' * 600},{films[1].rpartition(',')[2]}"
    (tmp_path / "films.csv").write_text("\n".join(films))
    path.write_text(path.read_text().replace("seeds: [0]", "seeds: [0, 1, 2, 3, 4, 5]"))
    how = {"out": tmp_path / "run", "progress": False}
    found = reproduce(path, {"gpt2-xl": model}, **how)
    states = [found.sweep.state(item) for item in found.sweep.plan]
    assert len(states) == 6
    assert {*states} == {"done", "failed"}
    assert "failed: " in found.summary()
    again = reproduce(path, {"gpt2-xl": model}, **how, resume=True)
    assert [again.sweep.state(item) for item in again.sweep.plan] == states


def test_a_finished_recipe_is_shown_without_its_model(model, tmp_path):
    path, loads = one_task(tmp_path), []

    def load():
        loads.append(1)
        return model

    how = {"out": tmp_path / "run", "progress": False, "resume": True}
    reproduce(path, {"gpt2-xl": load}, **how)
    assert loads
    loads.clear()
    found = reproduce(path, {"gpt2-xl": load}, **how)
    assert not loads
    assert found.rows[0].here != "–"


def test_a_model_that_fails_in_its_own_way_does_not_end_the_others(model, tmp_path):
    def load():
        raise OSError("no such disk")

    models = {"gpt2-xl": model, "other": load}
    found = reproduce(written(tmp_path), models, out=tmp_path / "run", progress=False)
    rows = {(row.model, row.task): row for row in found.rows}
    assert rows["gpt2-xl", "films"].here != "–"
    assert "no such disk" in "; ".join(rows["other", "films"].why)


def test_a_model_on_a_server_is_left_to_its_runs(tmp_path):
    pytest.importorskip("nnsight")
    from tests.models.test_nnsight import server

    path = one_task(tmp_path)
    path.write_text(
        path.read_text()
        .replace("isolation: {depths: [2]}", "predictions")
        .replace("isolation.label_loyalty", "predictions.accuracy")
        .replace("    at: {tokens: label, side: first, depth: 2}\n", "")
    )
    models = {"gpt2-xl": server("llama")}
    found = reproduce(path, models, out=tmp_path / "run", progress=False)
    assert [found.sweep.state(item) for item in found.sweep.plan] == ["done"]


def test_recipes_of_the_package_say_how_to_change_a_copy(model, tmp_path):
    with WORDS.raises(SweepError, "change_a_copy", "--copy"):
        reproduce("lw-figure-4", {"tiny": model}, tasks="offline", out=tmp_path / "run", scale=0.01)


def test_a_model_that_does_not_load_is_refused_unless_there_are_others(model, tmp_path):
    path = written(tmp_path)
    with WORDS.raises(ModelError, "no_such_model", "'no-such-model'"):
        reproduce(path, "no-such-model", out=tmp_path / "run")
    both = {"gpt2-xl": model, "other": "no-such-model"}
    found = reproduce(path, both, out=tmp_path / "run", progress=False)
    rows = {(row.model, row.task): row for row in found.rows}
    assert rows["gpt2-xl", "films"].here != "–"
    assert rows["other", "films"].here == "–"
    WORDS("; ".join(rows["other", "films"].why), "other_model", "'no-such-model'")


def test_numbers_that_a_study_leaves_out_are_known_by_its_notes():
    published, context = (
        f"{what} left out: x; y." for what in ("Published numbers", "Context accuracy")
    )
    notes = (published, "No heads ablated.", context)
    heads = recipe("ot-heads")
    (lack,) = _unmeasured(heads, "m", icl.Analysis({}, "", notes[:2]))
    assert lack.why == notes[1]
    assert len(lack.numbers) == len(heads.numbers)
    lacks = list(_unmeasured(recipe("ot-figure-2"), "m", icl.Analysis({}, "", notes)))
    assert [lack.why for lack in lacks] == [notes[2]]


def test_a_lack_meets_the_numbers_of_its_runs_alone():
    one, five, _ = recipe("lw-table-1").numbers
    lack = Lack("m", "Too long.", "sst2", {"shots": 5})
    assert not lack.meets(one, "m", ["sst2"])
    assert lack.meets(five, "m", ["sst2", "trec"])
    assert not lack.meets(five, "m", ["trec"])
    assert not lack.meets(five, "other", ["sst2"])
    assert not replace(lack, numbers=("x",)).meets(five, "m", ["sst2"])
    WORDS.exactly(lack.what, "what_lacks", "sst2", 5)


def test_reasons_are_short_in_a_table_and_said_once():
    assert short_reason("3 layers; give fewer.") == "3 layers"
    assert short_reason("Too long. Use shorter texts.") == "Too long"
    assert short_reason("not head 3.2.") == "not head 3.2"
    WORDS.exactly(by_reason({"a": "x; y", "b": "x; z", "c": "w."}), "by_reason")


def test_models_keep_how_they_are_loaded():
    (source,) = model_sources([{"path": "gpt2", "dtype": "bfloat16", "revision": "main"}])
    assert loadable(source) == {"path": "gpt2", "dtype": "bfloat16", "revision": "main"}
    assert loadable(model_sources("gpt2")[0]) == "gpt2"


def test_heads_of_another_model_by_their_numbers_are_dashes(run):
    heads = recipe("ot-prefix-matching").numbers[0]
    assert not heads.has_meaning("gpt2-xl")
    assert heads.has_meaning("gpt-j-6b")
    found = replace(run, recipe=replace(run.recipe, numbers=[heads]), stand_ins={})
    (row,) = found.rows
    assert (row.here, row.published) == ("–", {})
    WORDS(row.why[-1], "heads_of_another", "gpt-j-6b")


def test_too_few_heads_for_a_study_are_refused_at_once(tmp_path):
    text = written(tmp_path).read_text()
    start = text.index("  measurements")
    study = "  study: causal\n  total: 2\n  labels: permuted\n  seeds: [0]\n  n: 8\nleast: 8\n"
    numbers = 'numbers:\n  - {name: heads, quantity: "without induction heads, logits"}\n'
    path = tmp_path / "few.yaml"
    path.write_text(f"{text[:start]}{study}{numbers}".replace("long.csv", "films.csv"))
    tokenizer = tiny_tokenizer("bpe")
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=512)
    model = icl.load_model(GPT2LMHeadModel(config).eval(), tokenizer=tokenizer)
    with WORDS.raises(SweepError, "too_few_heads", 4):
        reproduce(path, {"few": model}, out=tmp_path / "run")


def test_pages_say_nothing_twice_and_reveal_no_place(run, tmp_path):
    plain = replace(run, stand_ins={})
    notes = plain.page().origin.limits
    WORDS.exactly(notes[0], "no_stand_in")
    partly = replace(run, stand_ins={"films": "reviews"}).page()
    WORDS.exactly(partly.origin.limits[0], "one_stand_in")
    assert partly.sections[0].sentence not in partly.lead
    drawn = [replace(number, published={}) for number in run.recipe.numbers]
    page = Reproduction(replace(run.recipe, numbers=drawn), run.sweep).page()
    assert page.sections[0].limits == ""


def test_a_model_in_a_folder_is_named_by_its_last_part():
    assert short_name("/home/someone/models/mine") == "mine"
    assert short_name("owner/name") == "owner/name"


def test_texts_instead_of_tasks_are_read_back(model, tmp_path):
    (tmp_path / "a.txt").write_text("One film was good. Another was bad. The third was fine.\n")
    how = {"tasks": str(tmp_path / "a.txt"), "out": tmp_path / "run", "progress": False}
    found = reproduce("lw-figure-3", {"m": model}, scale=0.01, **how)
    assert len(found.sweep) == 1
    assert found.rows
