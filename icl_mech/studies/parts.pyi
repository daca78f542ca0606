"""Made by `python -m tests.stub`."""

from typing import Literal, TypeVar, overload

from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracyResult
from icl_mech.measurements.accuracy.early_exit import EarlyExitResult
from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult
from icl_mech.measurements.anchors.anchor_tokens import AnchorTokensResult
from icl_mech.measurements.anchors.span_flow import SpanFlowResult
from icl_mech.measurements.anchors.suppression import SuppressionResult
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import FunctionVectorByDemonstrationResult
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from icl_mech.measurements.by_demonstration.one_false_demonstration import OneFalseDemonstrationResult
from icl_mech.measurements.calibration.calibration import CalibrationResult
from icl_mech.measurements.causal.attribution_patching import AttributionPatchingResult
from icl_mech.measurements.causal.compare_heads import CompareHeadsResult
from icl_mech.measurements.causal.head_mediation import HeadMediationResult
from icl_mech.measurements.causal.induction_scores import InductionScoresResult
from icl_mech.measurements.causal.recovered_gain import DemonstrationSteeringResult
from icl_mech.measurements.causal.saliency_check import SaliencyCheckResult
from icl_mech.measurements.causal.steer import SteerResult
from icl_mech.measurements.causal.task_vector import TaskVectorResult
from icl_mech.measurements.causal.transplant import TransplantResult
from icl_mech.measurements.circuits.circuit_faithfulness import CircuitFaithfulnessResult
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
from icl_mech.measurements.compression.compress_context import CompressContextResult
from icl_mech.measurements.compression.compress_demonstrations import CompressDemonstrationsResult
from icl_mech.measurements.confusion.confusion import ConfusionResult
from icl_mech.measurements.extraction.extraction import ExtractionResult
from icl_mech.measurements.generation.generate import GenerateResult
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
from icl_mech.measurements.lens.lens_table import LensTableResult
from icl_mech.measurements.lens.logit_lens import LogitLensResult
from icl_mech.measurements.lens.top_words import TopWordsResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.rationales.rationale_answers import RationaleAnswersResult
from icl_mech.measurements.rationales.rationale_use import RationaleUseResult
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.results import Result
from icl_mech.studies.published import PublishedNumbers
from icl_mech.studies.untrained import UntrainedFlow

R = TypeVar("R", bound=Result)

class Parts:
    """Results by name or type: `analysis.flow`, `analysis["flow"]`, `analysis[FlowScores]`."""

    results: dict[str, Result]
    ablation: AblationResult
    alignment: AlignmentResult
    anchor_agreement: AnchorAgreementResult
    anchor_tokens: AnchorTokensResult
    attribution_patching: AttributionPatchingResult
    calibration: CalibrationResult
    circuit_faithfulness: CircuitFaithfulnessResult
    compare_compression: CompareCompressionResult
    compare_heads: CompareHeadsResult
    compare_lenses: CompareLensesResult
    compress_context: CompressContextResult
    compress_demonstrations: CompressDemonstrationsResult | CompareCompressionResult
    confusion: ConfusionResult
    context_accuracy: ContextAccuracyResult
    demonstration_steering: DemonstrationSteeringResult
    early_exit: EarlyExitResult
    edge_cuts: EdgeCutsResult
    evaluate_reweighting: ReweightingResult
    extraction: ExtractionResult
    false_induction: FalseInductionResult
    flow: FlowScores
    flow_by_demonstration: FlowByDemonstrationResult
    function_vector_by_demonstration: FunctionVectorByDemonstrationResult
    gain: GainResult
    generate: GenerateResult
    guaranteed_exit: GuaranteedExitResult
    head_attention: HeadAttentionResult
    head_mediation: HeadMediationResult
    head_scores: HeadScoresResult
    induction_scores: InductionScoresResult
    isolation: IsolationResult
    isolation_map: IsolationMapResult
    late_ablation: AblationResult
    layer_accuracy: LayerAccuracyResult
    leave_one_out: LeaveOneOutResult
    lens_table: LensTableResult
    logit_lens: LogitLensResult | ComponentLens
    matching_by_layer: MatchingByLayerResult
    one_false_demonstration: OneFalseDemonstrationResult
    predictions: Predictions
    published: PublishedNumbers
    rationale_answers: RationaleAnswersResult
    rationale_use: RationaleUseResult
    reweighting: ReweightingResult
    saliency_check: SaliencyCheckResult
    saliency_maps: SaliencyMapsResult
    span_flow: SpanFlowResult
    span_saliency: SpanFlowResult
    stability: StabilityResult
    steer: SteerResult
    suppression: SuppressionResult
    task_heads: TaskHeadsResult
    task_vector: TaskVectorResult
    top_words: TopWordsResult
    transplant: TransplantResult
    untrained: UntrainedFlow
    @overload
    def __getitem__(self, key: Literal["ablation"]) -> AblationResult: ...
    @overload
    def __getitem__(self, key: Literal["alignment"]) -> AlignmentResult: ...
    @overload
    def __getitem__(self, key: Literal["anchor_agreement"]) -> AnchorAgreementResult: ...
    @overload
    def __getitem__(self, key: Literal["anchor_tokens"]) -> AnchorTokensResult: ...
    @overload
    def __getitem__(self, key: Literal["attribution_patching"]) -> AttributionPatchingResult: ...
    @overload
    def __getitem__(self, key: Literal["calibration"]) -> CalibrationResult: ...
    @overload
    def __getitem__(self, key: Literal["circuit_faithfulness"]) -> CircuitFaithfulnessResult: ...
    @overload
    def __getitem__(self, key: Literal["compare_compression"]) -> CompareCompressionResult: ...
    @overload
    def __getitem__(self, key: Literal["compare_heads"]) -> CompareHeadsResult: ...
    @overload
    def __getitem__(self, key: Literal["compare_lenses"]) -> CompareLensesResult: ...
    @overload
    def __getitem__(self, key: Literal["compress_context"]) -> CompressContextResult: ...
    @overload
    def __getitem__(self, key: Literal["compress_demonstrations"]) -> CompressDemonstrationsResult | CompareCompressionResult: ...
    @overload
    def __getitem__(self, key: Literal["confusion"]) -> ConfusionResult: ...
    @overload
    def __getitem__(self, key: Literal["context_accuracy"]) -> ContextAccuracyResult: ...
    @overload
    def __getitem__(self, key: Literal["demonstration_steering"]) -> DemonstrationSteeringResult: ...
    @overload
    def __getitem__(self, key: Literal["early_exit"]) -> EarlyExitResult: ...
    @overload
    def __getitem__(self, key: Literal["edge_cuts"]) -> EdgeCutsResult: ...
    @overload
    def __getitem__(self, key: Literal["evaluate_reweighting"]) -> ReweightingResult: ...
    @overload
    def __getitem__(self, key: Literal["extraction"]) -> ExtractionResult: ...
    @overload
    def __getitem__(self, key: Literal["false_induction"]) -> FalseInductionResult: ...
    @overload
    def __getitem__(self, key: Literal["flow"]) -> FlowScores: ...
    @overload
    def __getitem__(self, key: Literal["flow_by_demonstration"]) -> FlowByDemonstrationResult: ...
    @overload
    def __getitem__(self, key: Literal["function_vector_by_demonstration"]) -> FunctionVectorByDemonstrationResult: ...
    @overload
    def __getitem__(self, key: Literal["gain"]) -> GainResult: ...
    @overload
    def __getitem__(self, key: Literal["generate"]) -> GenerateResult: ...
    @overload
    def __getitem__(self, key: Literal["guaranteed_exit"]) -> GuaranteedExitResult: ...
    @overload
    def __getitem__(self, key: Literal["head_attention"]) -> HeadAttentionResult: ...
    @overload
    def __getitem__(self, key: Literal["head_mediation"]) -> HeadMediationResult: ...
    @overload
    def __getitem__(self, key: Literal["head_scores"]) -> HeadScoresResult: ...
    @overload
    def __getitem__(self, key: Literal["induction_scores"]) -> InductionScoresResult: ...
    @overload
    def __getitem__(self, key: Literal["isolation"]) -> IsolationResult: ...
    @overload
    def __getitem__(self, key: Literal["isolation_map"]) -> IsolationMapResult: ...
    @overload
    def __getitem__(self, key: Literal["late_ablation"]) -> AblationResult: ...
    @overload
    def __getitem__(self, key: Literal["layer_accuracy"]) -> LayerAccuracyResult: ...
    @overload
    def __getitem__(self, key: Literal["leave_one_out"]) -> LeaveOneOutResult: ...
    @overload
    def __getitem__(self, key: Literal["lens_table"]) -> LensTableResult: ...
    @overload
    def __getitem__(self, key: Literal["logit_lens"]) -> LogitLensResult | ComponentLens: ...
    @overload
    def __getitem__(self, key: Literal["matching_by_layer"]) -> MatchingByLayerResult: ...
    @overload
    def __getitem__(self, key: Literal["one_false_demonstration"]) -> OneFalseDemonstrationResult: ...
    @overload
    def __getitem__(self, key: Literal["predictions"]) -> Predictions: ...
    @overload
    def __getitem__(self, key: Literal["published"]) -> PublishedNumbers: ...
    @overload
    def __getitem__(self, key: Literal["rationale_answers"]) -> RationaleAnswersResult: ...
    @overload
    def __getitem__(self, key: Literal["rationale_use"]) -> RationaleUseResult: ...
    @overload
    def __getitem__(self, key: Literal["reweighting"]) -> ReweightingResult: ...
    @overload
    def __getitem__(self, key: Literal["saliency_check"]) -> SaliencyCheckResult: ...
    @overload
    def __getitem__(self, key: Literal["saliency_maps"]) -> SaliencyMapsResult: ...
    @overload
    def __getitem__(self, key: Literal["span_flow"]) -> SpanFlowResult: ...
    @overload
    def __getitem__(self, key: Literal["span_saliency"]) -> SpanFlowResult: ...
    @overload
    def __getitem__(self, key: Literal["stability"]) -> StabilityResult: ...
    @overload
    def __getitem__(self, key: Literal["steer"]) -> SteerResult: ...
    @overload
    def __getitem__(self, key: Literal["suppression"]) -> SuppressionResult: ...
    @overload
    def __getitem__(self, key: Literal["task_heads"]) -> TaskHeadsResult: ...
    @overload
    def __getitem__(self, key: Literal["task_vector"]) -> TaskVectorResult: ...
    @overload
    def __getitem__(self, key: Literal["top_words"]) -> TopWordsResult: ...
    @overload
    def __getitem__(self, key: Literal["transplant"]) -> TransplantResult: ...
    @overload
    def __getitem__(self, key: Literal["untrained"]) -> UntrainedFlow: ...
    @overload
    def __getitem__(self, key: str) -> Result: ...
    @overload
    def __getitem__(self, key: type[R]) -> R: ...
    def __getattr__(self, name: str) -> Result: ...
