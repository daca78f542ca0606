"""Tiny configurations of every family, two blocks each; what is refused is refused with words."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.tiny import Kind, randomize, tiny_tokenizer

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
}


@dataclass(frozen=True)
class Family:
    """One configuration.

    Attributes:
        name: Of the row.
        kind: `model_type` of transformers.
        options: What its configuration has besides `SIZES`.
        drop: Names in `SIZES` it does not know.
        vision: Configuration of its image part; the rest is then its text part.
        tokenizer: Which tiny tokenizer.
        refused: Words of the refusal, if it is refused at load.
        refuses: Words of the refusal of a single measurement, by comparison.
        untried: Why plain Hugging Face cannot be compared with, by comparison.
    """

    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    vision: dict[str, Any] | None = None
    tokenizer: Kind = "bpe"
    refused: str = ""
    refuses: dict[str, str] = field(default_factory=dict)
    untried: dict[str, str] = field(default_factory=dict)

    def make(self, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        """A new random model, eager, in evaluation mode; the same weights at every call."""
        tokenizer = tiny_tokenizer(self.tokenizer)
        tokens = {"vocab_size": len(tokenizer)}
        for name in ("pad", "bos", "eos"):
            tokens[f"{name}_token_id"] = getattr(tokenizer, f"{name}_token_id")
        sizes = {name: size for name, size in SIZES.items() if name not in self.drop}
        options = {**sizes, **tokens, **self.options}
        if self.vision is not None:
            options = {"text_config": options, **self.vision}
        config = AutoConfig.for_model(self.kind, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        model.config.architectures = [type(model).__name__]
        randomize(model, seed=0)
        return model.to(dtype)


# fmt: off
GROUPED = {"num_key_value_heads": 2}
WIDE = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = {**WIDE, **WINDOWS, "query_pre_attn_scalar": 8}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 8, "head_dim": 4, "num_key_value_heads": 4}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
          "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "intermediate_size": 32, "image_size": 28, "patch_size": 14}
LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
NO_HEADS = ("num_attention_heads",)

NO_RESIDUALS = "TransformerLens exposes no residual stream"
NO_PATTERN = {
    **dict.fromkeys(("flow", "components", "heads", "isolation"), "have no attention pattern"),
    "compression": "takes no key/value cache",
}
AFTERWARDS = "fires hook_attn_scores and hook_pattern afterwards"
CANNOT_WRAP = "cannot wrap"
NO_SUM = "to its logits only within"
ALIBI = {"isolation": "takes no mask of four dimensions: it makes its positions from the mask"}

FAMILIES = (
    Family("GPT-2", "gpt2"),
    Family("GPT-2, scaled by layer", "gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    Family("GPT-2, untied", "gpt2", {"tie_word_embeddings": False}),
    Family("GPT (2018)", "openai-gpt", refuses={
        "components": NO_SUM, "compression": "takes no key/value cache",
    }, untried={"isolation": "takes no mask of four dimensions"}),
    Family("GPT-Neo", "gpt_neo", {"attention_types": [[["local", "global"], 1]], "window_size": 8}),
    Family("GPT-J", "gptj", {"rotary_dim": 4}),
    Family("GPT-NeoX", "gpt_neox"),
    Family("GPT-NeoX, sequential", "gpt_neox", {"use_parallel_residual": False}),
    Family("GPT-BigCode", "gpt_bigcode"),
    Family("GPT-BigCode, multi-head", "gpt_bigcode", {"multi_query": False}, refused=CANNOT_WRAP),
    Family("GPT-OSS", "gpt_oss", {**WIDE, **WINDOWS, "num_local_experts": 4}),
    Family("CodeGen", "codegen", {"rotary_dim": 4}),
    Family("OPT", "opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    Family("OPT, no final norm (350m)", "opt", {
        "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False,
    }, refuses={"components": NO_SUM}),
    Family("XGLM", "xglm", {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48},
           drop=("intermediate_size",)),
    Family("BLOOM", "bloom", untried=ALIBI),
    Family("Falcon", "falcon", {"bias": False}),
    Family("Falcon, ALiBi, sequential", "falcon", {
        "parallel_attn": False, "multi_query": False, "bias": True, "alibi": True,
    }, untried=ALIBI),
    Family("Falcon, new decoder", "falcon", {
        "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True,
    }),
    Family("Falcon, new decoder, one norm", "falcon", {
        "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1,
    }),
    Family("MPT", "mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2}),
    Family("Llama", "llama", GROUPED, tokenizer="sentencepiece"),
    Family("Llama, tied, biases", "llama", {"tie_word_embeddings": True, "attention_bias": True}),
    Family("Llama 3.1 rotary", "llama", {**GROUPED, "rope_parameters": LLAMA_3}),
    Family("Llama 4", "llama4_text", {**WIDE, "num_local_experts": 4, "intermediate_size_mlp": 48,
                                      "interleave_moe_layer_step": 2}),
    Family("Mistral", "mistral", {**GROUPED, "sliding_window": 30}, tokenizer="sentencepiece"),
    Family("Ministral 3", "ministral3", WIDE),
    Family("Mixtral", "mixtral", {**GROUPED, "num_local_experts": 4}),
    Family("Qwen 2", "qwen2", {**GROUPED, "tie_word_embeddings": True}),
    Family("Qwen 2, sliding", "qwen2", {**GROUPED, **WINDOWS, "use_sliding_window": True}),
    Family("Qwen 2 MoE", "qwen2_moe", {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 24}),
    Family("Qwen 3", "qwen3", WIDE),
    Family("Qwen 3 MoE", "qwen3_moe", {**WIDE, **EXPERTS}),
    Family("Qwen 3 Next", "qwen3_next", {**WIDE, **EXPERTS, **LINEAR}, refuses=NO_PATTERN),
    Family("Qwen 3.5", "qwen3_5_text", {**WIDE, **LINEAR}, refuses=NO_PATTERN),
    Family("Gemma", "gemma", WIDE, tokenizer="sentencepiece"),
    Family("Gemma 2", "gemma2", GEMMA),
    Family("Gemma 3", "gemma3_text", GEMMA, tokenizer="sentencepiece"),
    Family("Gemma 3, text and images", "gemma3", GEMMA,
           vision={"vision_config": VISION, "mm_tokens_per_image": 4}),
    Family("Gemma 4", "gemma4_text", {**WIDE, **WINDOWS, "global_head_dim": 16,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 1000,
    }, refuses={"components": NO_SUM}),
    Family("Gemma 4, text and images", "gemma4", {**WIDE, **WINDOWS, "global_head_dim": 16,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 1000,
        "final_logit_softcapping": 5.0,
    }, vision={}, refuses={"components": NO_SUM}),
    Family("VaultGemma", "vaultgemma", GEMMA),
    Family("Phi", "phi"),
    Family("Phi, QK-norm", "phi", {"qk_layernorm": True}, refused=CANNOT_WRAP),
    Family("Phi 3", "phi3", GROUPED),
    Family("StableLM", "stablelm", GROUPED),
    Family("StableLM, parallel", "stablelm", {**GROUPED, "use_parallel_residual": True,
                                              "qk_layernorm": True}),
    Family("OLMo", "olmo", {"clip_qkv": 1.0}),
    Family("OLMo 2", "olmo2", GROUPED),
    Family("OLMo 3", "olmo3", {**GROUPED, **WINDOWS}),
    Family("OLMoE", "olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family("FlexOlmo", "flex_olmo", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    Family("StarCoder 2", "starcoder2", GROUPED),
    Family("Granite", "granite", {**GROUPED, "logits_scaling": 2.0, "residual_multiplier": 0.5,
                                  "embedding_multiplier": 3.0, "attention_multiplier": 0.3}),
    Family("Granite MoE", "granitemoe", {**GROUPED, "num_local_experts": 4, "logits_scaling": 2.0,
                                         "num_experts_per_tok": 2, "residual_multiplier": 0.5}),
    Family("Granite 4, attention only", "granitemoehybrid", {**GROUPED, "num_local_experts": 0,
        "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
        "mamba_n_heads": 8}),
    Family("Granite 4, hybrid", "granitemoehybrid", {**GROUPED, "num_local_experts": 4,
        "num_experts_per_tok": 2, "layer_types": ["mamba", "attention"], "mamba_n_heads": 8,
        "mamba_d_head": 8, "position_embedding_type": "nope"}, refuses=NO_PATTERN),
    Family("Cohere", "cohere", {**GROUPED, "logit_scale": 0.25}),
    Family("Cohere, QK-norm", "cohere", {"use_qk_norm": True}),
    Family("Cohere 2", "cohere2", {**GROUPED, **WINDOWS, "logit_scale": 0.25}),
    Family("GLM", "glm", WIDE),
    Family("GLM 4", "glm4", WIDE),
    Family("GLM 4 MoE", "glm4_moe", {**WIDE, **ROUTED, "use_qk_norm": True}),
    Family("GLM 4 MoE lite", "glm4_moe_lite", {**LATENT, **ROUTED,
                                               "mlp_layer_types": ["dense", "sparse"]}),
    Family("Nemotron", "nemotron", WIDE),
    Family("SmolLM 3", "smollm3", {**GROUPED, "no_rope_layers": [1, 0]}),
    Family("DeepSeek V2", "deepseek_v2", {**LATENT, **ROUTED, "n_group": 1}),
    Family("DeepSeek V3", "deepseek_v3", {**LATENT, **ROUTED}),
    Family("DeepSeek V3, whole queries", "deepseek_v3", {**LATENT, **ROUTED, "q_lora_rank": None}),
    Family("Youtu", "youtu", LATENT),
    Family("Hunyuan", "hunyuan_v1_dense", WIDE),
    Family("Apertus", "apertus", GROUPED),
    Family("Arcee", "arcee", GROUPED),
    Family("AFMoE", "afmoe", {**WIDE, **WINDOWS, **EXPERTS, "num_dense_layers": 1}),
    Family("BitNet", "bitnet", GROUPED),
    Family("Ernie 4.5", "ernie4_5", WIDE),
    Family("Ernie 4.5 MoE", "ernie4_5_moe", {**GROUPED, "moe_num_experts": 4, "moe_k": 2,
                                             "moe_intermediate_size": 24}),
    Family("EXAONE 4", "exaone4", {**GROUPED, **WINDOWS}),
    Family("InternLM 3", "internlm3", WIDE),
    Family("Jais 2", "jais2", GROUPED),
    Family("Laguna", "laguna", {**WIDE, **EXPERTS}),
    Family("MiniMax M2", "minimax_m2", {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    Family("nanochat", "nanochat", GROUPED),
    Family("Seed-OSS", "seed_oss", WIDE),
    Family("BERT as a decoder", "bert", {"is_decoder": True}, refused="is an encoder model"),
    Family("DeepSeek V4", "deepseek_v4", refused=NO_RESIDUALS),
    Family("GLM MoE DSA", "glm_moe_dsa", {**LATENT, **ROUTED, "index_n_heads": 2,
        "index_head_dim": 8, "index_topk": 4}, refused="mishandles padding"),
    Family("PhiMoE", "phimoe", {**GROUPED, "num_local_experts": 4}, refused=CANNOT_WRAP),
    Family("JetMoE", "jetmoe", {"num_key_value_heads": 2, "kv_channels": 8, "num_local_experts": 4},
           drop=NO_HEADS, refused=AFTERWARDS),
    Family("ModernBERT decoder", "modernbert-decoder", {"global_attn_every_n_layers": 2,
        "local_attention": 16, "bos_token_id": 0, "cls_token_id": 0, "sep_token_id": 0,
    }, refused=AFTERWARDS),
    Family("HRM-Text", "hrm_text", WIDE, refused=NO_RESIDUALS),
    Family("Bamba", "bamba", {**GROUPED, "attn_layer_indices": [1], "mamba_n_heads": 8,
                              "mamba_d_head": 8}, refuses=NO_PATTERN),
    Family("Falcon-H1", "falcon_h1", {**WIDE, "mamba_d_ssm": 32, "mamba_n_heads": 4,
        "mamba_d_head": 8}, refuses={"components": NO_SUM, "compression": NO_PATTERN["compression"]}),
    Family("Jamba", "jamba", {**GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "num_experts": 2, "use_mamba_kernels": False,
        "mamba_d_state": 4, "mamba_dt_rank": 4}, refuses=NO_PATTERN),
    Family("LFM 2", "lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"]},
           refuses=NO_PATTERN),
    Family("Nemotron-H", "nemotron_h", {**WIDE, "layers_block_type": ["mamba", "attention"],
        "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 1}, refuses=NO_PATTERN),
    Family("OLMo hybrid", "olmo_hybrid", {**GROUPED,
        **LINEAR}, refuses=NO_PATTERN),
    Family("RecurrentGemma", "recurrent_gemma", {**GROUPED, "lru_width": 32,
        "block_types": ["recurrent", "attention"]}, refused="unembed(ln_final(last residual)) differs"),
    Family("Zamba 2", "zamba2", {**GROUPED, "layers_block_type": ["mamba", "hybrid"],
        "mamba_d_state": 8, "n_mamba_heads": 8, "hybrid_layer_ids": [1]}, refuses=NO_PATTERN),
    Family("Mamba", "mamba", {"state_size": 4}, drop=NO_HEADS, refuses=NO_PATTERN),
    Family("Mamba 2", "mamba2", {"num_heads": 8, "head_dim": 8, "state_size": 8}, drop=NO_HEADS,
           refuses=NO_PATTERN),
    Family("Falcon-Mamba", "falcon_mamba", {"state_size": 4}, drop=NO_HEADS, refuses=NO_PATTERN),
    Family("RWKV", "rwkv", {"attention_hidden_size": 32}, drop=NO_HEADS, refused="mishandles padding"),
)
# fmt: on

BY_NAME = {family.name: family for family in FAMILIES}
HALF = ("GPT-2", "GPT-J", "GPT-NeoX", "Llama", "Gemma 3", "OPT")
"""Also compared in other precisions."""
BOTH_LINES = (
    "GPT-2",
    "GPT-J",
    "Llama",
    "Gemma 3",
    "GPT (2018)",
    "Falcon, new decoder",
    "DeepSeek V3",
)
"""Also compared under TransformerLens 3.9."""
