"""Patches: aligned by role, exact, and the same on every path."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import Patch, build_prompt_pairs, build_prompts, flow_scores
from icl_mech.engine import Reading, common_prefix, prepare, run, run_variants
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Place, load_intervention
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import Site
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import FAMILIES, N_HEADS, N_LAYERS, tiny_model

WORDS = Words(__file__)

SITES = {
    "z": {"heads": [(0, 1), (1, 0), (1, 3)]},
    "resid_pre": {"layers": [0, 2]},
    "resid_post": {"layers": [1]},
    "attn_out": {"layers": [1, 2]},
    "mlp_out": {"layers": [1]},
}
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


class Rows(Reading):
    """A site at the target."""

    target_only = True

    def __init__(self, site, layer):
        self.site = Site(site, layer)

    def sites(self, info):
        return [self.site]

    def reduce(self, site, activation, segment):
        return segment.at_target(activation)

    def collect(self, kept):
        return kept.by_site()[self.site]


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def pair():
    return build_prompt_pairs(TASK, tiny_model("gpt2"), shots=2, n=4)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def logits(model, prompts, changes, **options):
    ((label_logits, *_),) = run(model, prompts, [PredictionReading()], changes, **options)
    return label_logits


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("at", ["target", "label_word", "all"])
@pytest.mark.parametrize("path", ["auto", "whole"])
def test_a_run_patched_into_itself_does_not_change(setting, site, at, path):
    model, prompts = setting
    patch = Patch(site, **SITES[site], at=at, source=prompts)
    # Positions before the target are computed in whole prompts, and so is what is compared.
    how = {"path": path if at == "target" else "whole", "batch_size": 4}
    ((plain, *_),), ((patched, *_),) = run_variants(
        model, prompts, [PredictionReading()], [[], [patch]], **how
    )
    assert torch.equal(plain, patched)
    assert torch.equal(logits(model, prompts, [], **how), logits(model, prompts, [patch], **how))


def test_a_run_patched_into_itself_on_kept_keys_and_values(setting):
    model, prompts = setting
    given = prepare(model, prompts)
    for site, chosen in SITES.items():
        patch = Patch(site, **chosen, source=prompts)
        assert torch.equal(logits(model, given, []), logits(model, given, [patch]))


def test_a_run_patched_into_itself_keeps_its_gradients(setting):
    model, prompts = setting
    patch = Patch("z", [(0, 1)], source=prompts)
    plain = flow_scores(model, prompts, path="whole")
    patched = flow_scores(model, prompts, interventions=[patch], path="whole")
    # The pattern of the patched head no longer bears on the loss at the target; nothing else moves.
    scores = (own.per_prompt[:, :, 1:] for own in (plain, patched))
    assert_close(*scores, **CLOSE, equal_nan=True)  # behind a window there are no edges


@pytest.mark.parametrize("site", SITES)
def test_the_fast_path_gives_what_whole_prompts_give(setting, site):
    model, prompts = setting
    other = prompts[[1, 2, 3, 4, 5, 0]]
    for how in ({"source": other}, {"source": other[:3], "mean": True}):
        patch = Patch(site, **SITES[site], **how)
        assert patch.target_only
        whole = logits(model, prompts, [patch], path="whole")
        assert_close(logits(model, prompts, [patch]), whole, **CLOSE)
        assert_close(logits(model, prepare(model, prompts), [patch]), whole, **CLOSE)
        assert not torch.allclose(logits(model, prompts, [], path="whole"), whole, atol=1e-3)


@pytest.mark.parametrize("site", ["resid_post", "mlp_out"])
def test_the_same_values_in_every_prompt_are_shared_with_the_common_beginning(setting, site):
    model, prompts = setting
    length, positions = common_prefix(prompts), prompts.label_positions[0].tolist()
    assert max(positions) < length
    other = build_prompts(TASK, model, shots=2, n=6, labels="permuted")
    mean = Patch(site, layers=[0, 1], at="label_word", source=other[:3], mean=True)
    (states,) = run(model, prompts[[0]], [Rows(site, 1)])
    rows = torch.randn(len(positions), 2, states.shape[-1])
    for patch in (mean, replace(mean, source=None, mean=False, values=rows)):
        assert patch.shares(prompts, length)
        whole = logits(model, prompts, [patch], path="whole")
        assert_close(logits(model, prompts, [patch]), whole, **CLOSE)
        assert not torch.allclose(logits(model, prompts, []), whole, atol=1e-3)
    of_each = replace(mean, source=None, mean=False, values=rows.expand(6, *rows.shape))
    assert not of_each.shares(prompts, length)


def test_the_last_residual_decides_the_answer(model):
    prompts = build_prompts(TASK, model, shots=2, n=6)
    other = prompts[[1, 2, 3, 4, 5, 0]]
    patch = Patch("resid_post", layers=[N_LAYERS - 1], source=other)
    assert_close(
        logits(model, prompts, [patch]), logits(model, prompts, [])[[1, 2, 3, 4, 5, 0]], **CLOSE
    )


def test_what_is_patched_stands_there(model):
    prompts = build_prompts(TASK, model, shots=2, n=6)
    values = torch.randn(6, 1, 2, 8)
    patch = Patch("z", [(1, 2), (1, 0)], values=values)
    (found,) = run(model, prompts, [Rows("z", 1)], [patch])
    assert torch.equal(found[:, [2, 0]], values[:, 0])
    (plain,) = run(model, prompts, [Rows("z", 1)])
    assert_close(found[:, [1, 3]], plain[:, [1, 3]])
    mean = Patch("z", [(1, 2)], source=prompts, mean=True)
    (found,) = run(model, prompts, [Rows("z", 1)], [mean])
    assert_close(found[:, 2], plain[:, 2].mean(0).expand(6, -1))


def test_label_words_alone_are_patched(pair, model):
    true, false = pair
    reads = {}

    class All(Rows):
        target_only = False
        ragged = True

        def reduce(self, site, activation, segment):
            return activation

        def collect(self, kept):
            return kept.per_prompt()

    for name, prompts, changes in (
        ("true", true, []),
        ("false", false, []),
        ("first", false, [Patch("resid_post", layers=[0], at="label_word", demo=0, source=true)]),
    ):
        (reads[name],) = run(model, prompts, [All("resid_post", 0)], changes, batch_size=1)
    for number, prompt in enumerate(true):
        at, other = prompt.label_positions[:2]
        first, plain = reads["first"][number][0], reads["false"][number][0]
        assert torch.equal(first[at], reads["true"][number][0][at])
        assert torch.equal(first[other], plain[other])
        assert not torch.equal(first[at], plain[at])


def test_many_heads_take_their_values_from_one_run(model, monkeypatch):
    prompts = build_prompts(TASK, model, shots=2, n=6)
    from icl_mech.engine import taking

    calls = []
    monkeypatch.setattr(
        taking, "_read", lambda *given, _own=taking._read: calls.append(1) or _own(*given)
    )
    other = prompts[[1, 2, 3, 4, 5, 0]]
    variants = [
        [Patch("z", [(layer, head)], source=other)] for layer in range(3) for head in range(N_HEADS)
    ]
    together = run_variants(model, prompts, [PredictionReading()], variants)
    assert len(calls) == 1
    alone = logits(model, prompts, variants[5])
    assert_close(together[5][0][0], alone, **CLOSE)


def test_prompts_that_do_not_align_are_refused(pair, model):
    true, false = pair
    longer = build_prompts(TASK, model, shots=1, n=4)
    for prompts, patch, says in (
        (true, Patch("z", [(0, 0)], source=false[:3]), "prompts 3 4"),
        (true, Patch("resid_pre", layers=[0], at="all", source=longer), "align all"),
        (
            true,
            Patch("resid_pre", layers=[0], at="label_word", source=longer, mean=True),
            "stretches",
        ),
        (true, Patch("resid_pre", layers=[0], at=[900], source=false), "position 900"),
        (true, Patch("resid_pre", layers=[0], at="narrative", source=false), "no tokens"),
        (true, Patch("z", [(0, 0)], values=torch.zeros(3, 1, 1, 8)), "values 3 prompts"),
        (true, Patch("z", [(0, 0)], values=torch.zeros(2, 1, 8)), "values 2 tokens"),
    ):
        with WORDS.raises(PromptError, says):
            patch.check_prompts(prompts)
    with WORDS.raises(PromptError, "prompts_align_refused"):
        run(model, true, [PredictionReading()], [Patch("z", [(0, 0)], at="all", source=longer)])


def test_values_of_each_prompt_do_not_fit_other_prompts(model):
    prompts = build_prompts(TASK, model, shots=2, n=6)
    assert Patch("z", [(0, 0)], source=prompts).by_number
    assert not Patch("z", [(0, 0)], source=prompts, mean=True).by_number
    assert not Patch("z", [(0, 0)], values=torch.zeros(1, 8)).by_number
    with pytest.raises(RunError, match="4 prompts"):
        run(
            model,
            prompts,
            [PredictionReading()],
            [Patch("z", [(0, 0)], values=torch.zeros(4, 1, 1, 8))],
        )


def test_a_saved_patch(pair, model):
    true, false = pair
    patch = Patch("resid_post", layers=[1], at="label_word", demo=1, source=true)
    again = load_intervention(patch.to_dict())
    assert again.source.digest == true.digest
    assert torch.equal(
        logits(model, false, [patch], path="whole"), logits(model, false, [again], path="whole")
    )
    given = Patch("z", [(0, 1)], values=torch.randn(1, 8))
    assert torch.equal(load_intervention(given.to_dict()).values, given.values)
    assert "source" in repr(patch)


def test_places(pair):
    prompt = pair[0][0]
    assert Place("label_word").positions(prompt) == [
        i for span in prompt.label_spans for i in range(span.start, span.stop)
    ]
    assert Place("all").positions(prompt) == list(range(len(prompt)))
    one = Place("all", 1).positions(prompt)
    assert {prompt.label_positions[1]} <= set(one) < set(range(len(prompt)))
    assert Place([3]).positions(prompt) == [3]


def test_the_packages_names_of_interventions_are_taken():
    with WORDS.raises(RunError, "packages_names_interventions_taken", "'Patch'"):
        type("Patch", (Patch,), {"__module__": "mine"})
