"""SGLang's KV cache out of memory: rows of requests, free slots or pages, the prefix tree, the buffers of each layer.

Where things hang is data below (srt/mem_cache/memory_pool.py, allocator/*.py, radix_cache.py, memory_pool_host.py, pool_host/base.py,
unified_cache/unified_tree_core.py, managers/schedule_batch.py). The token slot is the unit at page size 1, the page otherwise. Tensors
on a device have only their lengths here; the Rust tree core (0.5.23's default) keeps its nodes where only it can read them.

Up to four pools, each with its part of the tree's nodes: full attention; sliding-window layers, whose slot for a token is what a mapping
gives for its full slot (0: none, it is outside the window); Mamba states; and the host memory of the hierarchical cache.
"""

import array

from ...errors import FaultError, GdbextError, LayoutError, NotFoundError
from ...kvcache.addresses import Layer, Part
from ...kvcache.model import Cache, Group, Node, Pool, Request, Tree, Worker
from ...torch.tensor_impl import is_tensor, read_tensor
from ..columns import integers
from ..vllm.kv import _in_frames, optional, path, settled_frames

ROOTS = {"Scheduler": ""}
# a request's fields: (first release, where), the newest first
FIELDS = {
    "row": (("0.5.23", "kv.req_pool_idx"), ("0.3.6", "req_pool_idx")),
    "allocated": (("0.5.23", "kv.kv_allocated_len"), ("0.5.6", "kv_allocated_len")),
    "committed": (("0.5.23", "kv.kv_committed_len"), ("0.5.6", "kv_committed_len")),
    "protected": (("0.5.23", "kv.cache_protected_len"), ("0.5.6", "cache_protected_len")),
}
STATES = (("0.5.23", "kv.mamba_pool_idx"), ("0.5.6", "mamba_pool_idx"))
TRACKED = (("0.5.23", "kv.mamba_ping_pong_track_buffer"), ("0.5.9", "mamba_ping_pong_track_buffer"))
MAMBA_POOLS = (("0.5.16", "mamba_allocator"), ("0.5.3", "mamba_pool"))  # of the request pool: who keeps the free states
HOST_POOLS = (("0.5.16", "cache_controller.mem_pool_host"), ("0.4.6", "token_to_kv_pool_host"))  # of the prefix tree
FREE = ("free_pages", "release_pages", "free_slots", "staged_pages")  # tensors, or lists of tensors (staged_pages, 0.5.23)
GROUPS = ("free_group", "free_page_ids_group", "swa_free_group", "swa_page_ids_group")  # frees that wait for the end of a group
LOCKS = {
    "full": ("lock_ref", "full_lock_ref"),
    "swa": ("swa_lock_ref",),
    "mamba": ("mamba_lock_ref",),
}  # of a node of the classic trees
BATCHES = (("running", "running_batch"), ("running", "last_batch"), ("running", "cur_batch"))
MAX_REQUESTS = 100_000
MAX_NODES = 2_000_000
MAX_SLOTS = 1 << 28
COMPONENTS = {"full": 0, "swa": 1, "mamba": 2}  # ComponentType: the index of a node's data for each (0.5.16 on)
UPDATING = (
    "/mem_cache",
    "/mem_cache/allocator",
    "/mem_cache/unified_cache",
    "/mem_cache/unified_cache/components",
    "/mem_cache/pool_host",
)
READING = {
    "available_size",
    "full_available_size",
    "swa_available_size",
    "evictable_size",
    "protected_size",
    "full_evictable_size",
    "swa_evictable_size",
    "total_size",
    "size",
    "get_kvcache",
    "get_key_buffer",
    "get_value_buffer",
    "get_kv_buffer",
    "set_kv_buffer",
    "pretty_print",
    "sanity_check",
    "get_all_free_pages",
    "debug_print",
    "supports_swa",
    "supports_mamba",
    "new_pages_available",
}
MAX_TOKENS_SHOWN = 4096
_CLASSIC = {"full": "value", "swa": "swa_value", "mamba": "mamba_value", "host": "host_value"}
GROUP_SWA, GROUP_MAMBA = 1, 2
GROUP_KINDS = (("full", "full"), ("swa", "sliding-window"), ("mamba", "mamba"))


def version(rt):
    return rt.release(("sglang.version", "sglang", "sglang._version"))


def find_scheduler(rt):
    """The Scheduler that a frame holds, or None."""
    return rt.target.cached("sglang scheduler", lambda: _in_frames(rt, ROOTS))


def mid_update(rt):
    """'' or where a thread stands inside the functions that change pools and tree."""
    for frames in settled_frames(rt):
        for frame in frames:
            folder, _, name = frame.file.rpartition("/")
            if folder.endswith(UPDATING) and "/srt/" in folder and frame.function.rpartition(".")[2] not in READING:
                return f"{frame.function} ({name}:{frame.line})"
    return ""


def at_first(obj, places):
    """The Object at the first of the places that is there and not None; None."""
    for _, text in places:
        try:
            found = path(obj, text)
        except (GdbextError, AttributeError):
            continue
        if hasattr(found, "is_none") and not found.is_none():
            return found
    return None


def first(obj, what):
    """The plain int of the first of `FIELDS[what]` that is there, None."""
    for _, text in FIELDS[what]:
        owner, _, name = text.rpartition(".")
        try:
            holder = path(obj, owner)
        except GdbextError:
            continue
        value = optional(holder, name)
        if value is not None:
            return value
    return None


# ---- numbers out of tensors, lists and arrays ----------------------------------------------------------------------------
def numbers(rt, obj):
    """Ints of a tensor (int32 or int64, on the host), a list, or an array.array -> list; None for a tensor on a device."""
    if is_tensor(obj):
        tensor = read_tensor(rt, obj.address)
        if tensor.numel == 0:
            return []
        if tensor.unavailable:
            return None
        code = {("int64", 8): "q", ("int32", 4): "i"}.get((tensor.dtype.name, tensor.dtype.itemsize))
        if code is None or tensor.numel > MAX_SLOTS or len(tensor.shape) != 1 or tensor.stride[0] != 1 and tensor.numel > 1:
            raise LayoutError(
                f"the tensor at {obj.address:#x} is no plain list of numbers: {tensor.dtype.name} {list(tensor.shape)}"
            )
        found = array.array(code)
        found.frombytes(rt.target.read(tensor.data_ptr, tensor.numel * tensor.dtype.itemsize))
        return found.tolist()
    if obj.isa("list", "tuple"):
        return integers(rt, obj.element_addresses())
    raise GdbextError(f"the {obj.type_name} at {obj.address:#x} holds no numbers that can be read")


def length(rt, obj):
    """How many numbers it holds, also of a tensor on a device."""
    if is_tensor(obj):
        return read_tensor(rt, obj.address).numel
    if obj.isa("array.array"):
        return rt.target.i64(obj.address + rt.layout["varobj.ob_size"])
    return obj.len()


def _array_numbers(rt, obj, limit):
    if obj.isa("array.array"):
        count = min(length(rt, obj), limit)
        at = rt.target.u64(obj.address + rt.layout["varobj.ob_size"] + 8)
        found = array.array("q")
        found.frombytes(rt.target.read(at, 8 * count))
        return found.tolist()
    return integers(rt, obj.element_addresses(limit))


# ---- the scheduler's side ----------------------------------------------------------------------------------------------
def read(rt, root=None, content=False):
    """`Cache` of a Scheduler (default: the process's). `GdbextError` when there is none."""
    scheduler = root or find_scheduler(rt)
    if scheduler is None:
        raise NotFoundError(
            f"{rt.target.describe()}: no SGLang scheduler in its frames: is it the scheduler process? see llm-ranks"
        )
    allocator, rows, tree = (scheduler.attr(n) for n in ("token_to_kv_pool_allocator", "req_to_token_pool", "tree_cache"))
    page = optional(allocator, "page_size", default=1) or 1
    kept = {"full": allocator, "swa": None, "mamba": at_first(rows, MAMBA_POOLS)}
    if _there(allocator, "full_attn_allocator"):
        kept.update(full=allocator.attr("full_attn_allocator"), swa=allocator.attr("swa_attn_allocator"))
    pools = {what: _pool(rt, what, one, 1 if what == "mamba" else page) for what, one in kept.items() if one is not None}
    pool = pools["full"]
    before = _moving(rt, kept.values())
    mapping = numbers(rt, allocator.attr("full_to_swa_index_mapping")) if "swa" in pools else None
    if "swa" in pools and mapping is None:
        pools["swa"].notes.append(
            "the mapping of full to sliding-window slots is on the device: which of those a request holds is not known here"
        )
    requests = _requests(rt, scheduler, pools, page, mapping, content)
    host = at_first(tree, HOST_POOLS)
    if host is not None and _there(host, "free_slots"):
        pools["host"] = _pool(rt, "host", host, page)
        pools["host"].reserved = ()
    _tree(rt, pools, tree, page, mapping)
    middle = mid_update(rt)
    for holder in (allocator, *kept.values()) if not middle else ():
        waiting = sum(_waiting(rt, holder)) if holder is not None else 0
        middle = f"a group of frees that is still open: {waiting} wait in it" if waiting else middle
    if not rt.target.is_stopped and before != _moving(rt, kept.values()):
        middle = middle or "a step that was made while it was read"
    numbered = {what: number for number, what in enumerate(pools)}
    groups = [
        Group(n, kind, pools[what].block_size, numbered[what]) for n, (what, kind) in enumerate(GROUP_KINDS) if what in pools
    ]
    cache = Cache("sglang", version(rt), list(pools.values()), groups, requests, middle)
    for one in pools.values():
        cache.notes += one.notes
    try:
        free = numbers(rt, rows.attr("free_slots"))
        if free is not None:
            cache.rows = {"size": optional(rows, "size"), "free": free}
    except GdbextError as e:
        cache.notes.append(f"free rows were not read: {e}")
    for name in ("max_total_num_tokens", "max_running_requests"):
        value = optional(scheduler, name)
        if value is not None:
            cache.limits[name] = value
    own = sum(max(0, -(-(r.allocated or 0) // page) * page - (r.private or 0)) for r in requests if r.row is not None)
    counters = pool.counters
    if counters.get("evictable") is None:  # a tree that cannot be read: what is neither free nor a request's own is in it
        counters["cached"] = (pool.size * page - counters.get("available", 0) - own) // page
        cache.notes.append(
            f"the prefix tree is a {counters['tree']}, whose nodes only it can read: cached = total - available - requests' own"
        )
    _waits(cache, own)
    return cache


def _pool(rt, what, allocator, page):
    """`Pool` of an allocator, of the Mamba states' or of the host memory's."""
    size = optional(allocator, "size")
    if size is None or not 0 < page <= 1 << 20 or not 0 <= size <= MAX_SLOTS:
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} claims {size} slots in pages of {page}")
    unit = "state" if what == "mamba" else ("host " if what == "host" else "") + ("slot" if page == 1 else "page")
    pages = size // page
    pool = Pool("pool" if what == "full" else what, pages, pages if what == "host" else pages + 1, page, unit=unit, reserved=(0,))
    free, on_device = [], False
    held = [piece for name in FREE if _there(allocator, name) for piece in _pieces(allocator.attr(name))]
    if not held and not any(_there(allocator, name) for name in FREE):
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} has none of {', '.join(FREE)}")
    pool.num_free = sum(length(rt, piece) for piece in held)
    for piece in held:
        found = numbers(rt, piece)
        on_device = on_device or found is None
        free += found or ()
    if what == "host":  # its list is of slots, whole pages at a time
        pool.num_free //= page
        free = [slot // page for slot in free[::page]]
    pool.counters.update(available=pool.num_free * page, allocator=allocator.type_name)
    waiting = sum(_waiting(rt, allocator))
    if waiting:
        pool.counters["waiting_frees"] = waiting
    if on_device:
        pool.notes.append(f"the list of free {unit}s is on the device: only its length is known here")
    else:
        pool.free_ids = free
    return pool


def _pieces(obj):
    """A tensor or list of numbers itself; the tensors of a list of those."""
    if obj.isa("list") and obj.len() and is_tensor(obj.item(0)):
        return obj.elements(100_000)
    return [obj]


def _waiting(rt, allocator):
    """How many numbers wait in each open group of frees."""
    return [
        length(rt, one)
        for name in GROUPS
        if _there(allocator, name) and allocator.attr(name).isa("list")
        for one in allocator.attr(name).elements(100_000)
    ]


def _moving(rt, allocators):
    """What changes with each step: which tensors are the free lists, and how long they are."""
    held = [one.attr(name) for one in allocators if one is not None for name in FREE if _there(one, name)]
    return [(obj.address, length(rt, obj)) for obj in held]


def _there(obj, name):
    try:
        value = obj.attr(name)
    except GdbextError:
        return False
    return hasattr(value, "is_none") and not value.is_none()


def _requests(rt, scheduler, pools, page, mapping, content):
    rows = scheduler.attr("req_to_token_pool").attr("req_to_token")
    table = read_tensor(rt, rows.address)
    if table.shape is None or len(table.shape) != 2 or table.dtype.name != "int32":
        raise LayoutError(f"req_to_token is a {table.dtype.name} tensor of shape {table.shape}")
    own = dict.fromkeys(pools, 0)
    if table.unavailable:
        pools["full"].notes.append("req_to_token is on the device: which slots a request holds is not known here")
    found = {}  # request times are monotonic or missing, by release: ages are not told

    def add(addresses, queue):
        for address in addresses:
            if address in found:
                continue
            request = found[address] = _request(rt, rt.object(address), queue, table, page, content)
            if mapping and request.slots is not None:
                _window(request, mapping, page, own)
            if "mamba" in pools:
                request.blocks[GROUP_MAMBA] = _states(rt, rt.object(address))
                own["mamba"] += len(request.blocks[GROUP_MAMBA])

    for queue, name in BATCHES:
        try:
            batch = scheduler.attr(name)
            if not batch.is_none():
                add(batch.attr("reqs").element_addresses(MAX_REQUESTS), queue)
        except (NotFoundError, AttributeError):
            continue
    try:
        chunked = scheduler.attr("chunked_req")
        if not chunked.is_none():
            add([chunked.address], "running")
    except NotFoundError:
        pass
    add(scheduler.attr("waiting_queue").element_addresses(MAX_REQUESTS), "waiting")
    for name in ("grammar_queue", "grammar_manager.grammar_queue"):
        try:
            add(path(scheduler, name).element_addresses(MAX_REQUESTS), "grammar")
        except GdbextError:
            continue
    for what in ("swa", "mamba"):
        if what in pools and (mapping or what == "mamba"):
            pools[what].counters["own"] = own[what]
    requests = list(found.values())
    for request in requests:  # in last_batch, its row given back: it has ended
        if request.queue == "running" and request.status == "finished" and request.row is None:
            request.queue = "finished"
    return requests


def _window(request, mapping, page, own):
    """The sliding-window pages of a request's tokens: 0 where it has none any more."""
    slots = request.slots[::page]
    if any(not 0 <= s < len(mapping) for s in slots):
        raise LayoutError(f"{request.request_id} holds slots beyond the mapping of {len(mapping)}")
    request.blocks[GROUP_SWA] = [mapping[s] // page for s in slots]
    own["swa"] += page * sum(1 for b in request.blocks[GROUP_SWA][(request.private or 0) // page :] if b)


def _states(rt, obj):
    """Mamba states of a request: its own, and those in which it keeps track."""
    found = []
    for places in (STATES, TRACKED):
        held = at_first(obj, places)
        if held is not None and is_tensor(held):
            tensor = read_tensor(rt, held.address)
            found += (numbers(rt, held) or []) if tensor.shape else [int.from_bytes(rt.target.read(tensor.data_ptr, 8), "little")]
    return [n for n in found if n >= 0]


def _request(rt, obj, queue, table, page, content):
    request = Request(obj.attr("rid").string(1000), queue=queue, address=obj.address)
    request.row = first(obj, "row")
    prompt, output = obj.attr("origin_input_ids"), obj.attr("output_ids")
    request.prompt_tokens, request.output_tokens = length(rt, prompt), length(rt, output)
    request.allocated = first(obj, "allocated")
    committed = first(obj, "committed")
    if request.row is not None and request.allocated is None:  # before 0.5.6: all of it but the token just sampled
        request.allocated = request.prompt_tokens + max(0, request.output_tokens - 1)
    request.computed_tokens = committed if committed is not None else request.allocated or 0
    request.private = first(obj, "protected")
    if (
        request.private is None and request.row is not None and _there(obj, "prefix_indices")
    ):  # before 0.5.6: whole pages of the prefix
        request.private = length(rt, obj.attr("prefix_indices")) // page * page
    finished = _there(obj, "finished_reason")
    retracted = bool(optional(obj, "is_retracted", default=0))
    request.status = "finished" if finished else "retracted" if retracted else queue
    request.preemptions = optional(obj, "retraction_count", default=0) or int(retracted)
    if request.row is not None and request.allocated and not table.unavailable:
        if not 0 <= request.row < table.shape[0] or request.allocated > table.shape[1]:
            raise LayoutError(
                f"{request.request_id} claims row {request.row} with {request.allocated} tokens of a table of {list(table.shape)}"
            )
        slots = array.array("i")
        at = table.data_ptr + request.row * table.stride[0] * 4
        slots.frombytes(rt.target.read(at, 4 * request.allocated))
        request.slots = slots.tolist()
        request.blocks[0] = request.slots if page == 1 else list(dict.fromkeys(s // page for s in request.slots))
    if content:
        request.content = {
            "prompt_token_ids": _array_numbers(rt, prompt, MAX_TOKENS_SHOWN),
            "output_token_ids": _array_numbers(rt, output, MAX_TOKENS_SHOWN),
        }
    return request


def _waits(cache, own):
    pool = cache.pools[0]
    running = [r for r in cache.requests if r.queue == "running"]
    head = None
    for request in cache.requests:
        if request.queue == "grammar":
            request.blocked_by = "grammar: it is being compiled"
        elif request.queue == "waiting" and head is not None:
            request.blocked_by = f"queue: behind {head.request_id}"
        elif request.queue == "waiting":
            head = request
            limit = cache.limits.get("max_running_requests")
            need = (request.prompt_tokens or 0) + (request.output_tokens or 0)
            free = pool.counters.get("available", 0) + (
                pool.counters.get("evictable") or pool.counters.get("cached", 0) * pool.block_size
            )
            if (limit and len(running) >= limit) or (cache.rows and not cache.rows["free"]):
                request.blocked_by = f"request slots: {len(running)} run, {limit} may"
            elif need > free:
                holders = sorted(((len(r.slots or ()), r.request_id) for r in running), reverse=True)[:3]
                request.blocked_by = f"blocks: needs {need} tokens, {free} free or evictable; " + ", ".join(
                    f"{n} holds {c}" for c, n in holders
                )
            else:
                request.blocked_by = "the next step"


# ---- the prefix tree ---------------------------------------------------------------------------------------------------
def _tree(rt, pools, tree_cache, page, mapping):
    """The nodes, once for each pool that has a part of them, into `Pool.tree`."""
    core = tree_cache
    if _there(tree_cache, "tree_core"):
        core = tree_cache.attr("tree_core")
    for one in pools.values():
        one.counters["tree"] = core.type_name
    if not _there(core, "root_node"):
        if core.type_name.startswith("ChunkCache"):
            for one in pools.values():
                one.counters.update(evictable=0, protected=0)
                one.cached_ids = []
        return
    unified = _there(core, "component_evictable_size_")
    trees = {what: Tree([], page_size=one.block_size, reaching=what == "full") for what, one in pools.items()}
    for what, tree in trees.items():
        tree.evictable, tree.protected = (_size(core, what, kind, unified) for kind in ("evictable", "protected"))
    at, stack = {}, [(core.attr("root_node").address, -1)]
    links = {}
    while stack:
        address, lister = stack.pop()
        if address in at:
            name = trees["full"].nodes[at[address]].id
            trees["full"].damage.append((lister, f"node {name} is listed as a child twice"))
            continue
        if len(at) >= MAX_NODES:
            raise LayoutError(f"the prefix tree has more than {MAX_NODES} nodes")
        obj = rt.object(address)
        parent = obj.attr("parent").address
        children = [(rt.object(k), v) for k, v in obj.attr("children").dict_entries(MAX_NODES)]
        key = obj.attr("key")
        tokens = 0 if key.is_none() else _key_length(rt, key)
        at[address] = len(links)
        links[len(links)] = (parent, children)
        for what, tree in trees.items():
            tree.nodes.append(_node(rt, obj, what, unified, tokens, mapping))
        stack += [(c, at[address]) for _, c in children]
    for index, (parent, children) in links.items():
        for tree in trees.values():
            tree.nodes[index].parent = at.get(parent, -1)
            tree.nodes[index].children = [at[c] for _, c in children]
        trees["full"].nodes[index].misfiled = [at[c] for k, c in children if not _filed_right(rt, k, c, page)]
    for what, tree in trees.items():
        one = pools[what]
        if what == "host":  # it keeps no sizes of its own
            tree.protected = sum(n.count for n in tree.nodes if n.lock_ref > 0)
            tree.evictable = sum(n.count for n in tree.nodes) - tree.protected
        one.tree = tree
        one.counters.update(evictable=tree.evictable, protected=tree.protected)
        if all(n.slots is not None for n in tree.nodes):
            one.cached_ids = sorted({s // one.block_size for n in tree.nodes for s in n.slots})
            one.counters["cached"] = len(one.cached_ids)
        else:
            one.counters["cached"] = sum(n.count for n in tree.nodes) // one.block_size
            one.notes.append("the values of the prefix tree's nodes are on the device: only their lengths are known here")


def _size(core, what, kind, unified):
    """How many tokens (Mamba: states) of a pool the tree counts as evictable or protected, None where it does not."""
    if not unified:
        names = (f"{kind}_size_", f"full_{kind}_size_") if what == "full" else (f"{what}_{kind}_size_",)
        return next((v for v in (optional(core, n) for n in names) if v is not None), None)
    for key, value in core.attr(f"component_{kind}_size_").items(16):
        if key.integer() == COMPONENTS.get(what):
            return value.integer()
    return None


def _node(rt, obj, what, unified, tokens, mapping):
    """What a node holds of one pool: a `Node` without its links."""
    if unified:
        held = obj.attr("component_data").item(COMPONENTS.get(what, 0))
        value, lock = (
            held.attr("host_value" if what == "host" else "value"),
            optional(held, "host_lock_ref" if what == "host" else "lock_ref", default=0),
        )
    else:
        name = (
            "value" if what == "swa" and not optional(obj, "swa_tombstone", default=0) else _CLASSIC[what]
        )  # SWARadixCache: full slots, to be mapped
        value = obj.attr(name) if _there(obj, name) else None
        lock = next((v for v in (optional(obj, n) for n in LOCKS.get(what, ("host_ref_counter",))) if v is not None), 0)
    node = Node(optional(obj, "id", default=-1), -1, [], tokens, [], lock, obj.address)
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


def _key_length(rt, key):
    if not _there(key, "token_ids"):
        return key.len()  # before RadixKey (0.5.2) a list
    count = length(rt, key.attr("token_ids"))
    limit = optional(key, "limit")
    if limit is not None:
        count = min(count, limit)
    return max(0, count - 1) if optional(key, "is_bigram", default=0) else count


def _filed_right(rt, key, child, page):
    """Whether a child's key begins with the dict key that it is filed under: an int at page size 1, a tuple of a page's tokens, either
    with the key's namespace before it. True where the form is not known: no fault is made up."""
    try:
        plain = key.plain()
        own = rt.object(child).attr("key")
        own = own.attr("token_ids") if _there(own, "token_ids") else own
        head = _array_numbers(rt, own, page + 1)
    except GdbextError:
        return True
    while isinstance(plain, tuple) and len(plain) == 2 and not isinstance(plain[0], int):
        plain = plain[1]  # (namespace, key)
    if isinstance(plain, int):
        return bool(head) and head[0] == plain
    if isinstance(plain, tuple) and len(plain) == page and all(isinstance(n, int) for n in plain):
        return head[:page] == list(plain)
    return True


# ---- memory of the layers ----------------------------------------------------------------------------------------------
def read_worker(rt, label, num_blocks=None):
    """`Worker`: the layers' buffers of the process's KV pool."""
    scheduler = find_scheduler(rt)
    if scheduler is None:
        raise NotFoundError(f"{rt.target.describe()}: no SGLang scheduler in its frames")
    allocator = scheduler.attr("token_to_kv_pool_allocator")
    page = optional(allocator, "page_size", default=1) or 1
    worker = Worker(label, target=rt.target)
    pool = allocator.attr("_kvcache")
    start = optional(pool, "start_layer", default=0) or 0
    try:
        worker.layout = pool.attr("kv_cache_layout").string(20)
    except (GdbextError, AttributeError):
        pass
    for sub, group, indices in _sub_pools(pool):
        _layers(rt, worker, sub, group, page, indices, start)
    return worker


def _sub_pools(pool):
    """[(a KV pool, its group, {its layer: the model's})]: a hybrid model has one for full layers and one for sliding-window layers."""
    if not _there(pool, "full_kv_pool"):
        return [(pool, 0, {})]
    found = {False: {}, True: {}}
    if _there(pool, "layers_mapping"):  # of SWAKVPool: {layer: (layer in its pool, whether that is the window's)}
        for layer, place in pool.attr("layers_mapping").items(10_000):
            found[bool(place.item(1).integer())][place.item(0).integer()] = layer.integer()
    elif _there(pool, "full_attention_layer_id_mapping"):  # of HybridLinearKVPool: {layer: layer in its pool}
        for layer, place in pool.attr("full_attention_layer_id_mapping").items(10_000):
            found[False][place.integer()] = layer.integer()
    subs = [(pool.attr("full_kv_pool"), 0, found[False])]
    return subs + ([(pool.attr("swa_kv_pool"), GROUP_SWA, found[True])] if _there(pool, "swa_kv_pool") else [])


def _layers(rt, worker, pool, group, page, indices, start):
    for names in (("k_buffer", "v_buffer"), ("kv_buffer",)):
        lists = [pool.attr(n) for n in names if _there(pool, n)]
        if len(lists) != len(names):
            continue
        for place, objects in enumerate(zip(*[one.elements(10_000) for one in lists])):
            number = indices.get(place, start + place)
            layer = layer_of(rt, number, names, objects, page, group)
            if layer is None:
                worker.notes.append(f"layer {number}: a buffer of a shape that is not known")
            else:
                worker.layers.append(layer)
        return
    worker.notes.append(f"a {pool.type_name} keeps its memory in parts that are not decoded here")


def layer_of(rt, index, names, objects, page, group=0):
    """A `Layer` of one layer's buffers [slots, heads, head dim] (or [slots, 1, dim] of MLA); None for another form."""
    parts, tensor = [], None
    for name, obj in zip(names, objects):
        try:
            tensor = read_tensor(rt, obj.address)
        except (FaultError, LayoutError):
            return None
        if tensor.shape is None or tensor.stride is None or len(tensor.shape) != 3:
            return None
        item = tensor.dtype.itemsize
        slot, head, element = ((n, s * item) for n, s in zip(tensor.shape, tensor.stride))
        dims = {"block": (slot[0] // page, slot[1] * page), "slot": (page, slot[1]), "head": head, "element": element}
        base = tensor.storage_data + tensor.storage_offset * item
        parts.append(Part(name.partition("_")[0], base, dims, item, tensor))
    return Layer(index, "", group, parts, tensor.device, tensor.dtype.name, tensor.shape, tensor.stride, "S H D")
