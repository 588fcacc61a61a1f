"""SGLang's KV cache out of memory: rows of requests, free slots or pages, the prefix tree, the buffers of each layer.

Where things hang is data below (srt/mem_cache/memory_pool.py, allocator/*.py, radix_cache.py,
unified_cache/unified_tree_core.py, managers/schedule_batch.py). The token slot is the unit at page size 1, the page otherwise. Tensors
on a device have only their lengths here; the Rust tree core (0.5.23's default) keeps its nodes where only it can read them.
"""

import array

from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..kvcache.addresses import Layer, Part
from ..kvcache.model import Cache, Group, Node, Pool, Request, Tree, Worker
from ..torch.tensor import is_tensor, read_tensor
from .columns_kv import integers
from .vllm_kv import _in_frames, optional, path, settled_frames

ROOTS = {"Scheduler": ""}
# a request's fields: (first release, where), the newest first
FIELDS = {
    "row": (("0.5.23", "kv.req_pool_idx"), ("0.3.6", "req_pool_idx")),
    "allocated": (("0.5.23", "kv.kv_allocated_len"), ("0.5.6", "kv_allocated_len")),
    "committed": (("0.5.23", "kv.kv_committed_len"), ("0.5.6", "kv_committed_len")),
    "protected": (("0.5.23", "kv.cache_protected_len"), ("0.5.6", "cache_protected_len")),
}
BATCHES = (("running", "running_batch"), ("running", "last_batch"), ("running", "cur_batch"))
MAX_REQUESTS = 100_000
MAX_NODES = 2_000_000
MAX_SLOTS = 1 << 28
FULL = 0  # ComponentType.FULL: the index of a node's full-attention data (0.5.16 on)
UPDATING = ("memory_pool.py", "radix_cache.py", "unified_radix_cache.py", "unified_tree_core.py", "token.py", "paged.py", "swa.py", "base.py",
            "allocator.py", "allocation.py", "common.py", "adapter.py")  # fmt: skip
MAX_TOKENS_SHOWN = 4096


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
            if name in UPDATING and "/srt/mem_cache" in folder:
                return f"{frame.function} ({name}:{frame.line})"
    return ""


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
            raise LayoutError(f"the tensor at {obj.address:#x} is no plain list of numbers: {tensor.dtype.name} {list(tensor.shape)}")
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
        raise NotFoundError(f"{rt.target.describe()}: no SGLang scheduler in its frames: is it the scheduler process? see llm-ranks")
    allocator = scheduler.attr("token_to_kv_pool_allocator")
    page = optional(allocator, "page_size", default=1) or 1
    size = optional(allocator, "size")
    if size is None or not 0 < page <= 1 << 20 or not 0 <= size <= MAX_SLOTS:
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} claims {size} slots in pages of {page}")
    pages = size // page
    pool = Pool("pool", pages, pages + 1, page, unit="slot" if page == 1 else "page", reserved=(0,))
    _free(rt, pool, allocator, page)
    requests = _requests(rt, scheduler, pool, page, content)
    _tree(rt, pool, scheduler.attr("tree_cache"), page)
    cache = Cache("sglang", version(rt), [pool], [Group(0, "full", page)], requests, mid_update(rt))
    cache.notes += pool.notes
    rows = scheduler.attr("req_to_token_pool")
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
        counters["cached"] = (size - counters.get("available", 0) - own) // page
        cache.notes.append(f"the prefix tree is a {counters['tree']}, whose nodes only it can read: cached = total - available - requests' own")
    _waits(cache, own)
    return cache


def _free(rt, pool, allocator, page):
    """Free slots or pages: the list where it is on the host, else only how many."""
    free, total, on_device = [], 0, False
    names = [n for n in ("free_pages", "release_pages", "free_slots") if _there(allocator, n)]
    if not names:
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} has neither free_pages nor free_slots")
    for name in names:
        held = allocator.attr(name)
        total += length(rt, held)
        found = numbers(rt, held)
        if found is None:
            on_device = True
        else:
            free += found
    try:  # frees that wait for the end of a group
        group = allocator.attr("free_group")
        waiting = [] if group.is_none() else group.elements(100_000)
        for one in waiting:
            found = numbers(rt, one)
            pool.counters["waiting_frees"] = pool.counters.get("waiting_frees", 0) + length(rt, one)
            if found is None:
                on_device = True
    except (GdbextError, AttributeError):
        pass
    pool.counters["available"] = total * page
    pool.counters["allocator"] = allocator.type_name
    pool.num_free = total
    if on_device:
        pool.notes.append("the list of free pages is on the device: only its length is known here")
    else:
        pool.free_ids = free


def _there(obj, name):
    try:
        value = obj.attr(name)
    except GdbextError:
        return False
    return hasattr(value, "is_none") and not value.is_none()


def _requests(rt, scheduler, pool, page, content):
    rows = scheduler.attr("req_to_token_pool").attr("req_to_token")
    table = read_tensor(rt, rows.address)
    if table.shape is None or len(table.shape) != 2 or table.dtype.name != "int32":
        raise LayoutError(f"req_to_token is a {table.dtype.name} tensor of shape {table.shape}")
    if table.unavailable:
        pool.notes.append("req_to_token is on the device: which slots a request holds is not known here")
    found = {}  # request times are monotonic or missing, by release: ages are not told

    def add(addresses, queue):
        for address in addresses:
            if address in found:
                continue
            found[address] = _request(rt, rt.object(address), queue, table, page, content)

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
    requests = list(found.values())
    for request in requests:  # in last_batch, its row given back: it has ended
        if request.queue == "running" and request.status == "finished" and request.row is None:
            request.queue = "finished"
    return requests


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
    if request.private is None and request.row is not None and _there(obj, "prefix_indices"):  # before 0.5.6: whole pages of the prefix
        request.private = length(rt, obj.attr("prefix_indices")) // page * page
    finished = _there(obj, "finished_reason")
    retracted = bool(optional(obj, "is_retracted", default=0))
    request.status = "finished" if finished else "retracted" if retracted else queue
    request.preemptions = optional(obj, "retraction_count", default=0) or int(retracted)
    if request.row is not None and request.allocated and not table.unavailable:
        if not 0 <= request.row < table.shape[0] or request.allocated > table.shape[1]:
            raise LayoutError(f"{request.request_id} claims row {request.row} with {request.allocated} tokens of a table of {list(table.shape)}")
        slots = array.array("i")
        at = table.data_ptr + request.row * table.stride[0] * 4
        slots.frombytes(rt.target.read(at, 4 * request.allocated))
        request.slots = slots.tolist()
        request.blocks[0] = request.slots if page == 1 else list(dict.fromkeys(s // page for s in request.slots))
    if content:
        request.content = {
            "prompt_token_ids": _array_numbers(rt, prompt, MAX_TOKENS_SHOWN), "output_token_ids": _array_numbers(rt, output, MAX_TOKENS_SHOWN),
        }  # fmt: skip
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
            free = pool.counters.get("available", 0) + (pool.counters.get("evictable") or pool.counters.get("cached", 0) * pool.block_size)
            if (limit and len(running) >= limit) or (cache.rows and not cache.rows["free"]):
                request.blocked_by = f"request slots: {len(running)} run, {limit} may"
            elif need > free:
                holders = sorted(((len(r.slots or ()), r.request_id) for r in running), reverse=True)[:3]
                request.blocked_by = f"blocks: needs {need} tokens, {free} free or evictable; " + ", ".join(f"{n} holds {c}" for c, n in holders)
            else:
                request.blocked_by = "the next step"


# ---- the prefix tree ---------------------------------------------------------------------------------------------------
def _tree(rt, pool, tree_cache, page):
    core = tree_cache
    if _there(tree_cache, "tree_core"):
        core = tree_cache.attr("tree_core")
    pool.counters["tree"] = core.type_name
    if not _there(core, "root_node"):
        if core.type_name.startswith("ChunkCache"):
            pool.counters.update(evictable=0, protected=0)
            pool.cached_ids = []
        return
    unified = _there(core, "component_evictable_size_")
    tree = Tree([], page_size=page)
    if unified:
        tree.evictable, tree.protected = _component(core, "component_evictable_size_"), _component(core, "component_protected_size_")
    else:
        tree.evictable, tree.protected = optional(core, "evictable_size_"), optional(core, "protected_size_")
    at, stack = {}, [(core.attr("root_node").address, -1)]
    links = {}
    while stack:
        address, lister = stack.pop()
        if address in at:
            tree.damage.append((lister, f"node {tree.nodes[at[address]].id} is listed as a child twice"))
            continue
        if len(at) >= MAX_NODES:
            raise LayoutError(f"the prefix tree has more than {MAX_NODES} nodes")
        obj = rt.object(address)
        node, parent, children = _node(rt, obj, unified)
        at[address] = len(tree.nodes)
        links[len(tree.nodes)] = (parent, [c for _, c in children])
        tree.nodes.append(node)
        node.filed_wrong = [(k, c) for k, c in children]  # resolved below, when every node is known
        stack += [(c, at[address]) for _, c in children]
    for index, (parent, children) in links.items():
        node = tree.nodes[index]
        node.parent = at.get(parent, -1)
        node.children = [at[c] for c in children]
        node.filed_wrong = [at[c] for k, c in node.filed_wrong if not _filed_right(rt, k, c, page)]
    pool.tree = tree
    pool.counters.update(evictable=tree.evictable, protected=tree.protected)
    if all(n.slots is not None for n in tree.nodes):
        pool.cached_ids = sorted({s // page for n in tree.nodes for s in n.slots})
        pool.counters["cached"] = len(pool.cached_ids)
    else:
        pool.counters["cached"] = sum(n.count for n in tree.nodes) // page
        pool.notes.append("the values of the prefix tree's nodes are on the device: only their lengths are known here")


def _component(core, name):
    """The entry of FULL in a dict by ComponentType (an IntEnum)."""
    for key, value in core.attr(name).items(16):
        if key.integer() == FULL:
            return value.integer()
    return None


def _node(rt, obj, unified):
    """-> (Node, parent address, [(key Object, child address)])"""
    parent = obj.attr("parent")
    value = obj.attr("component_data").item(FULL).attr("value") if unified else obj.attr("value")
    lock = optional(obj.attr("component_data").item(FULL) if unified else obj, "lock_ref", default=0)
    children = [(rt.object(k), v) for k, v in obj.attr("children").dict_entries(MAX_NODES)]
    key = obj.attr("key")
    tokens = 0 if key.is_none() else _key_length(rt, key)
    node = Node(optional(obj, "id", default=-1), -1, [], tokens, [], lock, obj.address)
    if value.is_none():
        node.host = True
    elif is_tensor(value):
        node.slots = numbers(rt, value)
        node.count = length(rt, value)
    elif value.isa("list"):  # the root's value in the classic tree
        node.slots, node.count = numbers(rt, value), value.len()
    return node, parent.address, children


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
    for names in (("k_buffer", "v_buffer"), ("kv_buffer",)):
        lists = [pool.attr(n) for n in names if _there(pool, n)]
        if len(lists) != len(names):
            continue
        for number, objects in enumerate(zip(*[one.elements(10_000) for one in lists])):
            layer = layer_of(rt, start + number, names, objects, page)
            if layer is None:
                worker.notes.append(f"layer {start + number}: a buffer of a shape that is not known")
            else:
                worker.layers.append(layer)
        return worker
    worker.notes.append(f"a {pool.type_name} keeps its memory in parts that are not decoded here")
    return worker


def layer_of(rt, index, names, objects, page):
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
        parts.append(Part(name.partition("_")[0], base, dims, item))
    layer = Layer(index, "", 0, parts, tensor.device, tensor.dtype.name, tensor.shape, tensor.stride, "S H D")
    layer.tensor = tensor
    return layer
