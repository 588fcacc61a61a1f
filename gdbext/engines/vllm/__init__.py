"""vLLM. `ENGINE` is its interface for the other rooms."""

from .spec import Vllm

ENGINE = Vllm()
