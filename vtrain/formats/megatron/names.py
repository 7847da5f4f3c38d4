"""Megatron-LM arguments that change neither parameters nor the step being estimated.

Names from `megatron/training/arguments.py` and the public launch scripts; underscores for dashes.
"""

from __future__ import annotations

_WITHOUT_EFFECT_TEXT = """
    abort_on_unmet_fused_kernel_constraints accumulate_allreduce_grads_in_fp32
    add_position_embedding apply_layernorm_1p apply_query_key_layer_scaling
    apply_residual_connection_post_layernorm async_tensor_model_parallel_allreduce
    attention_backend attention_dropout attention_softmax_in_fp32 auto_detect_ckpt_format
    barrier_with_L1_time barrier_with_l1_time batch_p2p_comm batch_p2p_sync bert_binary_head
    bf16_comm bias_activation_fusion bias_dropout_fusion bias_swiglu_fusion
    calculate_per_token_loss ckpt_format clip_grad clone_scatter_output_in_embedding
    create_attention_mask_in_dataloader cross_entropy_fusion_impl cross_entropy_loss_fusion
    data_impl data_parallel_random_init dataloader_type deallocate_pipeline_outputs
    decoupled_lr decoupled_min_lr deepspeed deepspeed_activation_checkpointing
    deepspeed_config empty_unused_memory_level enable_autocast enable_one_logger
    end_weight_decay eod_mask_loss exit_on_missing_checkpoint expert_model_parallel_size
    finetune fp16_lm_cross_entropy fp32_residual_connection fsdp_double_buffer
    gradient_accumulation_fusion hf_tokenizer_path hidden_dropout hysteresis
    init_model_with_meta_device initial_loss_scale kill_switch_path layernorm_epsilon
    layernorm_zero_centered_gamma lazy_mpu_init load local_rank loss_scale loss_scale_window
    lr mask_prob masked_softmax_fusion memory_efficient_layer_norm merge_file metrics
    min_loss_scale min_lr mock_data moe_aux_loss_coeff moe_grouped_gemm
    moe_router_load_balancing_type moe_router_topk moe_token_dropping norm_epsilon
    num_dataset_builder_threads num_workers onnx_safe openai_gelu optimizer overlap_p2p_comm
    override_opt_param_scheduler perform_initialization persist_layer_norm profile
    profile_ranks rampup_batch_size reset_attention_mask reset_position_ids
    retriever_seq_length rotary_interleaved sample_rate save
    scatter_gather_tensors_in_pipeline seed sgd_momentum short_seq_prob skip_train spec split
    squared_relu standalone_embedding_stage start_weight_decay swiglu_fusion test_data_path
    test_type tiktoken_pattern tokenizer_model train_data_path transformer_impl
    use_checkpoint_args use_checkpoint_opt_param_scheduler use_cpu_initialization
    use_flash_attn use_legacy_models use_mcore_models use_nccl_ub use_ring_exchange_p2p
    valid_data_path valid_num_workers variable_seq_lengths vocab_extra_ids vocab_file
    weight_decay weight_decay_incr_style wgrad_deferral_limit
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())

PREFIXES = (
    "adam_", "adlr_", "async_save", "ckpt_", "data_path", "data_cache", "data_args", "dist_ckpt",
    "distributed_", "eval_", "exit_", "fp8_", "init_method", "load_", "log_", "lr_", "manual_gc",
    "master_", "merge_", "nccl_", "no_bias_", "no_check_", "no_create_", "no_gradient_",
    "no_load_", "no_masked_", "no_mmap", "no_persist_", "no_rope_", "no_save_", "no_scatter_",
    "no_async_", "nsys", "one_logger", "output_layer_init", "profile_", "rdzv_", "rope_",
    "rotary_", "save_", "tensorboard_", "timing_", "tokenizer_", "train_weighted", "tp_comm_",
    "use_dist_ckpt", "use_rope", "valid_weighted", "wandb_", "warmup_",
)  # fmt: skip

# Options of the launchers around the training program.
_LAUNCHER_TEXT = """
    account container_image container_mounts container_name container_workdir cpu_bind error
    exclusive gpus_per_node hostfile include job_name jobid kill_on_bad_exit label local_addr
    log_dir max_restarts module monitor_interval mpi no_container_mount_home node_rank nodes
    ntasks ntasks_per_node output partition qos redirects requeue role standalone tee time
    use_env wait
"""
LAUNCHER = frozenset(_LAUNCHER_TEXT.split())

# Arguments that make the model something other than a dense decoder.
OTHER_MODELS = {
    "num_experts": "mixture-of-experts",
    "num_moe_experts": "mixture-of-experts",
    "moe_layer_freq": "mixture-of-experts",
    "multi_latent_attention": "multi-latent attention",
    "hybrid_override_pattern": "a hybrid of attention and state-space layers",
    "hybrid_layer_pattern": "a hybrid of attention and state-space layers",
    "is_hybrid_model": "a hybrid of attention and state-space layers",
    "mtp_num_layers": "multi-token prediction",
    "heterogeneous_layers_config_path": "layers of different shapes",
}
OTHER_PROGRAMS = ("bert", "t5", "ict", "vision", "mamba", "retro", "vlm", "mimo", "hybrid")
