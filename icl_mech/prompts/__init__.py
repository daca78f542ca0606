"""Prompts with named spans; all character-level processing is in this package."""

from icl_mech.prompts.any_text import texts
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import build_prompt_pairs, build_prompts
from icl_mech.prompts.chat import chat_template
from icl_mech.prompts.from_text import pairs_from_text, prompts_from_text
from icl_mech.prompts.given import check_batch
from icl_mech.prompts.moved import moved_anchors
from icl_mech.prompts.rationales import corrupted_rationales, rationale_prefix, with_rationales
from icl_mech.prompts.rewriting import shuffled_labels
from icl_mech.prompts.spans import (
    ANSWER_KINDS,
    AnswerKind,
    Candidate,
    Prompt,
    Role,
    Span,
    WordScore,
)
from icl_mech.prompts.text_sets import TextSet

__all__ = [
    "ANSWER_KINDS",
    "AnswerKind",
    "Candidate",
    "Prompt",
    "PromptBatch",
    "Role",
    "Span",
    "TextSet",
    "WordScore",
    "build_prompt_pairs",
    "build_prompts",
    "chat_template",
    "check_batch",
    "corrupted_rationales",
    "moved_anchors",
    "pairs_from_text",
    "prompts_from_text",
    "rationale_prefix",
    "shuffled_labels",
    "texts",
    "with_rationales",
]
