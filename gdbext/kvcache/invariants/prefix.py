"""Rules of prefix caches: a map from hashes to blocks (vLLM), a tree of token runs (SGLang)."""

from __future__ import annotations

from ..model import Cache, Pool, Tree, TreeNode
from ..rules import HASH_ENTRY, HASH_MISSING, HASH_TOKENS, TREE_KEY, TREE_LINK, TREE_LOCK, TREE_SIZE, TREE_TWICE
from .findings import Findings


def check_hashes(found: Findings, pool: Pool) -> None:
    """Checks that the prefix map and the hashes that blocks carry say the same."""
    found.checks(HASH_ENTRY, HASH_MISSING)
    hashes = pool.hashes or []
    mapped = [0] * pool.count
    for token, blocks in pool.hash_map:
        if len(blocks) == 1 and pool.valid(blocks[0]):
            mapped[blocks[0]] = token
    if mapped == hashes and len(pool.hash_map) == pool.count - mapped.count(0):
        return  # each entry leads to a block of its own, which carries it, and no other block carries any
    named: dict[int, set[int]] = {}
    for token, blocks in pool.hash_map:
        entry = f"the prefix map's entry {pool.hash_text(token)}"
        for i in blocks:
            if not pool.valid(i):
                found.add(HASH_ENTRY, f"{entry} leads to no block of this pool")
                continue
            named.setdefault(i, set()).add(token)
            if hashes[i] != token and token not in pool.extra_hashes.get(i, ()):
                carried = f"carries {pool.hash_text(hashes[i])}" if hashes[i] else "has no hash"
                found.add(HASH_ENTRY, f"{entry} leads to block {i}, which {carried}", i)
    for i, token in enumerate(hashes):
        if token and token not in named.get(i, ()) and i not in pool.reserved:
            carried = f"block {i} carries the hash {pool.hash_text(token)}"
            found.add(HASH_MISSING, f"{carried}, which the prefix map does not give for it", i)


def check_tokens(found: Findings, cache: Cache) -> None:
    """Checks that requests' and blocks' hashes are those of their tokens."""
    if cache.token_hashes is None:
        return
    hashes = cache.token_hashes()
    if hashes.why:
        cache.notes.append(hashes.why)
    if hashes.left_out:
        cache.notes.append(f"{hashes.left_out} {hashes.of} have more than tokens in their hashes, which were not recomputed")
    if hashes.unread:
        cache.notes.append(f"{hashes.unread} {hashes.of} changed while their tokens were read: their hashes were not recomputed")
    if not hashes.checked:
        return
    found.checks(HASH_TOKENS)
    for request_id, block, detail in hashes.wrong:
        found.add(HASH_TOKENS, detail, block, request_id or None)


def check_tree(found: Findings, tree: Tree) -> None:
    """Checks a prefix tree: its links, keys, locks and sizes, and that each slot is in one node."""
    found.checks(TREE_LINK, TREE_KEY, TREE_LOCK, TREE_SIZE, TREE_TWICE)
    for _, why in tree.damage:
        found.add(TREE_LINK, why)
    seen: dict[int, int] = {}
    for index, node in enumerate(tree.nodes):
        _check_node(found, tree, index, node)
        for slot in node.slots or ():
            page = slot // tree.page_size
            if seen.setdefault(page, index) != index:
                found.add(TREE_TWICE, f"slot {slot} is in node {tree.nodes[seen[page]].id} and in node {node.id}", page)
    for what, locked, counted in (("evictable", False, tree.evictable), ("protected", True, tree.protected)):
        if counted is None:
            continue
        held = sum(n.count for i, n in enumerate(tree.nodes) if i and (n.lock_ref > 0) == locked)
        if held != counted:
            found.add(TREE_SIZE, f"the tree counts {counted} {what} tokens, its nodes hold {held}")


def _check_node(found: Findings, tree: Tree, index: int, node: TreeNode) -> None:
    """One node against its children and its parent. The root (index 0) has no key, no slots and no parent."""
    label = f"node {node.id}"
    parent = tree.nodes[node.parent] if 0 <= node.parent < len(tree.nodes) else None
    for child in (tree.nodes[i] for i in node.children):
        if child.parent != index:
            other = f"node {tree.nodes[child.parent].id}" if 0 <= child.parent < len(tree.nodes) else "no node of the tree"
            found.add(TREE_LINK, f"node {child.id} is a child of {label}, its parent link leads to {other}")
    for i in node.misfiled:
        found.add(TREE_KEY, f"node {tree.nodes[i].id} does not begin with what {label} files it under")
    if index and not node.host and node.tokens != node.count:
        found.add(TREE_KEY, f"{label} has a key of {node.tokens} tokens and holds {node.count} slots")
    if node.lock_ref < 0:
        found.add(TREE_LOCK, f"{label} has {node.lock_ref} locks")
    if tree.reaching and index and node.lock_ref > 0 and parent is not None and parent.lock_ref < 1:
        found.add(TREE_LOCK, f"{label} is locked and its parent, node {parent.id}, is not")
