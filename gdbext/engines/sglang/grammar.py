"""The grammar of a SGLang request, and its row of the mask. The mask is made when a step samples, and dropped at once
(srt/sampling/sampling_batch_info.py, `update_regex_vocab_mask`; SGLang 0.5.23, before in `vocab_mask`)."""

from __future__ import annotations

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ..grammars import COMPILING, ENDED, FAILED, READY, Grammar, compiled, variables
from ..objects import at, optional

MASKED = 4096  # requests of a batch


def read(rt: Runtime, request: Object) -> Grammar | None:
    """`Grammar` of a scheduler's request, None for one without."""
    held = at(request, "grammar")
    if held is None:
        return None
    made = compiled(held)
    if made is None:
        return Grammar(COMPILING)
    if made.type_name == "InvalidGrammarObject":
        return Grammar(FAILED, made.type_name)
    taken = at(made, "accepted_tokens")
    found = Grammar(ENDED if optional(made, "_finished", "boolean", False) else READY, made.type_name)
    found.accepted = taken.len() if taken is not None else None
    found.vocabulary = optional(made, "vocab_size")
    found.why = "it is there while a step samples: pybreak SamplingBatchInfo.apply_logits_bias, llm-continue"
    for batch in variables(rt, "self", "sampling_info"):
        for info in batch.values():
            rows = at(info, "grammars") if info.type_name == "SamplingBatchInfo" else None
            places = rows.element_addresses(MASKED) if rows is not None else []
            mask = at(info, "grammar_mask.vocab_mask") or at(info, "vocab_mask")
            if mask is not None and held.address in places:
                found.why = ""
                found.read_mask(rt, mask, places.index(held.address))
                return found
    return found
