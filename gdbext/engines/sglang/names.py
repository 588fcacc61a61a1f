"""Which attributes of SGLang's objects not every release and class has, and the rules that rest on an attribute: data.

Sources: srt/mem_cache/**, srt/managers/*.py, srt/disaggregation/*.py of the releases in docs/sources.md. A release between two of
them may have an attribute already."""

from __future__ import annotations

from ...kvcache import rules
from ..absences import Name

NAMES: dict[str, Name] = {}
RESTS_ON: dict[str, tuple[rules.Rule, ...]] = {}
