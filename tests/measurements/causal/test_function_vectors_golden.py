"""Effects of heads, function vectors and task vectors equal the reference code's numbers."""

import re

import numpy as np
import pytest
import torch

from icl_mech import (
    AddVector,
    Patch,
    Prompt,
    PromptBatch,
    function_vector,
    head_mediation,
    steer,
    task_vector,
)
from icl_mech.engine import Reading, run
from icl_mech.measurements.causal.answers import AnswerReading
from icl_mech.models import Site
from tests.golden_data import arrays, document, golden_model

NAMES = ("gpt2", "gptj")


class Logits(Reading):
    """Logits of the vocabulary at the target."""

    target_only = True

    def sites(self, info):
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site, activation, segment):
        return segment.model.logits(segment.at_target(activation))

    def collect(self, kept):
        return kept.stacked()[:, 0]


def batch(rows, labels=(0, 1)):
    return PromptBatch(
        tuple(
            Prompt.from_positions(
                row["input_ids"] if isinstance(row, dict) else row,
                label_positions=[],
                label_classes=[],
                label_tokens=list(labels),
                answer=labels.index(row["answer_id"]) if "answer_id" in row else None,
            )
            for row in rows
        )
    )


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    name = request.param
    return (
        golden_model("overthinking", f"tiny_{name}"),
        document("causal_heads", f"function_vectors_{name}.json"),
        arrays("causal_heads", f"function_vectors_{name}.npz"),
    )


def mediated(case, kind):
    model, data, _ = case
    rows = data[f"ie_{kind}_prompts"]
    labels = sorted({row["answer_id"] for row in rows} | {0, 1})
    return head_mediation(model, batch(data["mean_prompts"], labels), batch(rows, labels))


@pytest.mark.parametrize(("kind", "close"), [("last", 2e-8), ("last_top1", 5e-6)])
def test_effects_of_heads(case, kind, close):
    golden, found = case[2], mediated(case, kind)
    assert np.abs(found.probability.numpy() - golden[f"indirect_effect_{kind}"]).max() <= close
    assert np.abs(found.effect().numpy() - golden[f"aie_{kind}"]).max() <= close
    assert np.abs(found.plain_probability.numpy() - golden[f"clean_prob_{kind}"]).max() <= close
    slots = golden["mean_head_activations"]
    assert np.abs(found.means.numpy() - slots[:, :, -1]).max() <= 2e-5


def test_function_vectors(case):
    model, _, golden = case
    mediation = mediated(case, "last")
    for k in (1, 3, 5):
        clean, reference = (
            function_vector(model, mediation, k, biases=own) for own in (False, True)
        )
        assert clean.heads == tuple(map(tuple, golden[f"top_heads_{k}"].tolist()))
        sound = golden[f"function_vector_top{k}_without_bias"]
        assert np.abs(clean.vector.numpy() - sound).max() <= 1e-5
        assert np.abs(reference.vector.numpy() - golden[f"function_vector_top{k}"]).max() <= 1e-5
        assert torch.allclose(clean.parts.sum(0), clean.vector, atol=1e-5)


def test_added_to_prompts_without_demonstrations(case):
    model, data, golden = case
    prompts = batch(
        data["zero_shot_prompts"], sorted({r["answer_id"] for r in data["zero_shot_prompts"]})
    )
    (plain,) = run(model, prompts, [Logits()])
    assert np.abs(plain.numpy() - golden["zero_shot_clean_logits"]).max() <= 2e-5
    vector = torch.tensor(golden["function_vector_top5"])
    expected = torch.tensor(golden["zero_shot_logits_with_fv5_by_layer"])
    found = steer(model, prompts, vector)
    for layer in range(expected.shape[1]):
        (logits,) = run(model, prompts, [Logits()], [AddVector(vector, layer)])
        assert float((logits - expected[:, layer]).abs().max()) <= 2e-5
        rows = torch.arange(len(prompts))
        right = expected[:, layer].log_softmax(-1)[rows, prompts.label_tokens[prompts.answers]]
        assert torch.allclose(found.probability[:, layer].log(), right.double(), atol=5e-5)


def test_classes_of_tokens(case):
    """`z` replaced at every token of a class, each by the mean of its slot."""
    model, data, golden = case
    slots = torch.tensor(golden["mean_head_activations"])
    for number, row in enumerate(data["ie_classes_prompts"]):
        prompts = batch([row], sorted({row["answer_id"], 0, 1}))
        (plain,) = run(model, prompts, [AnswerReading()])
        ids = [int(row["idx_map"][str(i)]) for i in range(len(row["input_ids"]))]
        assert max(ids) < slots.shape[2]
        for c, name in enumerate(data["class_names"]):
            names = [re.sub(r"_\d+|_token", "", own) for own in row["token_labels"]]
            positions = [
                i for i, own in enumerate(names) if (own == name or own == f"demonstration_{name}")
            ]
            for layer, head in ((0, 1), (2, 3)):
                expected = golden["indirect_effect_classes"][number, layer, head, c]
                if not positions:
                    assert expected == 0
                    continue
                values = slots[layer, head][[ids[i] for i in positions]][:, None]
                patch = Patch("z", [(layer, head)], at=positions, values=values)
                (found,) = run(model, prompts, [AnswerReading()], [patch])
                own = found.probability(prompts.answers) - plain.probability(prompts.answers)
                assert abs(float(own[0]) - expected) <= 2e-8


@pytest.mark.parametrize("name", NAMES)
def test_task_vectors(name):
    model = golden_model("overthinking", f"tiny_{name}")
    golden = {
        key.removeprefix(f"{name}_"): value
        for key, value in arrays("causal_heads", "task_vectors.npz").items()
        if key.startswith(f"{name}_")
    }
    for number, expected in enumerate(golden["task_vectors_single"]):
        dummies = batch(golden["dummy_query_context_input_ids"][number].tolist())
        found = task_vector(model, dummies)
        assert np.abs(found.vectors.numpy() - expected).max() <= 1e-4
        query = batch([golden["query_input_ids"][number].tolist()])
        for layer, logits in enumerate(golden["logits_patched_by_layer"][number]):
            patch = Patch("resid_post", layers=[layer], values=torch.tensor(expected)[layer][None])
            (own,) = run(model, query, [Logits()], [patch])
            assert np.abs(own[0].numpy() - logits).max() <= 2e-5
