"""Candidates judged by over-trust, and roll-back, against OPERA's own search."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import icl_mech as icl
from icl_mech.errors import RunError
from icl_mech.measurements.generation.over_trust import Beams, ModelStepper, OverTrust, Search
from icl_mech.metrics.over_trust import head_maximum
from icl_mech.models import adapt
from tests.engine.test_paths import TASK
from tests.golden_data import arrays, golden_model
from tests.tiny import tiny_model


def opera():
    return arrays("any_text", "opera.npz")


@dataclass
class Scripted:
    """Attention and logits of given tables, whatever the tokens."""

    attention: torch.Tensor
    logits: torch.Tensor
    prompt: list[int]
    given: slice
    by_token: torch.Tensor | None = None

    def begin(self, beams):
        return self._at([()] * beams)

    def extend(self, beams, parents, tokens):
        pairs = zip(parents, tokens, strict=True)
        return self._at([(*beams.texts[parent], token) for parent, token in pairs])

    def picked(self, beams, rows):
        return self._at([beams.texts[row] for row in rows])

    def _at(self, texts):
        start, count = len(self.prompt), len(self.prompt) + len(texts[0])
        rows = head_maximum(self.attention.tril())
        logits = [
            self.logits[count - 1]
            + (0 if self.by_token is None else self.by_token[[*self.prompt, *text][-1]])
            for text in texts
        ]
        return Beams(
            tuple(texts),
            torch.stack(logits),
            rows[start:count, start:count].expand(len(texts), -1, -1),
            rows[count - 1, self.given].sum().expand(len(texts)),
        )


def scripted(name, given):
    table = {
        key: torch.tensor(opera()[f"{name}_{key}"])
        for key in ("attention", "logits", "token_logits")
        if f"{name}_{key}" in opera().files
    }
    prompt = opera()[f"{name}_prompt_ids"].tolist()
    return Scripted(table["attention"], table["logits"], prompt, given, table.get("token_logits"))


def sound(penalties):
    """Steps before penalties let the reference write what was no candidate."""
    return int((np.abs(penalties) > 900).any(-1).argmax())


@pytest.mark.parametrize("beams", [2, 3])
def test_roll_back(beams):
    name = f"roll_beams{beams}"
    data = opera()
    stepper = scripted(name, slice(1, 5))
    search = Search(stepper, OverTrust(beams, 3, 1.0, int(data[f"{name}_threshold"])))
    search.write(36 - len(stepper.prompt))
    np.testing.assert_array_equal(search.windows, data[f"{name}_window_length"])
    np.testing.assert_array_equal(search.backs, data[f"{name}_rollback_pos"])
    np.testing.assert_array_equal(search.pointed, data[f"{name}_points_to"])
    # From there on all its candidates lie below what is out.
    steps = np.flatnonzero(np.isinf(data[f"{name}_next_token_logits"]).any((1, 2)))[0] - 1
    assert steps > 60
    for texts, expected in zip(search.texts[:steps], data[f"{name}_ids_after_check"], strict=False):
        for text, ids in zip(texts, expected, strict=True):
            assert [*stepper.prompt, *text] == ids[ids >= 0].tolist()


def test_given_table():
    data, stepper = opera(), scripted("given", slice(1, 4))
    search = Search(stepper, OverTrust(2, 3, 1.0, 100))
    found = search.write(len(data["given_points_to"]))
    assert search.pointed == data["given_points_to_f64"].tolist()
    steps = sound(data["given_penalty"])
    assert steps > 10
    for texts, expected in zip(search.texts[: steps + 1], data["given_candidates"], strict=False):
        logits = stepper._at(texts).logits
        assert logits[0].topk(3).indices.tolist() == expected.tolist()
    assert len(found) == len(data["given_points_to"])


def test_one_beam_without_weight_is_greedy():
    stepper = scripted("overflow", slice(0, 2))
    found = Search(stepper, OverTrust(1, 3, 0.0, 1000)).write(39)
    greedy = stepper.logits[len(stepper.prompt) - 1 :][:39].argmax(-1).tolist()
    assert list(found) == greedy


def test_what_is_no_candidate_is_never_written():
    stepper = scripted("overflow", slice(0, 2))
    search = Search(stepper, OverTrust(2, 3, 1.0, 1000))
    found = search.write(39)
    for step, token in enumerate(found):
        top = stepper.logits[len(stepper.prompt) - 1 + step].topk(3).indices
        assert token in top.tolist()


def test_a_text_may_end_before():
    stepper = scripted("overflow", slice(0, 2))
    how = OverTrust(1, 3, 0.0, 1000)
    free = Search(stepper, how).write(10)
    assert Search(stepper, how).write(10, frozenset([free[4]])) == free[: free.index(free[4]) + 1]


# With a model


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=1, n=2)


def test_without_weight_a_model_writes_greedily(model, prompts):
    greedy = icl.generate(model, prompts, max_new_tokens=8)
    how = OverTrust(beams=1, candidates=3, weight=0.0, threshold=100)
    found = icl.generate(model, prompts, max_new_tokens=8, over_trust=how)
    assert torch.equal(found.tokens, greedy.tokens)
    assert torch.allclose(found.attention, greedy.attention, atol=1e-5)


def test_steps_of_a_model_see_what_whole_texts_see(model, prompts):

    stepper = ModelStepper(adapt(model), prompts, 1, ())
    beams = stepper.begin(2)
    beams = stepper.extend(beams, [0, 1], [5, 9])
    beams = stepper.extend(beams, [1, 1, 0], [7, 8, 6])
    assert beams.texts == ((9, 7), (9, 8), (5, 6))
    beams = stepper.picked(beams, [2, 0])
    start = len(prompts[1])
    given = [i for span in prompts[1].spans if span.demo is not None
             for i in range(span.start, span.stop)]  # fmt: skip
    for row, text in enumerate(beams.texts):
        with torch.no_grad():
            logits, cache = model.run_with_cache(torch.tensor([[*prompts[1].tokens, *text]]))
        rows = head_maximum(cache["blocks.2.attn.hook_pattern"])[0]
        assert torch.allclose(beams.rows[row], rows[start:, start:], atol=1e-6)
        assert float(beams.mass[row]) == pytest.approx(float(rows[-1, given].sum()), abs=1e-6)
        assert torch.allclose(beams.logits[row], logits[0, -1], atol=1e-4)


def test_weight_changes_what_is_written(model, prompts):
    written = [
        icl.generate(
            model, prompts, max_new_tokens=16, attention=False,
            over_trust=OverTrust(beams=2, candidates=4, weight=weight, threshold=100),
        ).tokens
        for weight in (0.0, 50.0)
    ]  # fmt: skip
    assert not torch.equal(*written)


def test_drawn_texts_are_not_judged(model, prompts):
    with pytest.raises(RunError, match="over_trust"):
        icl.generate(model, prompts, do_sample=True, over_trust=OverTrust())
    with pytest.raises(RunError, match="weight"):
        OverTrust(weight=-1.0)


def searched(beams, weight):
    """The search on tiny GPT-2, its prompt, and what it wrote."""
    tokens = opera()[f"gpt2_beams{beams}_prompt_ids"].tolist()
    prompt = icl.Prompt.from_positions(
        tokens, label_positions=[], label_classes=[], label_tokens=[1, 2]
    )
    model = adapt(golden_model("overthinking", "tiny_gpt2"))
    stepper = ModelStepper(model, icl.PromptBatch((prompt,)), 0, ())
    stepper.given = torch.arange(1, 10)
    search = Search(stepper, OverTrust(beams, 4, weight, 100))
    return search, tokens, [*tokens, *search.write(54 - len(tokens))]


@pytest.mark.parametrize("beams", [2, 3])
def test_the_search_of_the_reference_on_tiny_gpt2(beams):
    """Penalties are small enough here for its float16."""
    data = opera()
    search, tokens, found = searched(beams, 1.0)
    expected = data[f"gpt2_beams{beams}_step_input_ids"]
    for texts, steps in zip(search.texts, expected, strict=True):
        for text, ids in zip(texts, steps, strict=True):
            assert [*tokens, *text] == ids[ids >= 0].tolist()
    assert found == data[f"gpt2_beams{beams}_out_ids"].tolist()


def test_without_weight_it_is_the_reference_without_penalty():
    """That is not beam search: probabilities are among the candidates of each beam."""
    data = opera()
    _, tokens, found = searched(2, 0.0)
    # In windows of 22 its float16 penalty is infinite, and 0 times that is no number.
    sound = len(tokens) + 21
    assert found[:sound] == data["gpt2_beams2_penalty0_out_ids"].tolist()[:sound]
    assert found[:sound] != data["gpt2_beams2_plain_beam_out_ids"].tolist()[:sound]
