"""Prompts with named spans: the only place that knows characters."""

from icl_mech.prompts.any_text import texts
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import build_prompt_pairs, build_prompts
from icl_mech.prompts.chat import chat_template
from icl_mech.prompts.from_text import prompts_from_text
from icl_mech.prompts.given import check_batch, check_classes
from icl_mech.prompts.spans import Prompt, Role, Span

__all__ = [
    "Prompt",
    "PromptBatch",
    "Role",
    "Span",
    "build_prompt_pairs",
    "build_prompts",
    "chat_template",
    "check_batch",
    "check_classes",
    "prompts_from_text",
    "texts",
]
