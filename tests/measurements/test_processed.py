"""Saliency of processed weights is not that of the checkpoint: users are told."""

from dataclasses import replace

import pytest

from icl_mech import analyze, flow_scores, saliency_maps
from icl_mech.models import adapt
from tests.golden_data import golden_model, label_words_prompts
from tests.said import Words

WORDS = Words(__file__)


@pytest.mark.parametrize("measure", [flow_scores, saliency_maps, analyze])
def test_processed_weights_are_told(measure):
    adapted = adapt(golden_model("label_words", "tiny_gpt2"))
    own = adapted.info
    prompts = label_words_prompts("saliency/sst2_s1")[:2]
    adapted.info = replace(own, processed_weights=True)
    try:
        with WORDS.warns(UserWarning, "processed_weights_told", "'tiny_gpt2'"):
            measure(adapted, prompts)
    finally:
        adapted.info = own
    measure(adapted, prompts)  # warnings are errors in tests: none here
