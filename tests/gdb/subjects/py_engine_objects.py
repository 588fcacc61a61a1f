"""What engines hold, and what Python says of each: {"objects": [[label, address, repr]], "partly": [[label, address, fields that
show]], "tensors": [[address, one line]], "has": [libraries]}. Libraries that this interpreter lacks are left out. Then it
sleeps."""

import collections
import json
import random
import sys
import time
import typing

cases, partly, tensors, has = [], [], [], []
random.seed(11)


def add(label, *objects):
    cases.extend((label, obj) for obj in objects)


Point = collections.namedtuple("Point", "x y")


class Typed(typing.NamedTuple):
    name: str
    inner: Point = Point(1, 2)


class Ring(collections.deque):
    pass


counted = collections.Counter("a counter of many letters, some more often than others")
add(
    "Counter",
    counted,
    collections.Counter(),
    collections.Counter(a=2, b=-1, c=2, d=0.5),
    collections.Counter({i % 37: i for i in range(300)}),
)
add(
    "deque", collections.deque(range(200)), collections.deque([1, [2]], maxlen=4), Ring("ab"), collections.deque([Point(1, None)])
)
add("OrderedDict", collections.OrderedDict(b=1, a=Point(0, 0)), collections.OrderedDict([((1, 2), [3])]))
add("defaultdict", collections.defaultdict(list, {1: [2]}), collections.defaultdict(None, a=1), collections.defaultdict(int))
add("namedtuple", Point(1, "two"), Typed("n"), Typed("m", Point([1], {2: 3})), [Point(1, 2)] * 3)
add("int", 10**1000, -(7**1200), 1 << 13000)
add("str", "naïve", "日本語 text", "\U0001f600 face", "tab\t'quoted\"", "\x00\x1b[31m", "\ud800", "x" * 5000)

try:
    import numpy as np
except ImportError:
    np = None
if np is not None:
    has.append("numpy")

    def number(kind):
        if random.random() < 0.06:
            return random.choice([float("nan"), float("inf"), float("-inf"), 0.0, -0.0])
        if kind == 0:
            return random.choice([1.0, 2.5, -3.0, 0.25, 10.0, 100.125])
        if kind == 1:
            return random.gauss(0, 1)
        if kind == 2:
            return random.gauss(0, 1) * 10 ** random.randint(-9, 9)
        return random.gauss(0, 1) * 10.0 ** random.randint(-40, 37)

    SHAPES = [(), (0,), (1,), (3,), (2, 3), (2, 0), (3, 1, 2), (20,), (64,), (4, 5), (1, 1, 1, 1), (30, 2)]
    for n in range(240):
        shape, kind = random.choice(SHAPES), n % 4
        count = int(np.prod(shape)) if shape else 1
        with np.errstate(all="ignore"):
            add(
                f"array float {shape}",
                np.array([number(kind) for _ in range(count)]).astype(random.choice(["f8", "f4", "f2"])).reshape(shape),
            )
    for n in range(60):
        shape, dtype = random.choice(SHAPES), random.choice(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"])
        count = int(np.prod(shape)) if shape else 1
        add(f"array {dtype} {shape}", np.array([random.randint(0, 120) for _ in range(count)]).astype(dtype).reshape(shape))
    grid = np.arange(60, dtype="f4").reshape(6, 10) / 7
    add(
        "array views",
        grid[::2, ::3],
        grid.T[:3],
        grid[::-1][:2],
        grid[2, 3:4],
        np.asfortranarray(grid[:3, :3]),
        np.broadcast_to(np.float64(3), (4,)),
    )
    add("array held", [grid[0, :2], {"k": np.array([1, 2])}], (np.float32(0.1), np.array(1.5)))
    add("array subclass", np.matrix([[1, 2], [3, 4]]), np.array([1.5]).view(np.recarray).view(np.matrix))
    add(
        "numpy scalars",
        np.float32(0.1),
        np.float32(3.4028235e38),
        np.float16(65504),
        np.float64(1e-300),
        np.int8(-3),
        np.bool_(True),
        np.float32("nan"),
    )

try:
    import msgspec
except ImportError:
    msgspec = None
if msgspec is not None:
    has.append("msgspec")

    class Params(msgspec.Struct):
        n: int = 1
        temperature: float = 0.5
        stop: typing.Any = None

    class Wire(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, frozen=True):
        request_id: str
        params: Params
        tags: typing.Any = ()

    class Named(Params, kw_only=True):
        zebra: int
        alpha: str = "a"

    class Bare(msgspec.Struct):
        pass

    class WithDict(msgspec.Struct, dict=True):
        a: int

    class OwnRepr(msgspec.Struct):
        first: int
        second: str

        def __repr__(self):
            return "computed %d" % self.first

    holder = WithDict(1)
    holder.later = 2
    loop = Params(stop=[])
    loop.stop.append(loop)
    add(
        "Struct",
        Params(),
        Wire("r", Params(2, 0.25, ["x"])),
        Named(zebra=3),
        Bare(),
        holder,
        [Params(stop=Params())],
        Wire("é", Params(), {1, 2}),
        loop,
    )
    partly.append(("Struct with a repr of its own", OwnRepr(7, "q"), "OwnRepr(first=7, second='q')"))

try:
    import pydantic
except ImportError:
    pydantic = None
if pydantic is not None and pydantic.VERSION.startswith("2."):
    has.append("pydantic")

    class Usage(pydantic.BaseModel):
        prompt_tokens: int = 0
        total: typing.Optional[int] = None

    class Reply(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        id: str
        usage: Usage = pydantic.Field(default_factory=Usage)
        secret: str = pydantic.Field("hidden", repr=False)
        choices: typing.List[Usage] = []
        _private: int = pydantic.PrivateAttr(5)

    class Child(Reply):
        more: typing.Dict[str, typing.Any] = {}

    class Empty(pydantic.BaseModel):
        pass

    class Computed(pydantic.BaseModel):
        width: int

        @pydantic.computed_field
        @property
        def area(self) -> int:
            return self.width**2

    class Speaks(pydantic.BaseModel):
        width: int

        def __repr__(self):
            return "wide"

    @pydantic.dataclasses.dataclass
    class Data:
        x: int
        y: str = "d"

    add(
        "model",
        Usage(),
        Usage(prompt_tokens=3, total=4),
        Reply(id="r", extra_field=[1], other="é"),
        Child(id="c", choices=[Usage()], more={"k": Usage()}),
        Empty(),
        [Usage()],
        Data(x=1),
        Usage.model_construct(prompt_tokens="not an int"),
    )
    partly.append(("model with a computed field", Computed(width=3), "Computed(width=3, area=<not set>)"))
    partly.append(("model with a repr of its own", Speaks(width=3), "Speaks(width=3)"))

try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    has.append("torch")
    made = [
        torch.zeros(2, 3),
        torch.ones(0),
        torch.tensor(5),
        torch.zeros(1, 2, 3, 4, 5, 6, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bool),
        torch.empty(2, 2, device="meta"),
        torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.float16)),
        torch.zeros(2, 5).T,
        torch.arange(9),
    ]
    for t in made:
        kind = "Parameter" if isinstance(t, torch.nn.Parameter) else "Tensor"
        tensors.append((t, f"{kind}[{', '.join(map(str, t.shape))}] {str(t.dtype)[6:]} {t.device}"))
    tensors.append(([made[0], {"w": made[2]}], "[Tensor[2, 3] float32 cpu, {'w': Tensor[] int64 cpu}]"))

if __name__ == "__main__":
    told = {
        "version": list(sys.version_info[:3]),
        "has": has,
        "objects": [[label, id(obj), repr(obj)] for label, obj in cases],
        "partly": [[label, id(obj), text] for label, obj, text in partly],
        "tensors": [[id(obj), text] for obj, text in tensors],
    }
    print(json.dumps(told), flush=True)
    time.sleep(3600)
