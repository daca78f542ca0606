"""A model with a known anchor circuit, and one without: positive and negative control.

Every measurement of label words can be held against them: what is there is known, because all
weights were set by hand.
"""

from icl_mech.planted.model import (
    ASKING_HEAD,
    CLOSE_CLASSES,
    COLLECTING_HEAD,
    KNOWING_HEAD,
    READING_HEAD,
    WEAK_CLASS,
    planted_model,
)
from icl_mech.planted.words import LABELS, planted_task

__all__ = [
    "ASKING_HEAD",
    "CLOSE_CLASSES",
    "COLLECTING_HEAD",
    "KNOWING_HEAD",
    "LABELS",
    "READING_HEAD",
    "WEAK_CLASS",
    "planted_model",
    "planted_task",
]
