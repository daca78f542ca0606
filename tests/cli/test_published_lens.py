"""`--lens FOLDER` with a published lens, which is read once its model is loaded."""

import json

import pytest
import torch

import icl_mech as icl
from tests.cli.conftest import MODEL, own_data
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as tuned-lens writes it, with translators fitted to the tiny model."""
    model = icl.load_model(str(MODEL))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.cfg.d_vocab, (24, 24), generator=generator)
    lens = icl.fit_tuned_lens(model, ids.tolist(), progress=False)
    place = tmp_path_factory.mktemp("published")
    about = {
        "base_model_name_or_path": f"somebody/{model.cfg.model_name.rpartition('/')[2]}",
        "num_hidden_layers": lens.n_layers,
    }
    (place / "config.json").write_text(json.dumps(about))
    state = {f"{row}.weight": lens.weight[row] for row in range(lens.n_layers)}
    state |= {f"{row}.bias": lens.bias[row] for row in range(lens.n_layers)}
    torch.save(state, place / "params.pt")
    return place


@pytest.mark.parametrize("name", ["logit-lens", "layer-accuracy", "early-exit", "compare-lenses"])
def test_a_measurement_reads_layers_through_it(command, table, tmp_path, folder, name):
    code, _, err = command(
        "measure", name, "--lens", folder, *own_data(table), "--out", tmp_path / "run", "--quiet"
    )
    assert code == 0, err
    result = next(iter(icl.load(tmp_path / "run").results.values()))
    assert result.provenance["variants"]["lens"]["lens"] == "tuned"


def test_a_study_adds_the_lens(command, table, tmp_path, folder):
    code, _, err = command(
        *("analyze", "--lens", folder, *own_data(table), "--nulls", 0),
        *("--out", tmp_path / "run", "--quiet"),
    )
    assert code == 0, err
    assert icl.load(tmp_path / "run")["logit_lens"].lens == "tuned"


def test_a_study_of_pairs_has_its_own(command, table, folder):
    code, _, err = command("analyze", "--study", "overthinking", "--lens", folder, *own_data(table))
    assert code == 2
    boxed = [line.strip("│ ") for line in err.splitlines() if line.startswith("│")]
    WORDS(" ".join(boxed), "pairs")
