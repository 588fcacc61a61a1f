"""RTP-LLM. `ENGINE` is its interface for the other rooms."""

from .spec import RtpLlm

ENGINE = RtpLlm()
