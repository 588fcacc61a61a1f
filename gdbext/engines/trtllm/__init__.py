"""TensorRT-LLM. `ENGINE` is its interface for the other rooms."""

from .spec import TrtLlm

ENGINE = TrtLlm()
