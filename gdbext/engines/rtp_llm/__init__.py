"""RTP-LLM: what the other rooms know of it is `ENGINE`."""

from .spec import RtpLlm

ENGINE = RtpLlm()
