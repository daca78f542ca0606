"""Figures of each result for a page, each with the one sentence it shows."""

from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.confusion.diagnosis import ConfusionDiagnosis
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.isolation.windows import IsolationResult
from icl_mech.measurements.reweighting.reweighting import ReweightingResult
from icl_mech.reports import Section
from icl_mech.results import Result

TITLES = {
    "predictions": "Predictions",
    "flow": "Information flow",
    "saliency": "Saliency map of one prompt",
    "isolation": "Isolating label words",
    "isolation_map": "Where label words collect",
    "extraction": "What the prediction is read from",
    "compression": "Demonstrations compressed to their anchors",
    "confusion": "Which classes are confused",
    "reweighting": "Anchor re-weighting",
    "layer_accuracy": "True and false demonstrations by layer",
    "context_accuracy": "Accuracy by number of demonstrations",
    "early_exit": "Overthinking",
    "head_scores": "Heads that match prefixes",
    "matching_by_layer": "Prefix matching and the gap by layer",
    "head_attention": "Where the heads look",
    "false_induction": "False induction heads",
    "ablation": "Ablations",
    "published": "Published numbers",
}


def sections(name: str, result: Result) -> list[Section]:
    """The sections of one result: title, sentence, figure, provenance."""
    title = TITLES.get(name, name.replace("_", " "))
    found = [Section(title, result.summary(), result.plot(), result.provenance)]
    for more, sentence, options in _further(result):
        figure = result.plot(**options)
        found.append(Section(f"{title}: {more}", sentence, figure, result.provenance))
    return found


def _further(result: Result) -> list[tuple[str, str, dict[str, str]]]:
    """Figures beside the first: name, sentence, and the options of the result's drawing."""
    if isinstance(result, IsolationResult):
        sentence = f"Share of the {result.top_k} likeliest next tokens that isolation leaves."
        return [("next words", sentence, {"quantity": "word"})]
    if isinstance(result, CompressionTable):
        return [("table", "The same numbers as a table, with costs.", {"kind": "table"})]
    if isinstance(result, ReweightingResult):
        beta = result.beta
        sentence = (
            f"Logarithms of the learned factors, from {float(beta.min()):.2f} to "
            f"{float(beta.max()):.2f}; above 0 the target attends more to label words."
        )
        return [("learned factors", sentence, {"what": "beta"})]
    if isinstance(result, ConfusionDiagnosis) and not bool(result.correlation.isnan().all()):
        return [
            ("by layer", "Rank correlation of both matrices in every layer.", {"what": "layers"})
        ]
    if isinstance(result, LayerAccuracy):
        return [
            (
                "plain accuracy",
                "The same entries, argmax over the label words.",
                {"metric": "plain"},
            ),
            (
                "label space",
                "Probability of all label words together: where the format is understood.",
                {"metric": "label_space"},
            ),
        ]
    if isinstance(result, HeadScores) and result.promoting is not None:
        return [
            (
                "label promoting",
                "What each head adds to the logit of the false label above the true one.",
                {"score": "label_promoting"},
            ),
            (
                "matching and promoting",
                "Each point is a head: a false induction head stands far right and high.",
                {"score": "both"},
            ),
        ]
    return []
