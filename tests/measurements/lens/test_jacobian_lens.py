"""Jacobian lenses: the reference's numbers, TransformerLens' own tool, the logit lens."""

import pytest
import torch
from torch.testing import assert_close

from icl_mech.engine import run
from icl_mech.errors import PromptError
from icl_mech.measurements.lens.jacobian import JacobianLens, fit_jacobian_lens
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.prompts import Prompt, PromptBatch
from tests.golden_data import arrays, golden_model
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def golden():
    return arrays("lenses", "jacobian_lens.npz"), golden_model("overthinking", "tiny_gpt2")


@pytest.fixture(scope="module")
def fitted(golden):
    numbers, model = golden
    return fit_jacobian_lens(model, numbers["jacobian_fit_ids"].tolist(), rows=64, progress=False)


def with_embedding(jacobian):
    """The reference has none for entry 0, which is left as it is."""
    own = torch.from_numpy(jacobian)
    return torch.cat([torch.eye(own.shape[-1])[None], own])


def golden_prompts(numbers):
    ids = numbers["read_input_ids"].tolist()
    return PromptBatch(
        tuple(
            Prompt.from_positions(
                ids[: place + 1], label_positions=[], label_classes=[],
                label_tokens=list(range(768)),
            )
            for place in numbers["read_positions"].tolist()
        )
    )  # fmt: skip


def read(model, prompts, lens):
    (found,) = run(model, prompts, [LayerLensReading(vocabulary=False, lens=lens)])
    return found.label_logits[:, 0]


def test_the_references_jacobians(golden, fitted):
    numbers, _ = golden
    assert_close(fitted.jacobian[1:], torch.from_numpy(numbers["jacobian_fit"]), atol=5e-6, rtol=0)


def test_how_many_rows_at_once_does_not_matter(golden, fitted):
    numbers, model = golden
    again = fit_jacobian_lens(model, numbers["jacobian_fit_ids"].tolist(), rows=23, progress=False)
    assert_close(again.jacobian, fitted.jacobian, atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", ["fit", "random"])
def test_the_references_logits(golden, kind):
    numbers, model = golden
    lens = JacobianLens.given(model, with_embedding(numbers[f"jacobian_{kind}"]))
    found = read(model, golden_prompts(numbers), lens)
    wanted = torch.from_numpy(numbers[f"jacobian_{kind}_logits"]).transpose(0, 1)
    assert_close(found[:, 1:], wanted, atol=3e-5, rtol=0)


def test_an_identity_is_the_logit_lens_to_the_last_bit(golden):
    numbers, model = golden
    eye = torch.eye(64).repeat(4, 1, 1)
    prompts = golden_prompts(numbers)
    found = read(model, prompts, JacobianLens.given(model, eye))
    assert torch.equal(found, read(model, prompts, None))


def test_transformer_lens_own_tool_gives_the_same():
    tool = pytest.importorskip("transformer_lens.tools.analysis.jacobian_lens")
    model = tiny_model("gpt2")
    texts = [
        "Review: a good film World Sports Business Answer:",
        "Article: boring nice story bad bad",
    ]
    theirs = tool.JacobianLens.fit(
        model, texts, corpus="two texts", skip_first_positions=2, show_progress=False
    )
    ids = [model.to_tokens(text)[0].tolist() for text in texts]
    ours = fit_jacobian_lens(model, ids, skip_first=2, progress=False)
    for layer in theirs.source_layers:
        assert_close(
            ours.jacobian[layer + 1], theirs.jacobians[layer].float(), atol=5e-6, rtol=1e-5
        )


def test_held_out_prompts_are_read_beside_the_logit_lens(golden):
    numbers, model = golden
    ids = numbers["jacobian_fit_ids"].tolist()
    lens = fit_jacobian_lens(model, ids[:1], rows=64, held_out=ids[1:], progress=False)
    assert lens.held_out_kl.shape == (2, 2, 5)
    assert bool((lens.held_out_kl[..., -1] == 0).all())
    assert bool((lens.held_out_kl[..., :-1] > 0).all())


def test_prompts_that_are_too_short_are_refused(golden):
    _, model = golden
    with WORDS.raises(PromptError, "prompts_too_short_refused", "5", "16", "18"):
        fit_jacobian_lens(model, [[1, 2, 3, 4, 5]])


def test_one_prompt_by_hand(golden):
    """The effect of one number of one residual, by a small change of it."""
    numbers, model = golden
    ids = numbers["jacobian_fit_ids"].tolist()[0][:20]
    lens = fit_jacobian_lens(model, [ids], skip_first=16, rows=64, progress=False)
    step, dim, entry, inside = 1e-2, 5, 2, range(16, 19)
    tokens = torch.tensor([ids])
    changes = []
    for place in inside:
        ends = []
        for sign in (1, -1):

            def nudge(residual, hook, place=place, sign=sign):
                residual = residual.clone()
                residual[:, place, dim] += sign * step
                return residual

            with model.hooks(fwd_hooks=[(f"blocks.{entry}.hook_resid_pre", nudge)]):
                _, cache = model.run_with_cache(tokens)
            ends.append(cache["blocks.3.hook_resid_post"][0, list(inside)].sum(0))
        changes.append((ends[0] - ends[1]) / (2 * step))
    wanted = torch.stack(changes).mean(0)
    assert_close(lens.jacobian[entry, :, dim], wanted, atol=2e-3, rtol=1e-2)
