"""Models: loading, checking, and one interface over TransformerLens' two model classes."""

from icl_mech.model_sources import KnownModel, content_of, known_models
from icl_mech.models.adapt import Quantization, adapt, load_model
from icl_mech.models.interface import (
    ForwardOutput,
    Hook,
    HookFunction,
    KeyValues,
    LanguageModel,
    ModelInfo,
    Resume,
    Site,
    SiteName,
)
from icl_mech.models.lock import exclusive, waiting
from icl_mech.models.server import SaliencySums, ServerModel, remote_model
from icl_mech.models.transfer import to_device, to_host
from icl_mech.models.undo import at_least_float32

__all__ = [
    "ForwardOutput",
    "Hook",
    "HookFunction",
    "KeyValues",
    "KnownModel",
    "LanguageModel",
    "ModelInfo",
    "Quantization",
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
    "to_device",
    "to_host",
    "waiting",
]
