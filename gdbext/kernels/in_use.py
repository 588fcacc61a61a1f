"""The kernels that compute an engine's attention, out of all that its process could launch. On the device each instance takes a
breakpoint of its own, and one library has more instances than cuda-gdb can handle.

Kernels that Triton has loaded are in use: it compiles a kernel when it is called. Of compiled libraries an engine calls its own
rather than those of torch. Instances for another head size or element type than the KV cache's serve another model.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Collection, Sequence

if TYPE_CHECKING:
    from .catalogue import Row

# {kernel: the part of an instance's name for a head size and an element type}, by the order of the template parameters in
# hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp, flash_attn/src/kernel_traits.h
_SERVES = {
    "FlashAttnFwdSm90": r"cute::C<{head}> >, {head}, cutlass::{element},",
    "flash_fwd_kernel": r"kernel_traits<{head}, (\w+, )*cutlass::{element}\b",
    "flash_fwd_splitkv_kernel": r"kernel_traits<{head}, (\w+, )*cutlass::{element}\b",
}
_ELEMENT = {"bfloat16": "bfloat16_t", "float16": "half_t", "float8_e4m3fn": "float_e4m3_t"}


def in_use(rows: Sequence[Row], loaded: Collection[str]) -> list[Row]:
    """Those of the `rows` of attention kernels that are in use. `loaded`: names of the kernels that Triton has loaded."""
    by_triton = [r for r in rows if r.where == "driver" and r.name in loaded]
    own = [r for r in rows if r.where != "driver" and r.engine]
    compiled = [r for r in rows if r.where != "driver"]
    return by_triton or own or compiled or list(rows)


def serving(rows: Sequence[Row], head_size: int, dtype: str) -> list[Row]:
    """The `rows` without the instances that are known to serve another head size or element type (torch's name of it, as
    "bfloat16"). A row stays as it is where nothing is known of its instances, or where none would be left."""
    found = []
    for row in rows:
        form = next((form for name, form in _SERVES.items() if row.kernel.kernel.endswith(name)), "")
        pattern = re.compile(form.format(head=head_size, element=_ELEMENT.get(dtype, "?")))
        sites = [p for p in row.sites if form and pattern.search(p.signature.text)]
        found.append(replace(row, sites=sites) if sites else row)
    return found
