"""Made by `python -m tests.stub`."""

from collections.abc import Mapping
from collections.abc import Sequence
from icl_mech.errors import IclMechError as IclMechError
from icl_mech.explorer import Explorer as Explorer
from icl_mech.explorer import explore as explore
from icl_mech.interventions import AddVector as AddVector
from icl_mech.interventions import Cut as Cut
from icl_mech.interventions import Isolate as Isolate
from icl_mech.interventions import Patch as Patch
from icl_mech.interventions import Reweight as Reweight
from icl_mech.interventions import Suppress as Suppress
from icl_mech.interventions import ZeroHeads as ZeroHeads
from icl_mech.interventions import ZeroLayers as ZeroLayers
from icl_mech.interventions.base import Intervention
from icl_mech.lenses import JacobianLens as JacobianLens
from icl_mech.lenses import TunedLens as TunedLens
from icl_mech.lenses import fit_jacobian_lens as fit_jacobian_lens
from icl_mech.lenses import fit_tuned_lens as fit_tuned_lens
from icl_mech.loading import load as load
from icl_mech.loading import load as load_analysis
from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracyResult
from icl_mech.measurements.accuracy.early_exit import early_exit as early_exit
from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult
from icl_mech.measurements.anchors.anchor_tokens import AnchorTokensResult
from icl_mech.measurements.anchors.span_flow import SpanFlowResult
from icl_mech.measurements.anchors.suppression import SuppressionResult
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import FunctionVectorByDemonstrationResult
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from icl_mech.measurements.by_demonstration.one_false_demonstration import OneFalseDemonstrationResult
from icl_mech.measurements.calibration.calibration import CalibrationResult
from icl_mech.measurements.causal.attribution_patching import AttributionPatchingResult
from icl_mech.measurements.causal.compare_heads import CompareHeadsResult
from icl_mech.measurements.causal.function_vector import FunctionVector
from icl_mech.measurements.causal.function_vector import function_vector as function_vector
from icl_mech.measurements.causal.head_mediation import HeadMediationResult
from icl_mech.measurements.causal.induction_scores import InductionScoresResult
from icl_mech.measurements.causal.recovered_gain import DemonstrationSteeringResult
from icl_mech.measurements.causal.saliency_check import SaliencyCheckResult
from icl_mech.measurements.causal.steer import SteerResult
from icl_mech.measurements.causal.task_vector import TaskVectorResult
from icl_mech.measurements.causal.transplant import TransplantResult
from icl_mech.measurements.circuits.circuit_faithfulness import CircuitFaithfulnessResult
from icl_mech.measurements.circuits.files import read_circuit as read_circuit
from icl_mech.measurements.circuits.files import write_circuit as write_circuit
from icl_mech.measurements.circuits.graph import Circuit
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
from icl_mech.measurements.compression.compress_context import CompressContextResult
from icl_mech.measurements.compression.compress_demonstrations import CompressDemonstrationsResult
from icl_mech.measurements.confusion.confusion import ConfusionResult
from icl_mech.measurements.extraction.extraction import ExtractionResult
from icl_mech.measurements.generation.generate import GenerateResult
from icl_mech.measurements.generation.over_trust import OverTrust
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.measurements.heads.matching_by_layer import MatchingByLayerResult
from icl_mech.measurements.heads.task_claims import TaskHeadsResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCutsResult
from icl_mech.measurements.isolation.isolation import IsolationResult
from icl_mech.measurements.isolation.isolation_map import IsolationMapResult
from icl_mech.measurements.lens.compare_lenses import CompareLensesResult
from icl_mech.measurements.lens.components import ComponentLens
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.lens_table import LensTableResult
from icl_mech.measurements.lens.logit_lens import LogitLensResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.rationales.rationale_answers import RationaleAnswersResult
from icl_mech.measurements.rationales.rationale_use import RationaleUseResult
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.measurements.reweighting.reweighting import fit_reweighting as fit_reweighting
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.models import load_model as load_model
from icl_mech.models import remote_model as remote_model
from icl_mech.models.adapt import untrained as untrained
from icl_mech.own import Measurement as Measurement
from icl_mech.planted import planted_model as planted_model
from icl_mech.planted import planted_task as planted_task
from icl_mech.planted import rationale_model as rationale_model
from icl_mech.planted import rationale_task as rationale_task
from icl_mech.prompts import Prompt as Prompt
from icl_mech.prompts import PromptBatch as PromptBatch
from icl_mech.prompts import Span as Span
from icl_mech.prompts import TextSet as TextSet
from icl_mech.prompts import build_prompt_pairs as build_prompt_pairs
from icl_mech.prompts import build_prompts as build_prompts
from icl_mech.prompts import chat_template as chat_template
from icl_mech.prompts import pairs_from_text as pairs_from_text
from icl_mech.prompts import prompts_from_text as prompts_from_text
from icl_mech.prompts import texts as texts
from icl_mech.studies import Analysis as Analysis
from icl_mech.studies import Study as Study
from icl_mech.studies import analyze as analyze
from icl_mech.studies import measure as measure
from icl_mech.sweeps import Sweep as Sweep
from icl_mech.sweeps import compare as compare
from icl_mech.sweeps import sweep as sweep
from icl_mech.tasks import Example as Example
from icl_mech.tasks import Task as Task
from icl_mech.tasks import Template as Template
from icl_mech.tasks import load_task as load_task
from torch import Tensor
from typing import Any
from typing import Literal

__version__: str

def ablation(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    what: Mapping[str, Sequence[Intervention]] | Sequence[str | tuple[int, int]] | None = ...,
    *,
    start: int | None = ...,
    heads: Sequence[tuple[int, int]] = ...,
    kind: Literal['zero_output', 'uniform_attention', 'mean'] = ...,
    draws: int = ...,
    seed: int = ...,
    variant: Literal['sound', 'reference'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> AblationResult:
    r"""Calibrated accuracy with and without ablations at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones.
        what: Late parts by name, (layer, head) pairs, or named sets of interventions; None:
            the late parts if `start` is given.
        start: First layer of the late parts.
        heads: Heads to ablate; the control is random heads, disjoint from them.
        kind: See `ZeroHeads`; late attention and MLPs are `reference` with `uniform_attention`
            and `zero_output` with the others, late layers always the latter.
        draws: Number of random draws of heads.
        seed: Seed of the random heads.
        variant: Variant of the lens for the scores, `sound` or `reference`.
        interventions: Applied in every run, including the unablated one.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs.
        RunError: nothing to ablate, unknown options or parts, names of conditions that are already
            used, or heads the model does not have.

    Source: Halawi et al. 2023, §4 and §5.
    """

def alignment(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    zero_shot: PromptBatch | None = ...,
    *,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> AlignmentResult:
    r"""Fractions of answers that follow the truth, the demonstrations or the zero-shot prior.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        zero_shot: The same queries without demonstrations; None: cut out of the true prompts.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, false labels that do not teach a single label, or `zero_shot`
            with other queries.

    Source: after Krishna Kumar 2025, arXiv 2511.21038.
    """

def anchor_tokens(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    loss: Literal['label', 'prediction', 'vocab', 'next', 'rest'] | None = ...,
    reduction: Literal['sum_then_abs', 'abs_then_sum'] = ...,
    of: Literal['attention', 'saliency'] = ...,
    layers: Sequence[int] | None = ...,
    ratio: float | None = ...,
    window: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> AnchorTokensResult:
    r"""Tokens whose column mass stands out, and how label words or ends of spans compare.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with demonstrations, or texts with spans.
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        of: `saliency`, or `attention` averaged over heads.
        layers: Layers over which masses are averaged; None: the last third.
        ratio: Factor by which an anchor's mass exceeds the median nearby; None: the factor that the other
            tokens of the text exceed by chance in 5 % of texts.
        window: Size of the neighbourhood, in positions to either side.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts with neither label words nor spans, with too few tokens for a spread, or
            without what the loss needs.
    """

def attribution_patching(
    model: Any,
    clean: PromptBatch,
    corrupt: PromptBatch,
    *,
    steps: int = ...,
    edges: bool = ...,
    exact: bool = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> AttributionPatchingResult:
    r"""Attribution of the difference between true and false demonstrations to every node.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        clean: Prompts with true demonstrations, from which values are taken.
        corrupt: The same prompts with false demonstrations, aligned token by token, in which gradients are taken.
        steps: Gradients are averaged over this many points between the embeddings of the two runs;
            0: gradients of the run with false demonstrations.
        edges: Score edges between nodes too.
        exact: Also patch every head in turn, and report the rank agreement.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, or whose tokens do not align.
        RunError: processed weights, edges of a model that normalises head outputs, interventions by prompt number.
    """

def calibration(
    model: Any,
    prompts: PromptBatch,
    *,
    task: str | Task | None = ...,
    texts: Sequence[str] | None = ...,
    inputs: Sequence[str] = ...,
    draws: int = ...,
    form: Literal['paper', 'staicc', 'difference'] = ...,
    batch_form: Literal['ratio', 'staicc', 'log_mean'] = ...,
    together: int | None = ...,
    seed: int = ...,
    reweighting: Reweight | None = ...,
    more_shots: PromptBatch | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> CalibrationResult:
    r"""Plain, contextual, domain and batch-calibrated accuracy on the same prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers.
        task: The task from whose training texts the random words are drawn, without texts that are
            queries of these prompts.
        texts: Custom texts for this; by default those of the task, else of the demonstrations.
        inputs: Texts without content.
        draws: Number of texts of random words.
        form: `paper`, `staicc` or `difference`, see `Calibration`.
        batch_form: `ratio`, `staicc` or `log_mean`, see there.
        together: Number of consecutive prompts that share a mean in batch calibration; None: all.
        seed: Seed of the random words.
        reweighting: Factors on attention to label words (`fit_reweighting`), evaluated as another method.
        more_shots: The same queries with more demonstrations, evaluated as another method.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or query texts, calibration texts that are also test texts, no
            texts at all, both `task` and `texts`, or `more_shots` with other queries.
        RunError: an option out of range, or factors of another model.
        TaskError: an unknown task.

    Source: Zhao et al. 2021, §4; Fei et al. 2023, §4; Zhou et al. 2024, §3.
    """

def compare_heads(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    sets: Mapping[str, Sequence[tuple[int, int]]],
    *,
    kind: Literal['zero_output', 'uniform_attention', 'mean'] = ...,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> CompareHeadsResult:
    r"""Overlap of sets of heads, and ablation of each without the heads of the others.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations, different from those the sets were chosen on.
        false: The same prompts with false ones.
        sets: Heads by name.
        kind: What replaces an ablated head's output, see `ZeroHeads`.
        draws: Number of random draws of heads for each set.
        seed: Seed of the draws.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets of prompts that are not pairs.
        RunError: fewer than two sets, an empty one, heads that do not exist, or too few heads outside of the sets.

    Source: Yin and Steinhardt 2025; Halawi et al. 2023, §5.
    """

def compress_demonstrations(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    position: Literal['true', 'overlap'] = ...,
    seed: int = ...,
    draws: int = ...,
    top_k: int = ...,
    timing: bool = ...,
    method: Literal['hidden_anchor', 'text_anchor', 'hidden_random', 'hidden_random_top'] | Sequence[Literal['hidden_anchor', 'text_anchor', 'hidden_random', 'hidden_random_top']] = ...,
    keep: Any = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> CompressDemonstrationsResult | CompareCompressionResult:
    r"""Predictions after a stand-in for the demonstrations, compared with full prompts.

    Several methods are compared on the same prompts: full prompts and demonstrations are run once for
    all, and the result has all of them (`CompareCompressionResult`).

    Demonstrations that prompts share are run once, cut, and seen by all their queries.

    Interventions act on full prompts, on demonstrations while their keys and values are computed,
    and on queries after the stand-in.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with demonstrations.
        position: Position ids of queries: as in the full prompt (`true`) or from 0 (`overlap`).
        seed: Seed of the random methods.
        draws: Number of draws of `hidden_random_top`.
        top_k: Number of top next tokens compared.
        timing: Also time the first prompts, for the speed-up.
        method: Which tokens stay, and how; or several methods.
        keep: Positions to keep instead of those the roles give: one row per prompt, or for all.
        interventions: Applied in every pass. Text anchors are read as a separate prompt, in which interventions act by token roles; those that may act by position, because they do not define `shares`, raise an error there.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown or contradictory options, or `overlap` with a model that counts
            positions itself.
        PromptError: prompts without demonstrations, without roles while `keep` is not given,
            or with positions in `keep` that are out of range, in the query or not ascending.

    Source: Wang et al. 2023, §3.2.
    """

def context_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    variant: Literal['sound', 'reference'] = ...,
    interval: Literal['score', 'bootstrap', 'reference'] = ...,
    lens: FittedLens | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> ContextAccuracyResult:
    r"""Accuracy after every number of demonstrations, at every layer.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        variant: `sound`, or `reference`: the paper's lens, exact ties and first crossing.
        interval: `score` (see `score_interval`), `bootstrap` (percentiles), or `reference`: mean +-
            1.96 sd / sqrt(N).
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, or prompts with different numbers of
            demonstrations, or with the same ones.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §3.
    """

def diagnose_confusion(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    layer: int | None = ...,
    components: int = ...,
    contexts: PromptBatch | None = ...,
    context: int | None = ...,
    query_prompts: PromptBatch | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> ConfusionResult:
    r"""Predicted and measured confusion of every pair of classes, and their rank correlation.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers, on which confusion is measured.
        layer: Block whose keys and queries are compared; None: every block, showing the one at
            two thirds of the depth (the paper: 32 of 48).
        components: Maximum number of principal directions of the queries.
        contexts: Prompts whose label words' keys are used (default: the measured ones);
            distances are averaged over them.
        context: Index of the single context to use (the paper's choice: the first).
        query_prompts: Prompts whose queries give the directions (default: the measured ones).
        interventions: Applied in every pass, so to keys, queries and predictions alike.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: a layer, context or number of components out of range, or a model without
            query and key projections.
        PromptError: prompts without answers, contexts that lack a class, or other label words.
        ResultError: a given layer whose queries are all equal.

    Source: Wang et al. 2023, §3.3; Spearman correlation added here.
    """

def evaluate_reweighting(
    model: Any,
    reweighting: Reweight,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    more_shots: PromptBatch | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> ReweightingResult:
    r"""Plain against re-weighted in-context learning on the same test prompts.

    Shared computation is done once: the shared demonstrations, or everything before
    the targets. Warns if the factors were learned from some of these prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        reweighting: The factors, learned (`fit_reweighting`) or given.
        prompts: Test prompts with answers.
        more_shots: The same queries with more demonstrations, run plain for comparison.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers, or `more_shots` with other queries.
        RunError: factors of another model's size or number of classes.

    Source: Wang et al. 2023, §3.1, table 1.
    """

def extraction(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    truth: Literal['prediction', 'gold'] = ...,
    two_classes: Literal['normalised', 'reference'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> ExtractionResult:
    r"""Attention from the target to the label words, its AUC and R by layer.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        truth: The model's `prediction`, or the `gold` class.
        two_classes: With two classes left, `normalised` scores or the `reference` scoring.
        interventions: Applied during the pass; attention and prediction are those of the modified model.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown choice.
        PromptError: prompts without demonstrations, or without answers for `truth="gold"`.

    Source: Wang et al. 2023, §2.3.
    """

def find_false_induction_heads(
    model: Any,
    task: str | Task | PromptBatch = ...,
    *,
    top: int = ...,
    shots: int = ...,
    n: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> FalseInductionResult:
    r"""Rank all heads by prefix matching on false demonstrations of one task.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        task: Name, task, or prompts with permuted labels.
        top: Number of heads that are chosen.
        shots: Demonstrations per class.
        n: Number of prompts.
        seed: Seed of texts, order and shifts.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        IclMechError: see `build_prompt_pairs` and `head_scores`.

    Source: Halawi et al. 2023, §5.
    """

def flow_by_demonstration(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    loss: Literal['label', 'prediction', 'vocab', 'next', 'rest'] | None = ...,
    reduction: Literal['sum_then_abs', 'abs_then_sum'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> FlowByDemonstrationResult:
    r"""Scores `S_wp` and `S_pq` of every demonstration, and the target's saliency from each as a whole.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with the same number of demonstrations each.
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        interventions: Applied before reading; saliency is that of the modified attention pattern.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant, or a model on a server.
        PromptError: prompts without demonstrations or with different numbers of them, or without
            answers the loss needs.

    Source: Wang et al. 2023, §2.1, one demonstration at a time.
    """

def flow_scores(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    loss: Literal['label', 'prediction', 'vocab', 'next', 'rest'] | None = ...,
    reduction: Literal['sum_then_abs', 'abs_then_sum'] = ...,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> FlowScores:
    r"""Information flow by layer: `S_wp`, `S_pq`, `S_ww` of every prompt.

    The same pass gives total saliency by role, and the scores of random tokens in place of the label
    words. A model on a server gives the three scores only.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        draws: Number of draws of random tokens.
        seed: Seed of the first draw.
        interventions: Applied before reading; saliency is that of the modified attention pattern.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """

def generate(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    max_new_tokens: int = ...,
    do_sample: bool = ...,
    temperature: float = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    seed: int = ...,
    stop: str | int | Sequence[str | int] = ...,
    attention: bool = ...,
    context: CompressContextResult | None = ...,
    over_trust: OverTrust | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> GenerateResult:
    r"""Texts written after prompts, and the attention of each step to earlier spans.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts to continue, each after its last token.
        max_new_tokens: Maximum number of tokens of a text.
        do_sample: Sample tokens; else the top token is written (greedy).
        temperature: Temperature the logits are divided by for sampling.
        top_k: Sample only from this many top tokens.
        top_p: Sample from the top tokens that together have this probability.
        seed: Seed of the draws; a prompt's draws depend on its number, not on its batch.
        stop: Texts and token ids at which a text ends, besides the model's end token.
        attention: Read the attention of every step.
        context: Demonstrations kept as keys and values (`CompressContext`): only the queries are run,
            after it.
        over_trust: Penalise candidates by over-trust, in beams, with roll-back (`OverTrust()`), instead
            of greedy writing.
        interventions: Applied in every pass. Interventions that act by positions or roles of the prompt change its rows, not new ones; those that act at all positions change new rows too. By default, the interventions the context was made with.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`: each step computes one row using the cached keys and values; `whole`: it recomputes the whole text. Both give the same numbers.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: no new tokens, a temperature, `top_k` or `top_p` out of range or without effect, a
            stop the model does not know, or an intervention that did nothing or that the context was
            not made under.
        PromptError: a prompt without enough room after it, or with other demonstrations than the
            context.
        ModelError: another model than the context's.
    """

def head_attention(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    heads: Sequence[tuple[int, int]] | None = ...,
    *,
    first: int | None = ...,
    row: Literal['target', 'label_word', 'demo_text', 'query_text', 'rationale', 'format', 'narrative', 'bos', 'all'] | int = ...,
    demo: int | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> HeadAttentionResult:
    r"""Attention of heads from the target, or from another token, to every token.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts; figures show one of them.
        heads: (layer, head) pairs; None: all heads.
        first: Number of prompts shown; None: all.
        row: The token they attend from: a position (the same in every prompt), the target, or the last
            token of a role.
        demo: The row belongs to this demonstration (of texts: span), counted from 0.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: no heads, a head twice, or one the model does not have.
        PromptError: prompts this model cannot run, or without such a token.

    Source: Halawi et al. 2023, §5.
    """

def head_mediation(
    model: Any,
    true: PromptBatch,
    shuffled: PromptBatch,
    *,
    mean: Literal['all', 'class'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> HeadMediationResult:
    r"""Average indirect effect of every head at the target.

    The true prompts of the pair give the mean outputs; the others are patched: with labels="random" they
    teach nothing, as published; with permuted labels they teach another task.

    Costs one pass over the true prompts and, for each head, one token of every shuffled prompt.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true labels, over which every head's output at the last token is averaged.
        shuffled: Prompts of the same task that teach nothing (labels="random"): these are patched.
        mean: Average over `all` true prompts (as published), or for every prompt over those of its `class` with
            other queries.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets with different label words, shuffled prompts without answers, or with
            mean="class" a class of one query.
        RunError: processed weights.

    Source: Todd et al. 2024, §2.
    """

def head_scores(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    norm: Literal['frozen', 'own'] = ...,
    over: Literal['labels', 'before_labels'] = ...,
    permutations: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> HeadScoresResult:
    r"""Prefix matching, label attending and label promoting of every head, at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: False prompts (`labels="permuted"` or `"half_permuted"`), or true ones.
        norm: Norm of label promoting: `frozen` or `own`.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        permutations: Number of permutations of the labels in the shuffled control.
        seed: Seed of the permutations.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no single rule.
        RunError: unknown options, processed weights, or components that do not add up.

    Source: Halawi et al. 2023, §5.
    """

def induction_scores(
    model: Any,
    *,
    n: int = ...,
    length: int = ...,
    variant: Literal['sound', 'mul', 'abs'] = ...,
    pattern: Literal['induction', 'duplicate', 'previous'] = ...,
    exclude_bos: bool = ...,
    exclude_current: bool = ...,
    seed: int = ...,
    tokens: Tensor | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> InductionScoresResult:
    r"""Induction score of every head on repeated random tokens.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        n: Number of sequences.
        length: Number of random tokens of each, which are repeated once.
        variant: `sound`: mean over repeated tokens of the attention to the token after the last earlier
            occurrence; `mul`, `abs`: as `detect_head` of TransformerLens.
        pattern: `induction`, `duplicate` (the earlier occurrence itself) or `previous`.
        exclude_bos: Attention to the first token does not count (`mul`, `abs`).
        exclude_current: Attention of a token to itself does not count (`mul`, `abs`).
        seed: Seed of the random tokens.
        tokens: Custom sequences instead, all of one length.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: sequences without repeats or longer than the context, options without effect.
        PromptError: token ids outside the vocabulary.

    Source: Olsson et al. 2022.
    """

def isolation(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    mode: Literal['mask', 'zero'] = ...,
    redraw: Literal['set', 'prompt', 'layer'] = ...,
    draws: int = ...,
    top_k: int = ...,
    seed: int = ...,
    depths: Sequence[int] | None = ...,
    sides: Literal['first', 'last'] | Sequence[Literal['first', 'last']] = ...,
    tokens: Literal['label', 'random'] | Sequence[Literal['label', 'random']] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> IsolationResult:
    r"""Label and word loyalty with tokens isolated in the first or last layers.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        mode: `mask` sets scores to -inf before softmax (the reference code), `zero` sets the
            pattern to 0 after it (the paper's text).
        redraw: Random tokens: one draw per demonstration `set`, per `prompt` or per `layer`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Seed of the first draw.
        depths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        sides: `first` layers, `last` layers or both.
        tokens: Isolate `label` words, `random` tokens or both.
        interventions: Applied with and without isolation: loyalty is relative to the modified model.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown choice, a depth the model does not have, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.

    Source: Wang et al. 2023, §2.2.
    """

def isolation_map(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    mode: Literal['mask', 'zero'] = ...,
    redraw: Literal['set', 'prompt', 'layer'] = ...,
    draws: int = ...,
    top_k: int = ...,
    seed: int = ...,
    widths: Sequence[int] | None = ...,
    step: int = ...,
    tokens: Literal['label', 'random'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> IsolationMapResult:
    r"""Label and word loyalty for every window of layers.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        mode: `mask` sets scores to -inf before softmax (the reference code), `zero` sets the
            pattern to 0 after it (the paper's text).
        redraw: Random tokens: one draw per demonstration `set`, per `prompt` or per `layer`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Seed of the first draw.
        widths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        step: Layers between the starts of neighbouring windows.
        tokens: Isolate `label` words or `random` tokens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown choice, a width the model does not have, a step below 1, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.
    """

def layer_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    variant: Literal['sound', 'reference'] = ...,
    interval: Literal['score', 'bootstrap', 'reference'] = ...,
    lens: FittedLens | None = ...,
    threshold: float = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> LayerAccuracyResult:
    r"""Accuracy at every layer with true and with false demonstrations of the same queries.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        variant: `sound`, or `reference`: the paper's lens, exact ties and first crossing.
        interval: `score` (see `score_interval`), `bootstrap` (percentiles), or `reference`: mean +-
            1.96 sd / sqrt(N).
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        threshold: Fraction of the final gap that is reached from the critical layer on, a half in the paper.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, a lens of another model, or an invalid fraction.

    Source: Halawi et al. 2023, §4.
    """

def leave_one_out(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> LeaveOneOutResult:
    r"""The effect of every demonstration on the log-probability of the true label.

    One pass over `batch x demo` prompts; beginnings they share are run once.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers and the same number of demonstrations each.
        interventions: Applied in every pass; those that depend on the index of a prompt raise an error.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers, demonstrations or text roles, or with different
            numbers of demonstrations.
    """

def logit_lens(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    per: Literal['layer', 'head', 'mlp'] = ...,
    at: Literal['target', 'demonstrations'] = ...,
    variant: Literal['sound', 'reference'] = ...,
    norm: Literal['frozen', 'own'] = ...,
    vocabulary: bool = ...,
    lens: FittedLens | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> LogitLensResult | ComponentLens:
    r"""Label logits of every layer, head or MLP.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        per: `layer` gives a `LogitLensResult`, `head` and `mlp` a `ComponentLens`.
        at: `target`, or `demonstrations`: every token before a label, in one pass (layers only).
        variant: `sound` or `reference` (layers only).
        norm: `frozen` or `own` (heads and MLPs).
        vocabulary: Also keep log-sum-exp and the top tokens (layers only).
        lens: A fitted lens that maps every entry but the last (layers only); None: the logit lens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown options, processed weights (heads and MLPs), a lens of another model, or
            components that do not add up to the model's logits.
        PromptError: prompts with different numbers of demonstrations (`at="demonstrations"`).

    Source: Halawi et al. 2023, §4.
    """

def predict(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    score: Literal['first', 'sum', 'mean'] | None = ...,
    top_k: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> Predictions:
    r"""Label logits, predicted classes and most probable next tokens at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        score: How label words of several tokens are scored: `first`, `sum` or `mean`; None: as the prompts
            specify (`build_prompts(..., score=)`).
        top_k: Number of most probable next tokens kept.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown `score`.
    """

def saliency_maps(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    loss: Literal['label', 'prediction', 'vocab', 'next', 'rest'] | None = ...,
    reduction: Literal['sum_then_abs', 'abs_then_sum'] = ...,
    first: int | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> SaliencyMapsResult:
    r"""Saliency of every attention edge; memory grows with prompts x layers x tokens squared.

    Suitable for maps of a few prompts; use `flow_scores` for statistics over many.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        first: Number of prompts mapped; None: all.
        interventions: Applied before reading; saliency is that of the modified attention pattern.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant.
        PromptError: a loss that needs answers, for prompts without.

    Source: Wang et al. 2023, §2.1.
    """

def span_flow(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    loss: Literal['label', 'prediction', 'vocab', 'next', 'rest'] | None = ...,
    reduction: Literal['sum_then_abs', 'abs_then_sum'] = ...,
    of: Literal['attention', 'saliency'] = ...,
    proximity: int = ...,
    average: Literal['mean', 'median'] = ...,
    control_depth: bool = ...,
    clamp: Literal['none', 'reference'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> SpanFlowResult:
    r"""Attention or saliency between spans, their vertical scores, and receiver heads.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Texts with spans, see `texts`.
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        of: `attention` of every head, or `saliency`, which has one value for all heads of a layer.
        proximity: Number of following spans left out of a span's vertical score, itself included.
        average: `mean` or `median` over the spans that read.
        control_depth: Rows are first replaced by ranks, so that later spans weigh the same as earlier ones.
        clamp: `reference`: the last token of the text is dropped, as in the reference code.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without spans, or without tokens the loss needs.

    Source: Bogdan et al. 2025, §5.
    """

def steer(
    model: Any,
    prompts: PromptBatch,
    vector: FunctionVector | TaskVectorResult | Tensor,
    *,
    kind: Literal['add', 'replace'] | None = ...,
    scale: float = ...,
    layers: Sequence[int] | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> SteerResult:
    r"""Correct answers with a vector at the output of each block, at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Usually without demonstrations: `build_prompts(task, model, shots=0)`.
        vector: Result of `function_vector` or `task_vector`, or a tensor: one vector for all layers, or
            one for each.
        kind: `add` it to the output of the block, or `replace` the output; default: task vectors
            replace, all others are added.
        scale: Factor the vector is multiplied by (`add`).
        layers: Blocks after which it is applied, one at a time; None: all.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers.
        RunError: vectors or layers the model does not have, or a vector made with other weights.

    Source: Todd et al. 2024, §3; Hendel et al. 2023, §3.
    """

def suppression(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    rows: Literal['after', 'all'] = ...,
    temperature: float = ...,
    layers: Sequence[int] | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> SuppressionResult:
    r"""Effect of hiding each span of a text on the spans that follow it.

    Costs about half a forward pass per span: each run covers only the tokens after the span.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Texts with spans, see `texts`.
        rows: Rows from which a span is hidden: those `after` it, or `all`, its own included (the
            reference code). Effects on later spans are the same: their rows see none of its rows.
        temperature: Temperature the logits are divided by (the reference code: 0.6).
        layers: Blocks in which spans are hidden; None: all.
        interventions: Applied to both the plain and the suppressed runs.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts without spans.

    Source: Bogdan et al. 2025, §6.
    """

def task_vector(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> TaskVectorResult:
    r"""Mean output of every block at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with demonstrations; their queries differ from those `steer` is tested on.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts this model cannot run.

    Source: Hendel et al. 2023, §3.
    """

def transplant(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    at: Literal['anchors', 'target', 'query', 'template'] | Sequence[Literal['anchors', 'target', 'query', 'template']] = ...,
    layers: Sequence[int] | None = ...,
    draws: int = ...,
    single: bool = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> TransplantResult:
    r"""Answers after the residuals entering a block were taken from the run with other demonstrations.

    Both directions are run. Costs one pass over each side for all residuals, and for each layer, place and draw
    the blocks from that layer on, on both sides.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        at: Sets of tokens, each set patched separately: `anchors` (all label words), `target`, `query` (its text) or
            `template` (all tokens of the format).
        layers: Blocks whose input is patched, one at a time; None: all.
        draws: Number of random draws of tokens for each place.
        single: Each label word alone, too.
        seed: Seed of the draws.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, a pair with different numbers of demonstrations, query or template
            with different numbers of tokens, or prompts without such tokens.
        RunError: no place, one named twice, or layers the model does not have.

    Source: arXiv 2605.04061.
    """

def anchor_agreement(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    proximity: int = ...,
    top: int = ...,
    temperature: float = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> AnchorAgreementResult:
    r"""Rank correlation between the effects of hiding spans and attention or saliency, per text.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Texts with at least `proximity` + 4 spans each, see `texts`.
        proximity: Number of following spans that scores leave out, the span itself included.
        top: Number of receiver heads, chosen for each text from the others.
        temperature: Temperature of the compared distributions, see `suppression`.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: unknown variant, or more heads than the model has.
        PromptError: texts with too few spans.

    Source: Bogdan et al. 2025, §6.
    """

def circuit_faithfulness(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    circuit: Circuit | str | Sequence[tuple[int, int]] | None = ...,
    granularity: Literal['heads', 'nodes', 'edges'] = ...,
    ablation: Literal['resample', 'mean', 'zero'] = ...,
    fraction: float = ...,
    fractions: Sequence[float] = ...,
    ranking: Literal['signed', 'absolute'] = ...,
    steps: int = ...,
    variant: Literal['paper', 'reference'] = ...,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> CircuitFaithfulnessResult:
    r"""How much of the answer a circuit carries, kept alone and cut out.

    The first set of the pair holds the clean prompts, the second their counterfactuals (false demonstrations, or another
    query), aligned by role. Without a circuit, EAP-IG scores come from one half of the pairs and the test uses the other.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Clean prompts, such as those with true demonstrations.
        false: Their counterfactuals: the same prompts with false demonstrations, or other queries, aligned by role.
        circuit: A `Circuit`, a file of another tool (see `read_circuit`), or pairs (layer, head); None: EAP-IG scores.
        granularity: Ablate `heads` (MLPs stay), `nodes` (heads and MLPs; embeddings stay), or single `edges`.
        ablation: An ablated component writes what it writes in the counterfactual (`resample`), the mean over the
            prompts and counterfactuals of the first half by role (`mean`), or 0 (`zero`).
        fraction: Fraction of all components that make up the circuit, for scores that come without a choice.
        fractions: Fractions of the curve.
        ranking: By `signed` scores, or by `absolute` ones.
        steps: Number of points of the path of EAP-IG.
        variant: Points of EAP-IG's `paper`, or of its `reference` code.
        draws: Number of random sets of each size; sets of edges are connected.
        seed: Seed of the halves and the random sets.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts and counterfactuals that do not align, or too few pairs for two halves.
        RunError: a circuit of another model, edges of a model whose heads cannot be separated, processed weights.
    """

def compare_lenses(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    lens: FittedLens,
    *,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> CompareLensesResult:
    r"""Accuracy at every layer under a fitted lens and under the logit lens.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts, with answers; not those the lens was fitted on.
        lens: The fitted lens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers.
        RunError: a lens of another model.
    """

def demonstration_steering(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    strengths: Sequence[float] = ...,
    layers: Sequence[int] | None = ...,
    draws: int = ...,
    tasks: Sequence[PromptBatch | str] = ...,
    texts: Sequence[str] | None = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> DemonstrationSteeringResult:
    r"""How much of the gain from demonstrations one vector recovers on held-out bare queries, and its side effects.

    Costs one pass over half of the prompts with demonstrations, with shuffled ones and without; of these bare queries the
    target's row for each vector, block and strength; and one pass over the other half with demonstrations and for each vector.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers; at least four, each query only once.
        strengths: Factors of the vector.
        layers: Blocks after which it is added, one at a time; None: all.
        draws: Number of random directions.
        tasks: Other tasks, by name or as prompts, on which accuracy with the vector is measured.
        texts: Texts on which the next-token loss is measured with the vector at every position; None: eight passages
            of plain English, if the tokenizer knows their words.
        seed: Seed of the halves, the random directions, the order of shuffled labels and the prompts of named tasks.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or demonstrations, whose queries cannot be separated from them, or
            fewer than four of them; a repeated query, or queries of one class.
        RunError: no strength or one that is not positive, or layers the model does not have.
    """

def edge_cuts(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    edges: Literal['contextualise', 'exchange', 'aggregate', 'anchors', 'collect'] | Sequence[Literal['contextualise', 'exchange', 'aggregate', 'anchors', 'collect']] = ...,
    windows: Literal['thirds', 'cumulative', 'after', 'sliding'] = ...,
    mode: Literal['mask', 'zero'] = ...,
    draws: int = ...,
    seed: int = ...,
    rows: Literal['query', 'target'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> EdgeCutsResult:
    r"""Correct answers with edges between demonstrations, to the target, or into label words cut.

    Costs one forward pass for each type of edges and window, and as many more for each draw of those that have
    a control; *exchange* one more for each demonstration after the first. With `rows="target"` the runs for edges to the
    target compute one row of each prompt.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers.
        edges: `contextualise`, `exchange`, `aggregate`, `anchors` or `collect`, or several.
        windows: `thirds` of the layers and all of them; `cumulative` ones from the first layer on; `after`
            a quarter, half and three quarters of them, to the last; or `sliding`
            ones of a sixth of the layers, starting at every layer.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Number of draws of random edges; 0: none.
        seed: Seed of the first draw.
        rows: Edges to the target are those into `query` and target, or into the `target` alone.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or demonstrations, or without such edges; label words and queries so
            short that there is no control, unless `draws=0`.
        RunError: a model with fewer than three layers, unless windows slide; `exchange` with interventions.
    """

def function_vector_by_demonstration(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    heads: Sequence[tuple[int, int]] | None = ...,
    k: int = ...,
    mean: Literal['all', 'class'] | None = ...,
    layer: int | None = ...,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> FunctionVectorByDemonstrationResult:
    r"""Parts of the function vector by demonstration, their effects, and the split into routing and values.

    Costs two passes each over the prompts and over the prompts with demonstrations cut from each other, and one token
    of every prompt for each effect; choosing the heads costs a `head_mediation` on half of the prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers and the same number of demonstrations each, at least two.
        heads: The chosen heads, selected on prompts that are not measured here. None: the `k` heads with the largest
            mean effect on the logit difference (`head_mediation`) on a half of the prompts with true and with shuffled
            label words; the other half is measured.
        k: Number of heads that are chosen.
        mean: Mean outputs by which they are chosen, see `head_mediation`: over `all` queries as published, or those of
            the same `class`, which also chooses heads whose output depends on the query; None: `class` where prompts
            have classes.
        layer: Block to whose output vectors are added in queries without demonstrations; None: a third of the way
            through the model.
        draws: Number of draws of random heads.
        seed: Seed of the halves, the shuffled label words and the draws.
        interventions: Applied in every pass; those that depend on the index of a prompt raise an error.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers, text roles or two demonstrations, or with different numbers of them;
            queries of one class, or all alike; with heads=None also a repeated query, or label words that cannot be
            shuffled.
        RunError: processed weights, a model that normalises the sum of its heads, heads or layers it does not have.

    Source: arXiv 2605.16591.
    """

def gain(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> GainResult:
    r"""Gain from demonstrations over zero-shot prompts and over the same demonstrations with shuffled labels.

    Costs one more pass over the queries alone, and one over whole prompts for each draw. The demonstrations are
    those of the prompts, whether their labels are correct or not.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers.
        draws: Number of orders of shuffled label words.
        seed: Seed of the first order.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or demonstrations, or for which neither baseline can be built.
    """

def guaranteed_exit(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    epsilon: float = ...,
    delta: float = ...,
    loss: Literal['difference', 'harm'] = ...,
    grid: int = ...,
    starts: int = ...,
    first: int = ...,
    lens: FittedLens | None = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> GuaranteedExitResult:
    r"""Early exit whose risk against zero-shot is at most ε with probability 1 - δ.

    Costs one pass over the prompts, as for the lens, and one over the queries alone. Prompts are taken as they are: give
    those that the rule is meant for, with true or false demonstrations.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers, each query only once.
        epsilon: Tolerated risk ε, from 0 to below 1 (`harm`: above 0).
        delta: Probability δ of a larger risk.
        loss: `difference` or `harm`.
        grid: Number of thresholds: 1 - 1/grid, ..., 1/grid, 0.
        starts: Number of starts of the test; 1: a fixed sequence; `grid`: Bonferroni.
        first: The first entry that may answer; 1 is the residual after the first layer.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        seed: Seed of the halves.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        RunError: options outside their range, or a lens of another model.
        PromptError: fewer than two prompts, repeated queries, queries of one class, or prompts without answers,
            demonstrations or zero-shot prompts.

    Source: arXiv 2510.02480.
    """

def lens_table(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    positions: Literal['target', 'label_word', 'demo_text', 'query_text', 'rationale', 'format', 'narrative', 'bos', 'all'] | Sequence[int] | None = ...,
    demo: int | None = ...,
    first: int | None = ...,
    k: int = ...,
    variant: Literal['sound', 'reference'] = ...,
    lens: FittedLens | None = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> LensTableResult:
    r"""The top next words after each layer, at several tokens of a prompt.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts, of any kind; by default only the first one is read.
        positions: Which tokens: numbers (the same in every prompt), or all of a role; None: the last
            twelve up to the target.
        demo: Only the tokens of this demonstration (of texts: span), counted from 0.
        first: Number of prompts that are read; None: all.
        k: Number of words kept for each cell.
        variant: Variant of the lens, `sound` or `reference`.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: a prompt without such tokens.
        RunError: a lens of another model.
    """

def matching_by_layer(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    over: Literal['labels', 'before_labels'] = ...,
    variant: Literal['sound', 'reference'] = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> MatchingByLayerResult:
    r"""Prefix matching of whole layers on false prompts, compared with the gap between both sides.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same queries with false demonstrations; heads are scored on these.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        variant: Variant of the lens for the accuracy, `sound` or `reference`.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: sets that are not pairs, or prompts without a class to match.
        RunError: processed weights.

    Source: Halawi et al. 2023, §5.
    """

def one_false_demonstration(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    places: Sequence[int] | None = ...,
    lens: FittedLens | None = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> OneFalseDemonstrationResult:
    r"""Answer, lens and attention with exactly one false demonstration, at each place.

    Costs one pass over the prompts and, for each place, two more over whole prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers, true labels and the same number of demonstrations each.
        places: Places of the false demonstration, from 0, in prompt order; None: all.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        seed: Seed of the false labels, of the exchanged texts, and of the halves of the early exit.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers, with different numbers of demonstrations, with false labels already, or
            that cannot be written anew; a repeated query, or queries of one class.
        RunError: a place that prompts do not have, or a lens of another model.

    Source: arXiv 2603.04464.
    """

def rationale_answers(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    lens: bool = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> RationaleAnswersResult:
    r"""The answer after each sentence of the query's rationale, at the output and by layer.

    Costs one forward pass over the prompts for each number of sentences, 0 included.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With rationales and answers.
        lens: Read every layer with the logit lens.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers, or whose rationales are missing or cannot be cut off.
    """

def rationale_use(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    layers: Sequence[int] | None = ...,
    mode: Literal['mask', 'zero'] = ...,
    draws: int = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> RationaleUseResult:
    r"""Is the answer read from the rationale? Rationales left out, exchanged, and cut off from the answer.

    Costs one forward pass over the prompts for each context (up to five), each path (three) and each draw of random edges
    for each path.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With rationales and answers.
        layers: Layers in which attention is knocked out; None: all.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Number of draws of random edges; with fewer than two, nothing can be claimed.
        seed: Seed of draws, exchanged rationales and orders of sentences.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or rationales, that cannot be rewritten, or of one class only; rationales so
            long that there are no random edges for a control, unless `draws=0`.
    """

def saliency_check(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> SaliencyCheckResult:
    r"""Saliency of edges compared with the effect of cutting them, layer by layer.

    Costs one backward pass, and two forward passes for each layer.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without answers or demonstrations.
        RunError: a model of one layer.
    """

def stability(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    of: AnyMeasurement[Any, Any] | str = ...,
    k: int = ...,
    over: Sequence[Literal['seed', 'template', 'label set', 'subset']] | None = ...,
    seeds: int = ...,
    templates: Sequence[str] = ...,
    label_sets: Sequence[str | Sequence[str]] = ...,
    subsets: int = ...,
    quantity: str | None = ...,
    within: Literal['layer', 'model'] = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> StabilityResult:
    r"""Agreement of heads, critical layers and claims over variants of the prompts.

    Costs the measurement once for each variant; all subsets together cost it once more.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts from `build_prompts`, or the pair of `build_prompt_pairs`, as the repeated measurement takes them.
        of: The measurement that is repeated, or its name. It takes part with what it gives: a ranking of heads, a
            critical layer, a claim.
        k: Number of top heads, less than half of all.
        over: What is varied, one at a time: the `seed` of demonstrations and queries, the `template`, the `label set`,
            or disjoint parts of the prompts (`subset`). None: all of these; without label sets for free-form answers.
        seeds: Number of seeds, the given one included; a measurement with a `seed` is repeated with as many.
        templates: Templates in addition to the given one; separator and narrative stay. Of the defaults, those that give
            equal prompts are left out.
        label_sets: Label words in addition to the given ones: `letters`, `numbers`, `nonsense`, or a word for each class;
            likewise.
        subsets: Number of subsets.
        quantity: The quantity by which heads are ranked; None: the measurement's main one.
        within: Heads that chance exchanges: those of one `layer` (stricter), or all of the `model`.
        seed: Seed of relabellings, and of the choice between heads with equal scores.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts that were not drawn from a task (except for subsets), variants that cannot be built, or
            listed ones that give equal prompts.
        RunError: no such measurement, or one that gives nothing to compare; an axis with a single run; too many heads.

    Source: Méloux, Portet and Peyrard 2025.
    """

def task_heads(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    top: int | None = ...,
    kind: Literal['zero_output', 'uniform_attention', 'mean'] = ...,
    draws: int = ...,
    directions: int = ...,
    null: Literal['tokens', 'gaussian'] = ...,
    variant: Literal['sound', 'reference'] = ...,
    beside: Mapping[str, Sequence[tuple[int, int]]] = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> TaskHeadsResult:
    r"""Heads that recognise the task and heads that learn it, chosen on half of the prompts and ablated on the other.

    Costs one pass over the prompts and, for each half-size context, one token per prompt for every ablation: both sets in
    three contexts, and `draws` of random heads for each set.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: With demonstrations and answers: half of them choose heads, the others test them.
        top: Number of heads in each set; None: five, or a quarter of the heads if that is less.
        kind: What replaces an ablated head's output, see `ZeroHeads`.
        draws: Number of random draws of heads for each set.
        directions: Number of random draws of directions; at least 39 to name heads beyond them.
        null: Random directions: those of random `tokens`, or `gaussian` vectors.
        variant: `sound`: relative to the head's size, through the final norm; `reference`: the published scores.
        beside: Other sets of heads by name, with which the two are compared.
        seed: Seed of the halves, the draws and the shuffled labels.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without demonstrations or answers, repeated queries, or queries of one class.
        RunError: processed weights, too few heads, as many classes as the residual stream is wide, heads that do not exist.

    Source: Yang, Cho and Inoue 2025.
    """

def write_rationales(
    model: object,
    prompts: PromptBatch,
    *,
    max_new_tokens: int = ...,
    do_sample: bool = ...,
    temperature: float = ...,
    top_k: int | None = ...,
    top_p: float | None = ...,
    seed: int = ...,
    interventions: Sequence[Intervention] = ...,
    batch_size: int | None = ...,
    memory: str | int | None = ...,
    path: Literal['auto', 'whole'] = ...,
    progress: bool | None = ...,
) -> PromptBatch:
    r"""The same prompts with rationales that the model writes after its queries.

    The text up to the rationale is continued by `Generate`, until it writes what follows a rationale in the
    template (or its first line break), ends, or has `max_new_tokens` tokens. The prompt with the written text is then
    tokenised as a whole; where the model writes nothing, the query has no rationale.

    Args:
        model: The model.
        prompts: Prompts with rationales; those at the queries are not shown to the model.
        max_new_tokens: Maximum length of a rationale.
        do_sample: Sample tokens; else the top token is written (greedy).
        temperature: Temperature the logits are divided by for sampling.
        top_k: Sample only from this many top tokens.
        top_p: Sample from the top tokens that together have this probability.
        seed: Seed of the draws.
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.

    Raises:
        PromptError: prompts without rationales, or that cannot be rewritten; nothing written after any query.
        RunError: as `generate`.
    """
