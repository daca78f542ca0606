"""Models: loading, checking, and one interface over TransformerLens' two model classes."""

from icl_mech.models.adapt import adapt, load_model
from icl_mech.models.interface import (
    ForwardOutput,
    Hook,
    HookFunction,
    LanguageModel,
    ModelInfo,
    Resume,
    Site,
    SiteName,
)
from icl_mech.models.key_values import KeyValues
from icl_mech.models.known import KnownModel, known_models
from icl_mech.models.lock import exclusive, waiting
from icl_mech.models.precision import at_least_float32
from icl_mech.models.server import SaliencySums, ServerModel, remote_model
from icl_mech.models.sources import content_of

__all__ = [
    "ForwardOutput",
    "Hook",
    "HookFunction",
    "KeyValues",
    "KnownModel",
    "LanguageModel",
    "ModelInfo",
    "Resume",
    "SaliencySums",
    "ServerModel",
    "Site",
    "SiteName",
    "adapt",
    "at_least_float32",
    "content_of",
    "exclusive",
    "known_models",
    "load_model",
    "remote_model",
    "waiting",
]
