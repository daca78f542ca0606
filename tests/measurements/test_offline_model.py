"""The offline model, whose file Hugging Face reads once: attention of its heads, its lens, what it writes."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import icl_mech as icl
from icl_mech.lenses import lens_table
from icl_mech.measurements.heads.head_attention import head_attention
from icl_mech.model_sources import DEFAULT_MODEL, resolve
from tests.measurements.heads.test_all_heads import CLOSE, pattern
from tests.measurements.lens.test_lens_table import assert_is_the_loop, by_hand
from tests.measurements.test_generation import NEW, huggingface, written


@pytest.fixture(scope="module")
def model():
    return icl.load_model()


@pytest.fixture(scope="module")
def hf():
    """The offline model as Hugging Face reads its file."""
    file = Path(resolve(DEFAULT_MODEL).location)
    options = {"gguf_file": file.name, "attn_implementation": "eager", "dtype": torch.float32}
    return AutoModelForCausalLM.from_pretrained(str(file.parent), **options).eval()


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts("headlines", model, shots=1, n=4)


def test_all_heads_are_hugging_faces(model, hf, prompts):
    own = pattern(hf, prompts[0].tokens)
    for row, place in (("target", prompts[0].target), (40, 40)):
        (values,) = head_attention(model, prompts, row=row, first=1).values
        assert_close(values, own[:, :, place, : place + 1].flatten(0, 1), **CLOSE)


def test_the_lens_table_is_a_plain_loop(model, hf, prompts):
    found = lens_table(model, prompts[:1])
    assert_is_the_loop(found, 0, by_hand(hf, prompts[0].tokens))


def test_it_writes_what_hugging_face_writes(model):
    prompts = icl.build_prompts("reviews", model, shots=1, n=3)
    found = icl.generate(model, prompts, max_new_tokens=NEW)
    for row, prompt in enumerate(prompts):
        assert written(found, row) == huggingface(model, prompt)
