"""The grammar of a vLLM request, and its row of the mask that the scheduler makes in each step (vllm/v1/structured_output/,
v1/core/sched/scheduler.py, `get_grammar_bitmask`; vLLM 0.32)."""

from __future__ import annotations

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ..grammars import COMPILING, ENDED, FAILED, READY, Grammar, compiled, variables
from ..objects import at, optional
from . import kv

MASKED = 4096  # requests of a step


def read(rt: Runtime, request: Object) -> Grammar | None:
    """`Grammar` of a scheduler's request, None for one without."""
    asked = at(request, "structured_output_request")
    if asked is None:
        return None
    held = at(asked, "_grammar")
    made = compiled(held) if held is not None else None
    if made is None:
        return Grammar(COMPILING)
    if "BaseException" in made.mro_names():
        return Grammar(FAILED, made.type_name)
    ended = optional(made, "_is_terminated", "boolean", False)
    found = Grammar(ENDED if ended else READY, made.type_name, optional(made, "num_processed_tokens"))
    found.vocabulary = optional(made, "vocab_size")
    found.why = "the scheduler makes it in each step, before the workers sample: stop there, as llm-layers does"
    scheduler = kv.find_scheduler(rt)
    mask = at(scheduler, "structured_output_manager._grammar_bitmask") if scheduler is not None else None
    row = _row(rt, request.attr("request_id").string())
    if mask is not None and row is not None:
        found.why = ""
        found.read_mask(rt, mask, row)
    return found


def _row(rt: Runtime, name: str) -> int | None:
    """A request's first row of the step's mask, None where no step with such a row is being computed. Each request has a row for
    each of its draft tokens and one more."""
    for held in variables(rt, "grammar_output", "scheduler_output"):
        order = at(held["grammar_output"], "structured_output_request_ids") if "grammar_output" in held else None
        names = [one.string() for one in order.elements(MASKED)] if order is not None else []
        if name in names:
            before = names[: names.index(name)]
            drafts = at(held["scheduler_output"], "scheduled_spec_decode_tokens") if "scheduler_output" in held else None
            counts = {key.string(): tokens.len() for key, tokens in drafts.items()} if drafts is not None else {}
            return sum(1 + counts.get(one, 0) for one in before)
    return None
