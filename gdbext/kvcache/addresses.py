"""Address arithmetic of KV caches, by strides alone: where block, token and head lie in a layer, and what lies at an address.

A layer is one or more parts ("k", "v", "kv", "state"). A part is a base address and dimensions, each with a count and a stride in
bytes. Shapes only name the dimensions; strides give every number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from .. import log
from ..errors import GdbextError

NAMES = ("block", "slot", "head", "element")


@dataclass
class Part:
    """One part of a layer. `base`: address. `dims`: `{name: (count, stride in bytes)}`. `item`: bytes of one element. `tensor`:
    the tensor that it is a part of."""

    name: str
    base: int
    dims: dict[str, tuple[int, int]]
    item: int
    tensor: Any = None

    def address(self, **index: int | None) -> int:
        """The address of an element; an omitted dimension counts 0. `GdbextError` outside the part."""
        at = self.base
        for name, value in index.items():
            if value is None:
                continue
            if name not in self.dims:
                raise GdbextError(f"part {self.name} has no dimension {name}; it has {', '.join(self.dims)}")
            count, stride = self.dims[name]
            if not 0 <= value < count:
                raise GdbextError(f"{name} {value} is outside part {self.name}, which has {count}")
            at += value * stride
        return at

    def find(self, address: int) -> dict[str, int] | None:
        """`{dimension: index}` of the element that holds the byte at `address`, or None. Strides must nest, as those of views
        do."""
        rest, found = address - self.base, {}
        if rest < 0:
            return None
        for name, (count, stride) in sorted(self.dims.items(), key=lambda d: -d[1][1]):
            if count <= 1 or stride <= 0:
                found[name] = 0
                continue
            found[name], rest = divmod(rest, stride)
            if found[name] >= count:
                return None
        return found if rest < self.item else None


@dataclass
class Layer:
    """The memory of one layer in one process. `ratio`: kernel blocks per block of the scheduler."""

    index: int
    name: str
    group: int
    parts: list[Part]
    device: str = "cpu"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    order: str = ""  # its dimensions, such as "B H N C"
    ratio: int = 1
    note: str = ""

    def part(self, name: str) -> Part | None:
        """The part of this name, or None."""
        return next((p for p in self.parts if p.name == name), None)

    def block_addresses(self, block: int) -> dict[str, int]:
        """`{part: address}` of a scheduler's block."""
        found = {}
        for part in self.parts:
            try:
                found[part.name] = part.address(block=block * self.ratio)
            except GdbextError as e:
                log.passed_over(e)
                continue
        return found

    def find(self, address: int) -> tuple[str, dict[str, int]] | None:
        """`(part name, {block, slot, head, element})` of an address in it, or None. `block` is the scheduler's, `slot` in it."""
        for part in self.parts:
            found = part.find(address)
            if found is not None:
                if self.ratio > 1:
                    tokens = part.dims.get("slot", (1, 0))[0]
                    found["slot"] = found.get("slot", 0) + found["block"] % self.ratio * tokens
                    found["block"] //= self.ratio
                return part.name, found
        return None

    def address(self, part: str, block: int, slot: int = 0, head: int = 0, element: int = 0) -> int:
        """The address of one element; `GdbextError` names the index that is out of range."""
        found = self.part(part)
        if found is None:
            raise GdbextError(f"layer {self.index} has no part {part}; it has {', '.join(p.name for p in self.parts)}")
        if self.ratio > 1:
            tokens = found.dims["slot"][0]
            block, slot = block * self.ratio + slot // tokens, slot % tokens
        index = {"block": block, "slot": slot, "head": head, "element": element}
        return found.address(**{k: v for k, v in index.items() if k in found.dims or v})


# Shapes of one layer's cache by backend and release (docs/sources.md): name -> its dimensions in order. B blocks, 2 the K/V
# pair, H heads, N tokens, C content of a token (K and V together where a 2 is missing), D of one of them.
ORDERS = {
    5: ("2 B N H D", "B 2 N H D", "2 B H N D"),
    4: ("B H N C", "B N H C", "2 B N D"),
    3: ("B N C", "B H C", "2 B D"),
}


def order_of(
    shape: Sequence[int], blocks: int | None, tokens: int | None, heads: int | None, head_size: int | None, prefer: str = ""
) -> str:
    """Which of `ORDERS` a shape is, by the sizes that the engine gives (None: unknown); '' where none fits.

    `blocks` may be a divisor of the true number (kernel blocks). `prefer`: a name that wins a tie (heads == tokens).
    """
    fits = []
    for name in ORDERS.get(len(shape), ()):
        sizes, good = dict(zip(name.split(), shape)), True
        if "2" in sizes and sizes["2"] != 2:
            good = False
        if blocks and sizes["B"] % blocks:
            good = False
        if tokens and "N" in sizes and (tokens % sizes["N"] if sizes["N"] else True):
            good = False
        if heads and "H" in sizes and sizes["H"] != heads:
            good = False
        if head_size and "D" in sizes and name.count(" ") == 4 and sizes["D"] < head_size:
            good = False
        if good:
            fits.append(name)
    if prefer in fits:
        return prefer
    return fits[0] if fits else ""


def strided_layer(
    index: int,
    name: str,
    group: int,
    base: int,
    item: int,
    shape: Sequence[int],
    stride: Sequence[int],
    order: str,
    *,
    head_size: int | None = None,
    slab: bool = False,
    transposed: bool = False,
    blocks: int | None = None,
    device: str = "cpu",
    dtype: str = "",
) -> Layer:
    """A `Layer` from a tensor's shape and strides (elements). `order` names its dimensions; `item`: bytes of an element;
    `blocks`: how many the scheduler has.

    `slab`: each (block, head) holds all of K and then all of V (vLLM's CPU backend; docs/sources.md). `transposed`: such a K is
    stored element by element (its `vec` kernels), so one token's K is not contiguous.
    """
    dims = {letter: (count, step * item) for letter, count, step in zip(order.split(), shape, stride)}
    common = {"block": dims["B"]}
    if "N" in dims:
        common["slot"] = dims["N"]
    if "H" in dims:
        common["head"] = dims["H"]
    parts = []
    if "2" in dims:
        for number, part in enumerate(("k", "v")):
            parts.append(Part(part, base + number * dims["2"][1], {**common, "element": dims["D"]}, item))
    elif slab and "N" in dims and head_size and dims["C"][0] >= 2 * head_size:
        tokens = dims["N"][0]
        plain = {**common, "slot": (tokens, head_size * item), "element": (head_size, item)}
        turned = {**common, "slot": (tokens, item), "element": (head_size, tokens * item)}
        parts.append(Part("k", base, turned if transposed else plain, item))
        parts.append(Part("v", base + tokens * head_size * item, plain, item))
    elif head_size and dims["C"][0] == 2 * head_size:
        step = dims["C"][1]
        for number, part in enumerate(("k", "v")):
            parts.append(Part(part, base + number * head_size * step, {**common, "element": (head_size, step)}, item))
    else:
        parts.append(Part("kv", base, {**common, "element": dims["C"]}, item))
    ratio = 1
    if blocks and dims["B"][0] > blocks and dims["B"][0] % blocks == 0:
        ratio = dims["B"][0] // blocks
    return Layer(index, name, group, parts, device, dtype, tuple(shape), tuple(stride), order, ratio)
