"""vLLM: what the other rooms know of it is `ENGINE`."""

from .spec import Vllm

ENGINE = Vllm()
