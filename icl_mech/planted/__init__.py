"""Synthetic models as positive and negative controls: a known circuit, none, or another mechanism.

All weights are set by hand, so the ground truth is known and every measurement of label words and heads can be
checked against it.
"""

from icl_mech.planted.heads import (
    FALSE_INDUCTION_HEADS,
    FUNCTION_VECTOR_HEADS,
    GATHERING_HEAD,
    INDUCTION_HEADS,
    LABEL_PROMOTING_HEADS,
    LEARNING_HEAD,
)
from icl_mech.planted.model import (
    ASKING_HEAD,
    CLOSE_CLASSES,
    COLLECTING_HEAD,
    KNOWING_HEAD,
    READING_HEAD,
    WEAK_CLASS,
    planted_model,
)
from icl_mech.planted.nonsense import nonsense_labels
from icl_mech.planted.nulls import NULLS, NullNetwork, null_model
from icl_mech.planted.rationales import rationale_model, rationale_task
from icl_mech.planted.task import TASK_LEARNING_HEADS, TASK_RECOGNITION_HEADS
from icl_mech.planted.words import LABELS, planted_task

__all__ = [
    "ASKING_HEAD",
    "CLOSE_CLASSES",
    "COLLECTING_HEAD",
    "FALSE_INDUCTION_HEADS",
    "FUNCTION_VECTOR_HEADS",
    "GATHERING_HEAD",
    "INDUCTION_HEADS",
    "KNOWING_HEAD",
    "LABELS",
    "LABEL_PROMOTING_HEADS",
    "LEARNING_HEAD",
    "NULLS",
    "READING_HEAD",
    "TASK_LEARNING_HEADS",
    "TASK_RECOGNITION_HEADS",
    "WEAK_CLASS",
    "NullNetwork",
    "nonsense_labels",
    "null_model",
    "planted_model",
    "planted_task",
    "rationale_model",
    "rationale_task",
]
