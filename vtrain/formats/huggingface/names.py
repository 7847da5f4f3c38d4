"""Field and family names of the transformers library that need no code of their own."""

from __future__ import annotations

# Fields of published configs that change neither parameters nor time nor memory of training:
# identity, token ids, initialisation, generation, rotary angles, activation and dropout choices
# (dropout is a property of the software stack here).
_WITHOUT_EFFECT_TEXT = """
    _attn_implementation _name_or_path activation_dropout activation_function
    apply_residual_connection_post_layernorm architectures attention_dropout
    attention_probs_dropout_prob attention_softmax_in_fp32 attn_pdrop auto_map bad_words_ids
    begin_suppress_tokens bias_dropout_fusion bos_token_id chunk_size_feed_forward
    classifier_dropout clip_qkv dropout dtype embd_pdrop eos_token_id gradient_checkpointing
    hidden_act hidden_dropout id2label init_std initializer_range is_decoder
    keys_to_ignore_at_inference label2id layer_norm_eps layer_norm_epsilon layerdrop
    masked_softmax_fusion max_position_embeddings max_window_layers model_type n_positions
    offset_alibi original_max_position_embeddings output_past pad_token_id
    partial_rotary_factor prefix pretraining_tp reorder_and_upcast_attn resid_pdrop
    rms_norm_eps rope_parameters rope_scaling rope_theta rotary_emb_base rotary_pct
    scale_attn_by_inverse_layer_idx scale_attn_weights seq_length skip_bias_add
    skip_bias_add_qkv slow_but_exact summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj task_specific_params tokenizer_class
    torch_dtype transformers_version unk_index use_cache vtrain_note
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())

# Fields that only mixture-of-experts configs carry.
EXPERT_FIELDS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "moe_num_experts",
)

_EXPERT_FAMILIES_TEXT = """
    dbrx deepseek_v2 deepseek_v3 ernie4_5_moe glm4_moe gpt_oss granitemoe hunyuan_v1_moe jamba
    jetmoe llama4 llama4_text minimax mixtral olmoe phimoe qwen2_moe qwen3_moe qwen3_next
    switch_transformers
"""
EXPERT_FAMILIES = frozenset(_EXPERT_FAMILIES_TEXT.split())
