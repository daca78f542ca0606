"""Resolution of names: user-defined values by address, `my_module:MyMeasurement`, on the command line and in files;
and earlier names of measurements and results, which stay valid there, in Python and in saved folders.
"""

import gc
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, get_origin

from icl_mech.errors import IclMechError, near_matches

VERSIONED = ("icl-mech", "torch", "transformers", "transformer-lens")
"""Packages whose versions affect numbers."""

NOT_INSTALLED = "+not.installed"
"""Suffix of the version of a checkout that is on Python's path without being installed."""

EVERY_KIND = "icl_mech.loading"
"""A module that imports all others, so that every kind that files may name is defined."""

_ADDRESS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def version(package: str) -> str:
    """The version of an installed package; for this one, if not installed, the marked version of its checkout.

    Raises:
        IclMechError: another package is not installed, or lacks the metadata that holds its version.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        if package != VERSIONED[0]:
            raise IclMechError(
                f"Python finds no version of {package}: it is not installed, or its files were copied "
                "without the folder that ends in .dist-info. Install it with pip."
            ) from error
    project = Path(__file__).parents[1] / "pyproject.toml"
    text = project.read_text(encoding="utf-8") if project.is_file() else ""
    number = re.search(rf'^name = "{VERSIONED[0]}"\s+version = "(.+)"', text, re.MULTILINE)
    return (number[1] if number else "0") + NOT_INSTALLED


def versions() -> str:
    """This package's version, and the others in brackets."""
    first, *others = (f"{name} {version(name)}" for name in VERSIONED)
    return f"{first} ({', '.join(others)})"


@contextmanager
def unsearched() -> Iterator[None]:
    """Context whose new objects are not searched for garbage until the oldest generation is.

    Libraries and models create a million objects with hardly any garbage, and searching them takes a second.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # both together move everything into the oldest generation
        gc.unfreeze()
        gc.enable()


def is_address(text: str) -> bool:
    """True for `module:Name`."""
    return _ADDRESS.fullmatch(text) is not None


def is_kind(value: object, kind: type[Any]) -> bool:
    """True for a class of a kind; in Python 3.10 `list[int]` calls itself a class, too."""
    return isinstance(value, type) and get_origin(value) is None and issubclass(value, kind)


def kind_at(address: str, kind: type[Any], error: type[IclMechError]) -> Any:
    """The object at an address: a value of a kind, or a class of such values.

    Raises:
        IclMechError: of the given class; there is no such module or name, or the object is of another kind.
    """
    what = kind.__name__
    if not is_address(address):
        raise error(
            f"{address!r} is not an address; write module:Name, such as my_module:My{what}."
        )
    module_name, _, name = address.partition(":")
    try:
        module = import_module(module_name)
    except Exception as problem:
        raise error(
            f"{address!r}: the module {module_name!r} cannot be imported "
            f"({type(problem).__name__}: {problem}). It must be in the folder from which the "
            "command is run, or be installed."
        ) from problem
    target = getattr(module, name, None)
    if isinstance(target, kind) or is_kind(target, kind):
        return target
    if target is not None:
        raise error(f"{address!r} is a {type(target).__name__}; expected a {what}, or its class.")
    known = [
        key
        for key, value in vars(module).items()
        if isinstance(value, kind) or is_kind(value, kind)
    ]
    hint = near_matches(name, known) if known else f"It contains no {what}."
    raise error(f"The module {module_name!r} has no {name!r}. {hint}")


def at_address(address: str, kind: type[Any], error: type[IclMechError]) -> Any:
    """The value at an address; a class is instantiated with its defaults.

    Raises:
        IclMechError: of the given class; there is none, or it has no defaults.
    """
    target = kind_at(address, kind, error)
    if not isinstance(target, type):
        return target
    try:
        return target()
    except (TypeError, IclMechError) as problem:
        raise error(
            f"{address!r} cannot be created with its defaults ({problem}); create a value in the "
            "module, and give its name."
        ) from problem


# --- names of earlier versions, each with the present one ---


def table(text: str) -> dict[str, str]:
    """Mapping from words of the form `name:value`."""
    return dict(pair.split(":") for pair in text.split())


MEASUREMENTS = table("""
    Ablate:Ablation AccuracyByDemonstrations:ContextAccuracy AccuracyByLayer:LayerAccuracy
    AttentionOfHeads:HeadAttention AttributePatching:AttributionPatching
    CheckSaliency:SaliencyCheck Compress:CompressDemonstrations FindHeads:FalseInduction
    HeadScoring:HeadScores Induction:InductionScores IsolationWindows:IsolationMap
    LayerMatching:MatchingByLayer LeavingEarly:EarlyExit Lens:LogitLens
    MediateHeads:HeadMediation Saliency:SaliencyMaps TakeTaskVector:TaskVector
""")
"""Classes of `icl_mech.measurements`."""

KEYS = table("""
    compared_lenses:compare_lenses compression:compare_compression generation:generate
    head_comparison:compare_heads saliency:saliency_maps vector_effect:steer
""")
"""Names of measurements, and of their results in an `Analysis`."""

KINDS = table("""
    Ablation:AblationResult AgreementOfAnchors:AnchorAgreementResult
    Attribution:AttributionPatchingResult ComparedLenses:CompareLensesResult
    CompressedContext:CompressContextResult CompressionResult:CompressDemonstrationsResult
    CompressionTable:CompareCompressionResult ConfusionDiagnosis:ConfusionResult
    ContextAccuracy:ContextAccuracyResult DemonstrationFlow:FlowByDemonstrationResult
    EarlyExit:EarlyExitResult FalseInductionHeads:FalseInductionResult Generation:GenerateResult
    HeadAttention:HeadAttentionResult HeadComparison:CompareHeadsResult
    HeadMediation:HeadMediationResult HeadScores:HeadScoresResult
    InductionScores:InductionScoresResult IsolationMap:IsolationMapResult
    LayerAccuracy:LayerAccuracyResult LeftOut:LeaveOneOutResult LogitLens:LogitLensResult
    MatchingByLayer:MatchingByLayerResult SaliencyCheck:SaliencyCheckResult
    SaliencyMaps:SaliencyMapsResult SpanMatrices:SpanFlowResult
    SuppressionEffects:SuppressionResult TaskVector:TaskVectorResult
    TokenAnchors:AnchorTokensResult TopWords:TopWordsResult VectorEffect:SteerResult
""")
"""Kinds of results in saved files."""


def key_now(name: str, known: Collection[str] = ()) -> str:
    """The key of a measurement of this name, unless it is one of `known` as it is."""
    return name if name in known else KEYS.get(name, name)
