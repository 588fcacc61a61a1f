"""TensorRT-LLM: what the other rooms know of it is `ENGINE`."""

from .spec import TrtLlm

ENGINE = TrtLlm()
