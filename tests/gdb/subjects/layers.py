"""Models of torch drawn by a seed, each run when a line comes in, and what their own forward hooks saw.

`layers.py FILE SEED...`: for each seed one model and one call; the truth of a call is a line of FILE once it is over. Without
seeds: what `llm-layers` has to get along with, by name: `layers.py FILE case NAME`.
"""

import collections
import dataclasses
import hashlib
import json
import os
import random
import sys
import threading

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    extra: object


class Shape(nn.Module):
    """Gives its input back in another shape, stride, dtype or container, by its kind; what comes after takes the first tensor."""

    KINDS = (
        "transposed sliced expanded tuple none_in_tuple none dict dataclass namedtuple list nan inf ints bools empty conj scalar"
    )

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return getattr(self, self.kind)(x)

    def transposed(self, x):
        return x.t().t() if x.shape[0] == 1 else x.t().contiguous().t()

    def sliced(self, x):
        return torch.cat([x, x], 1)[:, ::2][:, : x.shape[1] // 2 * 2]

    def expanded(self, x):
        return x[:1].expand(4, -1)

    def tuple(self, x):
        return x, x + 1

    def none_in_tuple(self, x):
        return x * 2, None

    def none(self, x):
        self.kept = x  # nobody sees a tensor
        return None

    def dict(self, x):
        return {"hidden": x, "more": {"deep": x[0]}}

    def dataclass(self, x):
        return Output(x, [x[:, 0]])

    def namedtuple(self, x):
        return collections.namedtuple("Pair", "one two")(x, x.sum())

    def list(self, x):
        return [x, [x[0], 3]]

    def nan(self, x):
        x = x.clone()
        x[0, :2] = float("nan")
        return x

    def inf(self, x):
        x = x.clone()
        x[-1, 0], x[-1, 1] = float("inf"), float("-inf")
        return x

    def ints(self, x):
        return x.double().nan_to_num(0, 0, 0).mul(10).long()

    def bools(self, x):
        return x > 0

    def empty(self, x):
        return x[:0]

    def conj(self, x):
        return torch.complex(x.float(), -x.float()).conj()

    def scalar(self, x):
        return x.float().sum()


class Chain(nn.Module):
    """Calls its children one after the other; some twice, some also held by another."""

    def __init__(self, draw, width, depth, dtype, shared):
        super().__init__()
        self.parts = nn.ModuleList()
        for _ in range(draw.randint(1, 4)):
            kind = draw.randrange(8)
            if kind == 0 and depth:
                self.parts.append(Chain(draw, width, depth - 1, dtype, shared))
            elif kind == 1:
                self.parts.append(nn.Sequential(nn.Linear(width, width, dtype=dtype), nn.Sequential(nn.ReLU(), nn.Identity())))
            elif kind in (2, 3, 4):
                self.parts.append(Shape(draw.choice(Shape.KINDS.split())))
            elif kind == 5:
                self.parts.append(shared)
            elif kind == 6:
                self.parts.append(nn.LayerNorm(width, dtype=dtype))
            else:
                self.parts.append(nn.Linear(width, width, dtype=dtype))
        self.calls = [draw.choice((1, 1, 1, 2)) for _ in self.parts]
        self.width, self.dtype = width, dtype

    def forward(self, x):
        for part, calls in zip(self.parts, self.calls):
            for _ in range(calls):
                made = first_tensor(part(x))
                if (
                    made is not None
                    and made.dtype == self.dtype
                    and made.dim() == 2
                    and made.shape[1] == self.width
                    and len(made)
                ):
                    x = made
        return x


def first_tensor(value):
    if isinstance(value, (tuple, list)):
        value = value[0]
    if isinstance(value, dict):
        value = value["hidden"]
    return value.hidden if isinstance(value, Output) else value


def model(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    width, dtype = draw.choice((2, 6, 16, 300)), draw.choice(DTYPES)
    shared = nn.Linear(width, width, dtype=dtype)
    return Chain(draw, width, 3, dtype, shared), torch.randn(draw.choice((1, 3, 40)), width).to(dtype)


# ---- what a hook saw ---------------------------------------------------------------------------------------------------
def places(value, name=""):
    """The tensors of an output in the order and under the names that llm-layers gives them."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from places(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, f"{name}[{key!r}]")
    elif isinstance(value, Output):
        for key, item in vars(value).items():
            yield from places(item, f"{name}.{key}")


def numbers(t):
    stored = t.resolve_conj().contiguous()
    raw = stored.view(torch.uint8) if stored.dim() else stored.reshape(1).view(torch.uint8)
    found = {
        "shape": list(t.shape),
        "dtype": str(t.dtype)[6:],
        "hash": hashlib.sha256(raw.numpy().tobytes()).hexdigest(),
        "nan": int(t.isnan().sum()),
        "inf": int(t.isinf().sum()),
    }
    if not t.is_complex():
        wide = t.double()
        finite = wide[wide.isfinite()]
        found["range"] = [float(finite.min()), float(finite.max()), float(finite.mean())] if finite.numel() else None
    return found


class Hook:
    def __init__(self):
        self.rows, self.counts, self.paths = [], {}, {}
        register_module_forward_hook(self)

    def begin(self, root):
        self.rows, self.counts = [], {}
        self.paths = {id(module): path for path, module in root.named_modules()}

    def __call__(self, module, inputs, output):
        call = self.counts.get(id(module), 0)
        self.counts[id(module)] = call + 1
        base = {"path": self.paths.get(id(module)), "call": call, "type": type(module).__name__}
        found = [{**base, "output": place, **numbers(t)} for place, t in places(output)]
        self.rows += found or [{**base, "output": "", "hash": None}]


def drawn(out, seeds):
    hook = Hook()
    for seed in seeds:
        root, x = model(seed)
        sys.stdin.readline()
        hook.begin(root)
        root(x)
        out.write(json.dumps(hook.rows) + "\n")
        out.flush()
    sys.stdin.readline()


# ---- cases by name -----------------------------------------------------------------------------------------------------
class Small(nn.Module):
    def __init__(self, layers=3, width=64):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        self.plant = None

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if self.plant == number:
                raise RuntimeError("in the middle")
        return x


def steps(count=1000, change=None, root=None):
    """A model that is called again and again, in one line of stdin each; `change(model, step)` before each."""
    torch.manual_seed(7)
    made, x = root or Small(), torch.randn(5, 64)
    loss = nn.MSELoss()
    for step in range(count):
        if not sys.stdin.readline():
            return
        if change is not None:
            change(made, step)
        loss(made(x), x)


def weight_changed(made, step):
    """From the second call on, 1 % more in the second layer."""
    if step == 1:
        with torch.no_grad():
            made.layers[1][0].weight *= 1.01


class Elsewhere(nn.Module):
    """Returns what has no values that could be looked through."""

    def forward(self, x):
        return x.to("meta")


def nan_planted(made, step):
    """From the third call on, a NaN among the second layer's weights."""
    Elsewhere()(made.layers[1][0].weight[0])
    if step == 2:
        with torch.no_grad():
            made.layers[1][0].weight[3, 5] = float("nan")


def compiled_inside():
    """The second layer's call is a compiler's, which calls no modules."""
    made = Small()
    made.layers[1]._compiled_call_impl = torch.relu
    steps(root=made)


def threads():
    """Two threads call models of their own all the time; a third one the model that is looked for, once for each line."""
    torch.manual_seed(7)

    def work(made, x):
        while True:
            made(x)

    for _ in range(2):
        threading.Thread(target=work, args=(Small(1, 16), torch.randn(2, 16)), daemon=True).start()
    sys.stdin.readline()


class ColumnParallelLinear(nn.Linear):
    pass


class QKVParallelLinear(ColumnParallelLinear):
    pass


class RowParallelLinear(nn.Linear):
    pass


class PackedLinear(nn.Linear):
    """Keeps its weight in another form alone, as the linear layers of vLLM do on a CPU: in a function (`seen`), or in what a
    library gave a handle of."""

    def __init__(self, seen):
        super().__init__(8, 2, bias=False)
        self.pack(self.weight.detach().t().contiguous(), seen)

    def pack(self, packed, seen):
        handle = packed if seen else id(packed)
        self.cpu_linear = lambda x: (x, handle)
        self.weight = nn.Parameter(torch.empty(0), requires_grad=False)


class Rank(nn.Module):
    """A rank's part of a model, under the names that engines give its layers."""

    def __init__(self, number):
        super().__init__()
        torch.manual_seed(number)
        self.qkv, self.out = QKVParallelLinear(8, 4), RowParallelLinear(4, 8)
        self.norm = nn.LayerNorm(8)
        torch.manual_seed(5)
        self.router, self.gate = PackedLinear(True), PackedLinear(False)
        self.register_buffer("table", torch.arange(16.0))
        self.register_buffer("none", None)
        with torch.no_grad():
            self.out.bias.zero_()


def ranks():
    made = [Rank(number) for number in range(3)]
    with torch.no_grad():
        made[1].norm.weight[3] += 1e-6
        made[2].router.pack(torch.ones(8, 2), True)
    ready()
    sys.stdin.readline()
    return made


def dies(made, step):
    made.layers[1].register_forward_hook(lambda *a: os._exit(3))


def ready():
    print(json.dumps({"pid": os.getpid()}), flush=True)


def main():
    torch.set_num_threads(1)
    path, *words = sys.argv[1:]
    with torch.no_grad(), open(path, "w") as out:
        if words[1:] != ["ranks"]:
            ready()
        if words[:1] != ["case"]:
            drawn(out, map(int, words))
        elif words[1] == "weight":
            steps(change=weight_changed)
        elif words[1] == "nan":
            steps(change=nan_planted)
        elif words[1] == "ranks":
            ranks()
        elif words[1] == "dies":
            steps(change=dies)
        elif words[1] == "compiled":
            compiled_inside()
        elif words[1] == "threads":
            threads()
        else:
            steps()


if __name__ == "__main__":
    main()
