"""`icl-mech measure`: commands made from the measurements."""

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
import torch

import icl_mech as icl
from icl_mech import measurements
from icl_mech.checking import Count, Heads
from icl_mech.cli.measure import measurable
from icl_mech.cli.variants import documented, text_form, variants_of
from icl_mech.measurements import AnyMeasurement, CompareLenses, Confusion, Flow, Isolation
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.tuned import TunedLens
from icl_mech.prompts import PromptBatch
from tests.cli.conftest import own_data
from tests.said import Words

WORDS = Words(__file__)

NO_COMMAND = {"EvaluateReweighting", "Steer", "CompareHeads"}
"""They need fitted factors, vectors, or named sets of heads, which are no text."""


def test_every_measurement_has_a_command():
    kinds = {
        name
        for name in measurements.__all__
        if inspect.isclass(kind := getattr(measurements, name))
        and issubclass(kind, AnyMeasurement)
        and not inspect.isabstract(kind)
    }
    assert {kind.__name__ for kind, _ in measurable().values()} == kinds - NO_COMMAND


def test_every_variant_is_explained():
    for kind, variants in measurable().values():
        words = documented(kind)
        for variant in variants:
            assert words.get(variant.field), (kind, variant.field)


def test_fields_become_options():
    found = {v.field: v for v in variants_of(Isolation, {"seed"})}
    assert "seed" not in found
    assert found["mode"].parameter.annotation.__origin__ == Literal["mask", "zero"]
    assert found["depths"].value("1, 3") == (1, 3)
    assert found["sides"].value("last") == ("last",)
    assert found["tokens"].value("label,random") == ("label", "random")
    assert [v.field for v in variants_of(Confusion, ())] == ["layer", "components", "context"]
    taken, *_ = variants_of(Flow, {"loss"})
    assert taken.option == "--flow-loss"


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (Heads, "24.6,3.10", ((24, 6), (3, 10))),
        (Sequence[int] | None, "1,2", (1, 2)),
        (Annotated[Mapping[str, int] | Sequence[str] | None, "a"], "x", ("x",)),
        (Sequence[str | tuple[int, int]], "x", ("x",)),
        (Literal["a", "b"] | Sequence[Literal["a", "b"]], "a", ("a",)),
        (Literal["a", "b"] | Sequence[int] | None, "b", "b"),
        (Literal["a", "b"] | Sequence[int] | None, "1,2", (1, 2)),
        (int | Literal["a", "b"], "b", "b"),
        (int | Literal["a", "b"], "7", 7),
    ],
)
def test_text_is_read_by_type(hint, text, value):
    assert text_form(hint).read(text) == value


@pytest.mark.parametrize(
    "hint", [Any, PromptBatch, PromptBatch | None, Mapping[str, int], Sequence[PromptBatch]]
)
def test_what_is_no_text_has_no_form(hint):
    assert text_form(hint) is None


@pytest.mark.parametrize(("hint", "text"), [(Heads, "24"), (Heads, "a.b"), (Sequence[int], "1,b")])
def test_text_that_cannot_be_read(hint, text):
    with pytest.raises(ValueError, match=r".*"):
        text_form(hint).read(text)


def test_a_saved_lens_is_named_by_its_folder(tmp_path):
    lens = TunedLens(weight=torch.zeros(2, 3, 3), bias=torch.zeros(2, 3), readout="digest")
    lens.save(tmp_path / "lens")
    form = text_form(FittedLens | None)
    assert form.example == "FOLDER"
    assert torch.equal(form.read(str(tmp_path / "lens")).weight, lens.weight)
    with pytest.raises(ValueError, match="missing"):
        form.read(str(tmp_path / "nothing"))
    (variant,) = variants_of(CompareLenses, ())
    assert variant.needed


def test_a_measurement_of_ones_own():
    @dataclasses.dataclass(frozen=True)
    class Mine(Flow):
        """Something.

        Attributes:
            k: How many,
                exactly.
        """

        k: Count = 3

    loss, reduction, _, k = variants_of(Mine, ())
    assert (k.option, k.parameter.default) == ("--k", 3)
    WORDS.exactly(documented(Mine)["k"], "measurement_ones_own")
    WORDS(documented(Mine)["reduction"], "measurement_ones_own_2")
    assert (loss.option, reduction.option) == ("--loss", "--reduction")


@pytest.mark.slow
def test_one_measurement(command, table, tmp_path):
    out = tmp_path / "flow"
    code, printed, err = command(
        *("measure", "flow", *own_data(table), "--reduction", "abs_then_sum", "--out", out)
    )
    assert (code, err) == (0, "")
    found = icl.Analysis.load(out)
    assert list(found) == ["flow"]
    assert found.flow.provenance["variants"]["reduction"] == "abs_then_sum"
    assert printed.startswith(found.summary())
    assert (out / "index.html").is_file()


def test_variants_reach_the_measurement(command, table, tmp_path):
    code, out, err = command(
        *("measure", "isolation", *own_data(table), "--depths", "1", "--sides", "first"),
        *("--tokens", "label", "--draws", 2, "--seed", 3, "--json", "--out", tmp_path / "run"),
    )
    assert (code, err) == (0, "")
    variants = json.loads(out)["results"]["isolation"]["variants"]
    assert variants["depths"] == [1]
    assert variants["sides"] == ["first"]
    assert variants["draws"] == 2
    assert variants["seed"] == 3


@pytest.mark.slow
def test_a_measurement_of_pairs(command, table, tmp_path):
    code, _, _ = command(
        *("measure", "layer-accuracy", *own_data(table), "--json", "--out", tmp_path / "run")
    )
    assert code == 0
    saved = json.loads((tmp_path / "run" / "layer_accuracy" / "result.json").read_text())
    assert saved["values"]["provenance"]["false_prompts"]["labels"] == "permuted"
    assert saved["values"]["provenance"]["prompts"]["demonstrations"] == "per_prompt"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("isolation", "--mode", "cut"), "mode cut"),
        (("isolation", "--depths", "1,b"), "1b NUMBER"),
        (("isolation", "--tokens", "all"), "tokens all"),
        (("isolation", "--draws", "0"), "--draws"),
        (("head-attention", "--row", "tagret"), "tagret"),
        (("head-attention", "--heads", "24"), "LAYER HEAD"),
        (("isolations",), "isolations"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_a_wrong_variant_is_a_usage_error(command, words, message):
    code, out, err = command("measure", *words)
    assert (code, out) == (2, "")
    WORDS(err, message)


def test_what_only_the_model_shows_is_said_of_the_option(command, table, tmp_path):
    code, _, err = command(
        *("measure", "predictions", *own_data(table), "--top-k", 0, "--out", tmp_path / "run")
    )
    assert code == 1
    assert "--top-k 0" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["head-mediation", "induction-scores", "task-vector"])
def test_causal_measurements(command, table, tmp_path, name):
    out = tmp_path / name
    short = ("--n", 6) if name != "induction-scores" else ("--length", 9)
    code, printed, err = command("measure", name, *own_data(table), *short, "--out", out)
    assert (code, err) == (0, "")
    found = icl.Analysis.load(out)[name.replace("-", "_")]
    assert found.summary() in printed
    assert found.figures()[0].question in (out / "index.html").read_text()


@pytest.mark.parametrize("name", ["saliency", "saliency-maps"])
def test_a_command_by_its_earlier_name(command, name):
    code, out, _ = command("measure", name, "--help")
    assert code == 0
    assert "--first" in out
    listed = {
        line.strip("│ ").split(" ")[0] for line in command("measure", "--help")[1].split("\n")
    }
    assert "saliency-maps" in listed
    assert "saliency" not in listed
