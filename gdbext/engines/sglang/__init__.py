"""SGLang: what the other rooms know of it is `ENGINE`."""

from .spec import Sglang

ENGINE = Sglang()
