"""Names under which engines keep users' prompts and tokens. What stands under them is shown only with -show-content."""

PACKAGES = (
    "vllm",
    "sglang",
    "rtp_llm",
    "maga_transformer",
    "tensorrt_llm",
    "lmdeploy",
)  # a process that imported one is an engine

NAMES = frozenset(
    # vLLM: Request, NewRequestData, EngineCoreRequest, CompletionOutput, InputBatch
    "prompt prompts prompt_token_ids prompt_embeds _all_token_ids all_token_ids output_token_ids _output_token_ids token_ids "
    "new_token_ids sampled_token_ids spec_token_ids draft_token_ids resumed_req_token_ids num_prompt_logprobs_token_ids mm_features "
    # SGLang: Req, TokenizedGenerateReqInput, ScheduleBatch
    "origin_input_text origin_input_ids origin_input_ids_unpadded input_text input_ids output_ids fill_ids decoded_text text "
    "output_text output_strs decode_ids read_ids surr_and_decode_ids "
    # LMDeploy, TensorRT-LLM, RTP-LLM
    "all_ids history_ids messages history_cache history_token_ids prompt_text input_token_ids".split()
)


def names_for(rt):
    """The private names for a process: `NAMES` in an engine, none elsewhere."""
    return NAMES if rt.has_module(PACKAGES) else frozenset()
