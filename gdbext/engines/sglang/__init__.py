"""SGLang. `ENGINE` is its interface for the other rooms."""

from .spec import Sglang

ENGINE = Sglang()
