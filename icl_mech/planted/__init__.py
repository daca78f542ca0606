"""Models with known circuits, one without, and others that do the task another way: positive and negative controls.

Every measurement of label words and of heads can be held against them: what is there is known, because
all weights were set by hand.
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
    "WEAK_CLASS",
    "NullNetwork",
    "nonsense_labels",
    "null_model",
    "planted_model",
    "planted_task",
]
