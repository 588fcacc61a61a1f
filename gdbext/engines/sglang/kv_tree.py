"""SGLang's prefix tree from memory, once for each pool that has a part of its nodes (srt/mem_cache/radix_cache.py,
swa_radix_cache.py, mamba_radix_cache.py, hiradix_cache.py, unified_cache/unified_tree_core.py). The Rust core (0.5.23's default)
keeps its nodes in memory that only Rust can read."""

from __future__ import annotations

from functools import partial
from typing import Iterable

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError, LayoutError, NotFoundError
from ...kvcache.model import Pool, Tree, TreeNode
from ...torch.tensor_impl import is_tensor
from ..objects import at_once, is_set, length, numbers, numbers_until, optional
from .paths import CLASSIC, COMPONENTS, LOCKS, MAX_NODES


def read_tree(rt: Runtime, pools: dict[str, Pool], tree_cache: Object, page: int, mapping: list[int] | None) -> bool:
    """Reads the nodes, once for each pool that has a part of them, into `Pool.tree`. -> whether some were deleted during the read
    of a running process; they are left out"""
    core = tree_cache
    if is_set(tree_cache, "tree_core"):
        core = tree_cache.attr("tree_core")
    for one in pools.values():
        one.counters["tree"] = core.type_name
    if not is_set(core, "root_node"):
        if core.type_name.startswith("ChunkCache"):
            for one in pools.values():
                one.counters.update(evictable=0, protected=0)
                one.cached_ids = []
        return False
    unified = is_set(core, "component_evictable_size_")
    trees = {what: Tree([], page_size=one.block_size, reaching=what == "full") for what, one in pools.items()}
    for what, tree in trees.items():
        tree.evictable, tree.protected = (_size(core, what, kind, unified) for kind in ("evictable", "protected"))
    gone = _read_nodes(rt, trees, core.attr("root_node").address, unified, page, mapping)
    for what, tree in trees.items():
        one = pools[what]
        if what == "host":  # it keeps no sizes of its own
            tree.protected = sum(n.count for n in tree.nodes if n.lock_ref > 0)
            tree.evictable = sum(n.count for n in tree.nodes) - tree.protected
        one.tree = tree
        one.counters.update(evictable=tree.evictable, protected=tree.protected)
        if all(n.slots is not None for n in tree.nodes):
            one.cached_ids = sorted({s // one.block_size for n in tree.nodes for s in n.slots or ()})
            one.counters["cached"] = len(one.cached_ids)
        else:
            one.counters["cached"] = sum(n.count for n in tree.nodes) // one.block_size
            one.notes.append("the values of the prefix tree's nodes are on the device: only their lengths are known here")
    return gone


def _read_nodes(rt: Runtime, trees: dict[str, Tree], root: int, unified: bool, page: int, mapping: list[int] | None) -> bool:
    """Fills in the nodes of each pool's tree, and their links. -> whether some had gone."""
    at: dict[int, int] = {}  # {address of a node: its number}
    links: dict[int, tuple[int, list[tuple[Object, int]]]] = {}  # {number of a node: its parent, (key, address) of its children}
    above: dict[int, int] = {}
    stack, gone = [(root, -1)], False
    while stack:
        address, lister = stack.pop()
        if address in at:
            name = trees["full"].nodes[at[address]].id
            trees["full"].damage.append((lister, f"node {name} is listed as a child twice"))
            continue
        if len(at) >= MAX_NODES:
            raise LayoutError(
                f"the prefix tree has more than {MAX_NODES} nodes, or changed while it was read: ask again, or after llm-attach"
            )
        try:
            parent, children, held = at_once(
                rt,
                partial(_read_node, rt, address, trees, unified, mapping),
                partial(_is_listed, rt, address, above.get(address)),
            )
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped or _is_listed(rt, address, above.get(address)):
                raise
            gone = True
            continue
        at[address] = len(links)
        links[len(links)] = (parent, children)
        for what, tree in trees.items():
            tree.nodes.append(held[what])
        above.update((c, address) for _, c in children)
        stack += [(c, at[address]) for _, c in children]
    for index, (parent, children) in links.items():
        for tree in trees.values():
            tree.nodes[index].parent = at.get(parent, -1)
            tree.nodes[index].children = [at[c] for _, c in children if c in at]
        trees["full"].nodes[index].misfiled = [at[c] for k, c in children if c in at and not _filed_right(rt, k, c, page)]
    return gone


def _read_node(
    rt: Runtime, address: int, trees: Iterable[str], unified: bool, mapping: list[int] | None
) -> tuple[int, list[tuple[Object, int]], dict[str, TreeNode]]:
    """-> (address of its parent, `[(key, address)]` of its children, {pool: `TreeNode`})"""
    obj = rt.object(address)
    parent = obj.attr("parent").address
    key = obj.attr("key")
    tokens = 0 if key.is_none() else _key_length(rt, key)
    held = {what: _node(rt, obj, what, unified, tokens, mapping) for what in trees}
    return parent, _children(rt, address), held


def _children(rt: Runtime, address: int) -> list[tuple[Object, int]]:
    """`[(key, address)]` of a node's children."""
    return [(rt.object(k), v) for k, v in rt.object(address).attr("children").dict_entries(MAX_NODES)]


def _is_listed(rt: Runtime, address: int, above: int | None) -> bool:
    """Whether a node is still among the children of the one `above` it; the root (None) lasts."""
    rt.target.drop_pages()
    try:
        return above is None or any(child == address for _, child in _children(rt, above))
    except GdbextError as e:
        log.passed_over(e)
        return False  # so has that one gone


def _size(core: Object, what: str, kind: str, unified: bool) -> int | None:
    """How many tokens (Mamba: states) of a pool the tree counts as evictable or protected, None where it has no such counter."""
    if not unified:
        names = (f"{kind}_size_", f"full_{kind}_size_") if what == "full" else (f"{what}_{kind}_size_",)
        return next((v for v in (optional(core, n) for n in names) if v is not None), None)
    for key, value in core.attr(f"component_{kind}_size_").items(16):
        if key.integer() == COMPONENTS.get(what):
            found: int = value.integer()
            return found
    return None


def _node(rt: Runtime, obj: Object, what: str, unified: bool, tokens: int, mapping: list[int] | None) -> TreeNode:
    """A node's part in one pool: a `TreeNode` without its links."""
    if unified:
        held = obj.attr("component_data").item(COMPONENTS.get(what, 0))
        value, lock = (
            held.attr("host_value" if what == "host" else "value"),
            optional(held, "host_lock_ref" if what == "host" else "lock_ref") or 0,  # TREE_LOCK is not judged without
        )
    else:
        name = (
            "value" if what == "swa" and not optional(obj, "swa_tombstone", default=0) else CLASSIC[what]
        )  # SWARadixCache: full slots, to be mapped
        value = obj.attr(name) if is_set(obj, name) else None
        lock = next((v for v in (optional(obj, n) for n in LOCKS.get(what, ("host_ref_counter",))) if v is not None), 0)
    number = optional(obj, "id")
    node = TreeNode(-1 if number is None else number, -1, [], tokens, [], lock, obj.address)
    if value is None or value.is_none():
        node.host = True
    elif is_tensor(value):
        node.slots = numbers(rt, value)
        node.count = length(rt, value)
    elif value.isa("list"):  # the root's value in the classic tree
        node.slots, node.count = numbers(rt, value), value.len()
    if what == "swa" and not unified and node.slots:
        node.slots = [mapping[n] for n in node.slots] if mapping and max(node.slots) < len(mapping) else None
    if what == "mamba":
        node.tokens = node.count  # one state, however long its key
    return node


def _key_length(rt: Runtime, key: Object) -> int:
    if not is_set(key, "token_ids"):
        if key.type_name == "RadixKey":
            raise NotFoundError("RadixKey.token_ids is not there")
        return key.len()  # before RadixKey (0.5.2) a list
    count = length(rt, key.attr("token_ids"))
    limit = optional(key, "limit")
    if limit is not None:
        count = min(count, limit)
    return max(0, count - 1) if optional(key, "is_bigram", default=0) else count


def _filed_right(rt: Runtime, key: Object, child: int, page: int) -> bool:
    """Whether a child's key begins with its dict key: an int at page size 1, a tuple of a page's tokens, either with the key's
    namespace before it. True where the form is not known, so that no false fault is reported."""
    try:
        plain = key.plain()
        own = rt.object(child).attr("key")
        own = own.attr("token_ids") if is_set(own, "token_ids") else own
        head = numbers_until(rt, own, page + 1)
    except GdbextError as e:
        log.passed_over(e)
        return True
    while isinstance(plain, tuple) and len(plain) == 2 and not isinstance(plain[0], int):
        plain = plain[1]  # (namespace, key)
    if isinstance(plain, int):
        return bool(head) and head[0] == plain
    if isinstance(plain, tuple) and len(plain) == page and all(isinstance(n, int) for n in plain):
        return head[:page] == list(plain)
    return True
