"""The table of the lens, token by token: against a plain loop over Hugging Face's states, by hand, and what is refused."""

import types
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.lenses import TunedLens, lens_table
from icl_mech.measurements import LensTable
from icl_mech.measurements.lens.lens_table import USUAL, LensTableResult
from icl_mech.models import LanguageModel
from icl_mech.plots import figure
from icl_mech.reports.tables import shape_tables
from tests.measurements.overthinking_cases import tiny_pairs
from tests.measurements.test_open_answers import made
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

FAMILIES = ("gpt2", "llama", "neox")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
TEXT = "The film was good. Nobody saw it. Then a prize came. The hall was full."


def by_hand(hf, tokens):
    """Hidden states, final norm, unembedding, softmax: log-probabilities by layer and token."""
    base = hf.base_model
    norm = next(
        getattr(base, own) for own in ("ln_f", "norm", "final_layer_norm") if hasattr(base, own)
    )
    with torch.no_grad():
        out = hf(torch.tensor([tokens]), output_hidden_states=True)
        logits = [hf.get_output_embeddings()(norm(own[0])) for own in out.hidden_states[:-1]]
    # Hugging Face gives the last state after its norm.
    return torch.stack([*logits, out.logits[0]]).float().log_softmax(-1)


def assert_is_the_loop(found, number, log_probs):
    places = list(found.positions[number])
    own = log_probs[:, places].transpose(0, 1)
    best, _ = own.exp().topk(found.top_probs[number].shape[-1], dim=-1)
    assert_close(found.top_probs[number], best, **CLOSE)
    assert_close(own.exp().gather(-1, found.top_tokens[number]), best, **CLOSE)
    assert_close(found.entropy[number], -(own.exp() * own).sum(-1), **CLOSE)
    gap = (own[:, -1:].exp() * (own[:, -1:] - own)).sum(-1)
    assert_close(found.kl[number], gap, **CLOSE)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, tiny_pairs(model)[0]


@pytest.fixture(scope="module")
def found(gpt2):
    return lens_table(*gpt2, first=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_a_plain_loop(family):
    model, hf = tiny_model(family), tiny_hf(family)
    prompts = tiny_pairs(model)[0][:3]
    assert len(set(prompts.lengths.tolist())) > 1
    found = lens_table(model, prompts, positions="all", first=None, k=4)
    for number, prompt in enumerate(prompts):
        assert found.positions[number] == tuple(range(len(prompt)))
        assert_is_the_loop(found, number, by_hand(hf, prompt.tokens))


def test_by_hand():
    """Two entries, one token, a vocabulary of three: softmax of (2, 1, 0) and of (0, 0, ln 2)."""

    class Readout(LanguageModel):
        info, device = types.SimpleNamespace(n_layers=1), "cpu"

        def __init__(self):
            """Nothing is wrapped."""

        def final_norm(self, rows):
            return 2 * rows

        def unembed(self, rows, *, bias):
            return rows + bias

    Readout.__abstractmethods__ = frozenset()
    residuals = torch.tensor([[[1.0, 0.5, 0.0]], [[0.0, 0.0, torch.tensor(2.0).log() / 2]]])
    ids, probs, entropy, gap = LensTable(k=2)._read(Readout(), residuals)
    assert ids[0, :, 0].tolist() == [0, 2]
    assert_close(probs[0], torch.tensor([[0.66524, 0.24473], [0.5, 0.25]]), **CLOSE)
    assert_close(entropy[0], torch.tensor([0.83240, 1.03972]), **CLOSE)
    # 1/4 ln(.25/.66524) + 1/4 ln(.25/.24473) + 1/2 ln(.5/.09003)
    assert_close(gap[0], torch.tensor([0.61788, 0.0]), **CLOSE)
    twice = LensTable(k=1, variant="reference")._read(Readout(), residuals)
    assert_close(twice[1][0, 1], torch.tensor([4 / 6]), **CLOSE)
    assert_close(twice[1][0, 0], probs[0, 0, :1], **CLOSE)


def test_the_last_tokens_up_to_the_target_are_the_usual_ones(gpt2, found):
    for number, prompt in enumerate(gpt2[1][:3]):
        assert found.positions[number] == tuple(range(prompt.target + 1 - USUAL, prompt.target + 1))
        assert found.tokens[number] == tuple(prompt.pieces[i] for i in found.positions[number])
    short = icl.texts(["It was good. So."], gpt2[0])
    assert len(short[0]) < USUAL
    assert lens_table(gpt2[0], short).positions == (tuple(range(len(short[0]))),)


def test_the_target_is_read_as_the_logit_lens_reads_it(gpt2, found):
    lens = icl.logit_lens(*gpt2)
    for number in range(3):
        assert torch.equal(found.top_tokens[number][-1, :, 0], lens.top_tokens[number, :, 0])
    reference = lens_table(*gpt2, variant="reference", positions="target")
    plain = icl.logit_lens(*gpt2, variant="reference")
    assert torch.equal(reference.top_tokens[0][0, :, 0], plain.top_tokens[0, :, 0])


def test_places_by_number_role_and_demonstration(gpt2):
    model, prompts = gpt2
    assert lens_table(model, prompts, positions=[5, 2]).positions == ((5, 2),)
    spans = prompts[0].label_spans
    words = lens_table(model, prompts, positions="label_word", demo=1).positions[0]
    assert words == tuple(range(spans[1].start, spans[1].stop))
    whole = lens_table(model, prompts, demo=1).positions[0]
    assert set(words) < set(whole)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"path": "whole"}])
def test_ways_to_run_change_nothing(gpt2, found, options):
    other = lens_table(*gpt2, first=3, **options)
    for one, two in zip(found.top_probs, other.top_probs, strict=True):
        assert_close(one, two, **CLOSE)


def test_interventions_are_made(gpt2, found):
    cut = lens_table(*gpt2, first=3, interventions=[icl.ZeroLayers(1)])
    for one, two in zip(found.top_probs, cut.top_probs, strict=True):
        assert_close(one[:, :2], two[:, :2], **CLOSE)
        assert float((one[:, -1] - two[:, -1]).abs().max()) > 1e-4


def test_a_fitted_lens_maps_all_but_the_last_entry(gpt2, found):
    model, prompts = gpt2
    info = model.cfg
    maps = torch.zeros(info.n_layers, info.d_model, info.d_model)
    same = TunedLens.given(model, maps, maps[..., 0].clone())
    zero = lens_table(model, prompts, first=3, lens=same)
    assert torch.equal(zero.top_probs[0], found.top_probs[0])
    moved = TunedLens.given(model, maps + 0.3, maps[..., 0].clone())
    other = lens_table(model, prompts, first=3, lens=moved)
    assert torch.equal(other.top_probs[0][:, -1], found.top_probs[0][:, -1])
    assert not torch.equal(other.kl[0][:, 0], found.kl[0][:, 0])
    assert "tuned lens" in other.drawing().title
    with WORDS.raises(RunError, "fitted_lens_maps_all"):
        lens_table(model, prompts, lens=same, variant="reference")


def test_texts_and_open_answers(gpt2):
    model, _ = gpt2
    texts = lens_table(model, icl.texts([TEXT], model), demo=1)
    assert texts.label_words == ((),)
    assert not texts.drawing().bold
    WORDS.exactly("".join(texts.tokens[0]).strip(), "texts_open_answers")
    choices = icl.build_prompts(made(), model, shots=2, n=2, demonstrations="per_prompt")
    own = lens_table(model, choices, first=None)
    assert len(own.label_words[0]) > 1
    assert own.label_words[0] != own.label_words[1]


def test_quantities_are_means_over_tokens(found):
    assert_close(
        found.sel("kl").values,
        torch.stack([own.double().mean(0) for own in found.kl]).mean(0),
        **CLOSE,
    )
    assert found.sel("agreement").values[-1] == 1
    assert float(found.sel("kl").values[-1]) == pytest.approx(0, abs=1e-6)


def test_drawings(found):
    for show in found.shows:
        fig, drawn = found.plot(show, prompt=1), found.drawing(show, 1)
        assert list(fig.layout.xaxis.tickvals) == list(range(USUAL))
        assert drawn.columns == found.tokens[1]
        (cells,) = fig.data
        if show == "words":
            assert cells.zmax == 1
            assert_close(torch.tensor(cells.z), found.top_probs[1][..., 0].T, atol=1e-4, rtol=0)
        else:
            own = getattr(found, show)[1]
            assert cells.zmax == pytest.approx(float(own.max()))
            assert_close(torch.tensor(cells.z), own.T, atol=1e-4, rtol=0)
    assert figure(found.drawing()).layout.width == 940
    many = replace(found.drawing(), columns=("a",) * 40, words=found.drawing().words[:1] * 40,
                   probs=found.drawing().probs[:1].expand(40, -1, -1))  # fmt: skip
    assert figure(many).layout.width > 40 * 60
    three = replace(many, columns=many.columns[:3], words=many.words[:3], probs=many.probs[:3])
    assert figure(three).layout.width is None


def test_the_table_of_a_page_tells_all_words_on_pointing(found):
    (table,) = shape_tables(found.drawing())
    assert len(table.rows) == found.top_tokens[0].shape[1]
    cell = table.rows[-1][-1]
    assert f"{float(found.top_probs[0][-1, -1, 1]):.3f}" in cell.whole
    assert cell.shade == pytest.approx(float(found.top_probs[0][-1, -1, 0]))


def test_saved_and_loaded(tmp_path, found):
    found.save(tmp_path / "table")
    loaded = LensTableResult.load(tmp_path / "table")
    assert loaded.summary() == found.summary()
    assert loaded.drawing("kl", 2).columns == found.drawing("kl", 2).columns
    assert torch.equal(loaded.kl[2], found.kl[2])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"positions": [10_000]}, PromptError, "position 10000"),
        ({"positions": []}, RunError, "positions must named"),
        ({"positions": [3, 3]}, RunError, "each once"),
        ({"positions": [-1]}, RunError, "at least 0"),
        ({"positions": "label_word", "demo": 99}, PromptError, "label_word 99"),
        ({"positions": "target", "demo": 0}, RunError, "names demonstration"),
        ({"positions": "narrative"}, PromptError, "tokens"),
        ({"k": 0}, RunError, "at least 1"),
        ({"first": 0}, RunError, "at least 1"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(gpt2, options, error, said):
    with WORDS.raises(error, said):
        lens_table(*gpt2, **options)


def test_drawings_of_what_is_not_there(found):
    with WORDS.raises(ResultError, "drawings_what_there", "3", "0"):
        found.plot(prompt=3)
    with pytest.raises(ResultError, match="'entropy'"):
        found.plot("entropie")
