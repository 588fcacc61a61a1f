"""Names under which engines keep users' prompts and tokens. Their values are shown only with -show-content."""

from __future__ import annotations

from ..cpython.privacy import counted, is_program_name
from ..cpython.runtime import Runtime
from . import registry

# Names of requests and their parts in OpenAI-style servers of any engine: vllm/entrypoints/openai/*/protocol.py.
HANDLERS = frozenset(
    "body raw_request _body _json request_dict payload messages conversation engine_prompt engine_prompts engine_inputs "
    "prompt prompts content contents text texts input_text output_text generated_text prompt_text delta_text delta_message "
    "previous_text previous_texts current_text input_ids token_ids current_token_ids previous_token_ids delta_token_ids "
    "completion choices tool_calls arguments stop tools extra_args extra_body reasoning reasoning_content top_logprobs "
    "response_format guided_json guided_choice guided_regex guided_grammar guided_whitespace_pattern whitespace_pattern "
    "vllm_xargs custom_params chat_template_kwargs mm_processor_kwargs multi_modal_data documents instructions function_call "
    "stop_sequences stop_strings stop_words query_text query_texts passages score_map system_prompt mm_data image_url image_urls "
    "image_data video_url video_urls video_data audio_url audio_urls audio_data input_audio "
    "negative_prompt suffix user argv orig_argv".split()  # words of a command line: keys, a system prompt
)


def shown_name(rt: Runtime, name: str) -> str:
    """The name of a thread or an asyncio task; counted where it is free text and the process is an engine's."""
    return name if is_program_name(name) or not names_for(rt) else counted(name)


def names_for(rt: Runtime) -> frozenset[str]:
    """The sensitive names of a process. In a process of an engine they are those of all engines and of their servers' handlers,
    elsewhere none."""
    return registry.sensitive_names() | HANDLERS if rt.has_module(registry.packages()) else frozenset()
