"""Lenses as tuned-lens, jlens and TransformerLens publish them: read, or refused with a reason."""

import hashlib
import json
import os

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements import EarlyExit, LayerAccuracy
from icl_mech.measurements.lens.published import PLACES, unembedding_hash
from icl_mech.measurements.lens.residuals import draw_positions
from icl_mech.models import adapt
from icl_mech.prompts.passages import NEUTRAL, passages
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

SIZE, BLOCKS = 32, 3
NAME = "tiny-gpt2"


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def summary_hash(weight):
    """What tuned-lens stores of an unembedding: `tensor_hash` in its `utils.py`."""
    return hashlib.sha256(np.array_str(weight.detach().numpy(), precision=1).encode()).hexdigest()


def loaded(place, model):
    """A lens whose random maps are farther from the model's output than none at all."""
    with WORDS.warns(UserWarning, "farther"):
        return icl.load(place, model)


def tuned(folder, leave_out=(), **changed):
    """A folder as tuned-lens writes it, with its maps."""
    weight, bias = drawn(BLOCKS, SIZE, SIZE), drawn(BLOCKS, SIZE)
    state = {f"{row}.weight": weight[row].clone() for row in range(BLOCKS)}
    state |= {f"{row}.bias": bias[row].clone() for row in range(BLOCKS)}
    about = {
        "base_model_name_or_path": f"somebody/{NAME}",
        "d_model": SIZE,
        "num_hidden_layers": BLOCKS,
        "bias": True,
        "base_model_revision": None,
        "unembed_hash": summary_hash(tiny_hf("gpt2").lm_head.weight),
        "lens_type": "linear_tuned_lens",
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(about | changed))
    torch.save(
        {key: own for key, own in state.items() if key not in leave_out}, folder / "params.pt"
    )
    return weight, bias


def jacobian(file, rows=range(BLOCKS - 1), size=SIZE, **more):
    """A file as jlens writes it, with its maps: of what blocks 0 ... L-2 give out, in half precision."""
    maps = {row: own.half() for row, own in zip(rows, drawn(len(rows), size, size), strict=True)}
    state = {"J": maps, "n_prompts": 1, "source_layers": list(rows), "d_model": size, **more}
    torch.save(state, file)
    return maps


def test_a_tuned_lens(model, tmp_path):
    weight, bias = tuned(tmp_path / "lens")
    lens = loaded(tmp_path / "lens", model)
    assert isinstance(lens, icl.TunedLens)
    assert torch.equal(lens.weight, weight)
    assert torch.equal(lens.bias, bias)
    assert lens.training["published"] == f"somebody/{NAME}"
    row = drawn(SIZE)
    for entry in range(BLOCKS):
        assert_close(lens.mapped(entry, row), row + weight[entry] @ row + bias[entry])
    lens.save(tmp_path / "ours")
    assert torch.equal(icl.load(tmp_path / "ours", model).weight, weight)


def test_a_tuned_lens_without_biases(model, tmp_path):
    left_out = [f"{row}.bias" for row in range(BLOCKS)]
    tuned(tmp_path / "lens", leave_out=left_out, bias=False)
    assert not loaded(tmp_path / "lens", model).bias.any()


@pytest.mark.parametrize("metadata", [{}, {"model_name": NAME, "target_layer": BLOCKS - 1}])
def test_a_jacobian_lens(model, tmp_path, metadata):
    maps = jacobian(tmp_path / "lens.pt", **({"metadata": metadata} if metadata else {}))
    lens = icl.load(tmp_path / "lens.pt", model)
    assert isinstance(lens, icl.JacobianLens)
    assert torch.equal(lens.jacobian[0], torch.eye(SIZE))
    for row, own in maps.items():
        assert torch.equal(lens.jacobian[row + 1], own.float())
    assert lens.training["published"] == metadata.get("model_name", "lens.pt")


def test_what_transformer_lens_fits_and_writes(model, tmp_path):
    tool = pytest.importorskip("transformer_lens.tools.analysis.jacobian_lens")
    text = "Review: a good film World Sports Business Answer:"
    theirs = tool.JacobianLens.fit(
        model, [text], corpus="one text", skip_first_positions=2, show_progress=False
    )
    theirs.save(str(tmp_path / "lens.pt"), dtype=torch.float32)
    lens = icl.load(tmp_path / "lens.pt", model)
    ids = model.to_tokens(text)[0].tolist()
    ours = icl.fit_jacobian_lens(model, [ids], skip_first=2, progress=False)
    assert_close(lens.jacobian[1:], ours.jacobian[1:], atol=5e-6, rtol=1e-5)


def test_of_another_model(model, tmp_path, unchecked):
    tuned(tmp_path / "named", base_model_name_or_path="gpt2")
    with WORDS.raises(RunError, "of_the_hub", NAME, "gpt2"):
        icl.load(tmp_path / "named", model)
    jacobian(tmp_path / "named.pt", metadata={"model_name": "gpt2"})
    with WORDS.raises(RunError, "another_model", "2"):
        icl.load(tmp_path / "named.pt", model)
    jacobian(tmp_path / "narrow.pt", size=16)
    with WORDS.raises(RunError, "another_model_2", "16"):
        icl.load(tmp_path / "narrow.pt", model)
    tuned(tmp_path / "lens")
    with WORDS.raises(ResultError, "another_model_3"):
        icl.load(tmp_path / "lens")


def test_of_a_model_with_folded_weights(tmp_path):
    model = tiny_model("gpt2")
    model.enable_compatibility_mode(disable_warnings=True)
    tuned(tmp_path / "lens")
    with WORDS.raises(RunError, "model_folded_weights"):
        icl.load(tmp_path / "lens", model)


def test_layers_that_are_missing_or_too_many(model, tmp_path):
    tuned(tmp_path / "lens", leave_out=["1.weight"])
    with pytest.raises(ResultError, match=r"no entry '1\.weight'"):
        icl.load(tmp_path / "lens", model)
    tuned(tmp_path / "bias", leave_out=["2.bias"])
    with pytest.raises(ResultError, match=r"no entry '2\.bias'"):
        icl.load(tmp_path / "bias", model)
    tuned(tmp_path / "fewer", num_hidden_layers=BLOCKS - 1)
    with WORDS.raises(RunError, "layers_missing_too_many", "2", "32"):
        icl.load(tmp_path / "fewer", model)
    for rows in ([0], [1], range(BLOCKS), range(BLOCKS + 4)):
        jacobian(tmp_path / "lens.pt", rows=rows)
        with WORDS.raises(ResultError, "layers_missing_too_many_3", "0", "1"):
            icl.load(tmp_path / "lens.pt", model)
    jacobian(tmp_path / "lens.pt", metadata={"target_layer": 1})
    with WORDS.raises(ResultError, "layers_missing_too_many_2", "2"):
        icl.load(tmp_path / "lens.pt", model)


class Unsafe:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("old_form", [False, True])
def test_nothing_in_a_file_is_run(model, tmp_path, old_form):
    trace = tmp_path / "was_run"
    file = tmp_path / "lens.pt"
    state = {"J": {0: Unsafe(str(trace))}}
    torch.save(state, file, _use_new_zipfile_serialization=not old_form)
    with pytest.raises(ResultError, match="only tensors"):
        icl.load(file, model)
    assert not trace.exists()
    torch.load(file, weights_only=False)  # the file is as unsafe as it claims to be
    assert trace.exists()


def test_no_file(model, tmp_path):
    with WORDS.raises(ResultError, "no_file"):
        icl.load(tmp_path / "lens.pt", model)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no lens"])
def test_damaged_files(model, tmp_path, content):
    (tmp_path / "lens.pt").write_bytes(content)
    with WORDS.raises(ResultError, "damaged_files"):
        icl.load(tmp_path / "lens.pt", model)


@pytest.mark.parametrize(
    "state", [[], {}, {"J": {}}, {"J": {0: "x", 1: "y"}}, {"J": {0: 1.0, "1": 2.0}}, {"J": 3}]
)
def test_other_things_that_torch_saves(model, tmp_path, state):
    torch.save(state, tmp_path / "lens.pt")
    with WORDS.raises(ResultError, "other_things_torch_saves"):
        icl.load(tmp_path / "lens.pt", model)


def test_values_that_are_not_finite(model, tmp_path):
    state = {"J": dict.fromkeys(range(BLOCKS - 1), torch.full((SIZE, SIZE), float("nan")))}
    torch.save(state, tmp_path / "lens.pt")
    with WORDS.raises(ResultError, "values_finite"):
        icl.load(tmp_path / "lens.pt", model)


@pytest.mark.parametrize(
    ("part", "tensor"),
    [
        ("weight", torch.zeros(SIZE)),
        ("weight", torch.zeros(())),
        ("weight", torch.zeros(SIZE, SIZE, SIZE)),
        ("weight", torch.zeros(SIZE, SIZE).to_sparse()),
        ("bias", torch.zeros(SIZE, SIZE)),
    ],
    ids=["one axis", "no axis", "three axes", "sparse", "of a bias"],
)
def test_maps_of_other_axes_are_refused_when_they_are_read(
    unchecked, model, tmp_path, part, tensor
):
    tuned(tmp_path / "lens")
    state = torch.load(tmp_path / "lens" / "params.pt")
    state |= {f"{row}.{part}": tensor for row in range(BLOCKS)}
    torch.save(state, tmp_path / "lens" / "params.pt")
    with WORDS.raises(ResultError, "axes", part):
        icl.load(tmp_path / "lens", model)


# --- checks against the model ---


@pytest.mark.parametrize("family", ["gpt2", "neox", "llama"])
def test_the_hash_of_an_unembedding_is_that_of_tuned_lens(family):
    weight = tiny_hf(family).get_output_embeddings().weight
    adapted = adapt(tiny_model(family))
    assert unembedding_hash(adapted) == summary_hash(weight)
    with np.printoptions(edgeitems=1, linewidth=20, suppress=True):
        assert unembedding_hash(adapted) == summary_hash_undisturbed(weight)


def summary_hash_undisturbed(weight):
    with np.printoptions(edgeitems=3, linewidth=75, suppress=False):
        return summary_hash(weight)


def test_another_unembedding(model, tmp_path):
    fitted(tmp_path / "lens", model, unembed_hash="0", base_model_revision="abc")
    with WORDS.warns(UserWarning, "another_unembedding", NAME, "abc"):
        icl.load(tmp_path / "lens", model)


@pytest.mark.parametrize("stored", [None, ""])
def test_a_lens_without_a_hash(model, tmp_path, stored):
    fitted(tmp_path / "lens", model, unembed_hash=stored)
    icl.load(tmp_path / "lens", model)


def fitted(folder, model, **about):
    """A folder with the translators of a lens that was fitted to the model."""
    ids = torch.randint(0, model.cfg.d_vocab, (24, 24), generator=torch.Generator().manual_seed(0))
    lens = icl.fit_tuned_lens(model, ids.tolist(), progress=False)
    tuned(folder, **about)
    state = {f"{row}.weight": lens.weight[row] for row in range(BLOCKS)}
    state |= {f"{row}.bias": lens.bias[row] for row in range(BLOCKS)}
    torch.save(state, folder / "params.pt")


def test_the_kl_on_passages_is_that_of_a_loop(model, tmp_path):
    fitted(tmp_path / "lens", model)
    lens = icl.load(tmp_path / "lens", model)
    fitted_kl, logit_kl = lens.mean_kl
    assert fitted_kl < logit_kl
    assert lens.count == len(NEUTRAL)

    hf = tiny_hf("gpt2")
    texts = passages(adapt(model).tokenizer)
    places = draw_positions(texts, PLACES, 1, 0)
    for number, prompt in enumerate(texts):
        with torch.no_grad():
            output = hf(torch.tensor([prompt.tokens]), output_hidden_states=True)
        p = output.logits[0, places[number]].double().log_softmax(-1)
        for entry in range(BLOCKS):
            rows = output.hidden_states[entry][0, places[number]]
            moved = rows + rows @ lens.weight[entry].T + lens.bias[entry]
            for column, read in enumerate((moved, rows)):
                with torch.no_grad():
                    logits = hf.lm_head(hf.transformer.ln_f(read))
                q = logits.double().log_softmax(-1)
                expected = (p.exp() * (p - q)).sum(-1).mean()
                assert_close(
                    lens.held_out_kl[number, column, entry], expected, atol=1e-5, rtol=1e-4
                )


def test_a_jacobian_lens_has_its_kl_but_no_warning(model, tmp_path):
    jacobian(tmp_path / "lens.pt")
    assert icl.load(tmp_path / "lens.pt", model).count == len(NEUTRAL)


def test_of_other_weights_under_the_same_name(tmp_path):
    """The weights of the blocks differ, the unembedding is the same."""
    fitted(tmp_path / "lens", tiny_model("gpt2"))
    hf = tiny_hf("gpt2", seed=1)
    changed = tiny_model("gpt2", seed=1)
    about = json.loads((tmp_path / "lens" / "config.json").read_text())
    about["unembed_hash"] = summary_hash(hf.lm_head.weight)
    (tmp_path / "lens" / "config.json").write_text(json.dumps(about))
    loaded(tmp_path / "lens", changed)


def test_a_published_lens_reads_layers_everywhere(model, tmp_path):
    fitted(tmp_path / "lens", model)
    lens = icl.load(tmp_path / "lens", model)
    true, false = icl.build_prompt_pairs(TASK, model, shots=1, n=6)
    read = icl.logit_lens(model, true, lens=lens)
    assert read.lens == "tuned"
    assert not torch.equal(read.label_logits, icl.logit_lens(model, true).label_logits)
    accuracy = LayerAccuracy(lens=lens)(model, true, false)
    assert accuracy.true_probs.shape[1] == BLOCKS + 1
    EarlyExit(lens=lens)(model, true, false)
