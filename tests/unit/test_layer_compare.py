"""Two records of a step side by side: pieces of several ranks, what a dtype explains, and where the first difference is."""

import hashlib

import pytest

numpy = pytest.importorskip("numpy")

from gdbext.errors import GdbextError  # noqa: E402
from gdbext.torch import arrays, layer_compare, layer_records  # noqa: E402
from gdbext.torch.dtypes import DTYPES  # noqa: E402


class Record(layer_records.Record):
    """A record whose values are arrays: {path: array, or (array, shard)}; `saved`: whether it has them."""

    def __init__(self, label, outputs, saved=True):
        super().__init__("", {"label": label, "pid": 7, "values": None}, [])
        self.arrays = {}
        for path, value in outputs.items():
            value, shard = value if isinstance(value, tuple) else (value, None)
            row = {"path": path, "call": 0, "output": "", "type": "Linear", "shape": list(value.shape), "dtype": value.dtype.name}
            finite = value[numpy.isfinite(value)]
            row.update(min=float(finite.min()), max=float(finite.max()), mean=float(finite.mean()), shard=shard)
            row.update(nan=int(numpy.isnan(value).sum()), inf=int(numpy.isinf(value).sum()))
            row["hash"] = hashlib.sha256(numpy.ascontiguousarray(value).tobytes()).hexdigest()
            self.rows.append(row)
            if saved:
                self.arrays[path] = value

    def values(self, row):
        value = self.arrays.get(row["path"])
        return None if value is None else arrays.Source(value.shape, DTYPES[row["dtype"]], row["path"], lambda box: value[box])


class Apart(Record):
    """Of modules that return several tensors: their places are in the names of the arrays."""

    def values(self, row):
        value = self.arrays[row["path"] + row["output"]]
        return arrays.Source(value.shape, DTYPES[row["dtype"]], row["path"], lambda box: value[box])


def compare(left, right, **more):
    return layer_compare.compare_sides(layer_compare.Side(left), layer_compare.Side(right), **more)


@pytest.fixture
def x():
    return numpy.random.default_rng(3).standard_normal((5, 24)).astype("float32")


def test_the_first_difference_beyond_rounding_leads(x):
    rounded, wrong = x.copy(), x.copy()
    rounded[2, 3] = numpy.nextafter(rounded[2, 3], numpy.float32(9))
    wrong[4, 5] += 1
    found = compare([Record("a", {"one": x, "two": x, "three": x})], [Record("b", {"one": x, "two": rounded, "three": wrong})])
    assert [(row["equal"], row["different"]) for row in found["rows"]] == [(True, False), (False, False), (False, True)]
    assert found["first"]["path"] == "three" and found["first"]["index"] == [4, 5]
    assert found["first"]["max_abs_diff"] == pytest.approx(1, rel=1e-5)
    strict = compare([Record("a", {"two": x})], [Record("b", {"two": rounded})], tolerance=0.0)
    assert strict["first"]["path"] == "two"


@pytest.mark.parametrize("saved", [True, False])
def test_one_percent_is_no_rounding_and_a_nan_is_none(x, saved):
    for other in (x * numpy.float32(1.01), numpy.where(numpy.arange(24) == 7, numpy.float32("nan"), x)):
        found = compare([Record("a", {"one": x}, saved)], [Record("b", {"one": other}, saved)])
        assert found["first"]["path"] == "one", found
        assert (found["first"]["index"] is not None) == saved


def test_half_precision_explains_more_than_single(x):
    half = x.astype("float16")
    near = (half.astype("float32") * (1 + 0.0005 * numpy.sin(numpy.arange(24)))).astype("float16")
    assert compare([Record("a", {"one": half})], [Record("b", {"one": near})])["first"] is None
    single = compare([Record("a", {"one": half.astype("float32")})], [Record("b", {"one": near.astype("float32")})])
    assert single["first"] is not None


@pytest.mark.parametrize("seed", range(20))
def test_roundings_add_up_from_layer_to_layer_another_layer_is_named(x, seed):
    """Two programs that round each in its own way at every layer, and the same with one layer that adds more than that; a layer
    that adds as little as that is named where all before it are equal."""
    rng, layers = numpy.random.default_rng(seed), 48
    harmed = int(rng.integers(4, layers))

    def record(label, noise, harm=0.0):
        own, value = numpy.random.default_rng(seed + 1), x.astype("float64")
        found = {}
        for layer in range(layers):
            value = value * (1 + noise * own.standard_normal(value.shape))
            if layer == harmed:
                value = value * (1 + harm * numpy.sign(own.standard_normal(value.shape)))
            found[f"layers.{layer}"] = value.astype("float32")
        return Record(label, found)

    plain = record("P", 0.0)
    sound = compare([record("TP0", 4e-6)], [plain])
    last = sound["rows"][-1]
    assert sound["first"] is None and last["relative"] > layer_compare.TOLERANCE["float32"], last
    assert compare([record("TP0", 4e-6, 1e-3)], [plain])["first"]["path"] == f"layers.{harmed}"
    assert compare([record("TP0", 0.0, 1.5e-5)], [plain])["first"]["path"] == f"layers.{harmed}"
    assert compare([record("TP0", 4e-6)], [plain], tolerance=1e-5)["first"] is not None  # as strict as one says


@pytest.mark.parametrize("saved", [True, False])
def test_zeros_of_another_sign_explain_nothing_behind_them(x, saved):
    left, right = (
        Record(label, {"a": zero * numpy.ones_like(x), "b": y}, saved) for label, zero, y in (("L", 0.0, x), ("R", -0.0, 2 * x))
    )
    assert compare([left], [right])["first"]["path"] == "b"


@pytest.mark.parametrize("saved", [True, False])
def test_ranks_pieces_are_put_together_as_the_layer_cuts_them(x, saved):
    """A fused layer of parts 12, 8 and 4 wide on two ranks; one whose second and third part both ranks have; one cut plainly."""
    q, k, v = x[:, :12], x[:, 12:20], x[:, 20:]
    fused = {"dim": -1, "parts": [6, 4, 2], "copies": 1}
    ranks = [numpy.concatenate([part[:, n * w : (n + 1) * w] for part, w in ((q, 6), (k, 4), (v, 2))], 1) for n in (0, 1)]
    copied = {"dim": -1, "parts": [6, 8, 4], "copies": 2}
    copies = [numpy.concatenate([q[:, n * 6 : (n + 1) * 6], k, v], 1) for n in (0, 1)]
    left = [
        Record(
            f"TP{n}", {"qkv": (ranks[n], fused), "mqa": (copies[n], copied), "act": x[:, n * 12 : n * 12 + 12], "out": x}, saved
        )
        for n in (0, 1)
    ]
    whole = {"qkv": x, "mqa": x, "act": x, "out": x}
    assert compare(left, [Record("one", whole, saved)])["first"] is None
    assert compare([Record("one", whole, saved)], left)["first"] is None
    assert all(row["equal"] for row in compare(left, left)["rows"])
    if saved:
        harmed = {name: value.copy() for name, value in whole.items()}
        harmed["qkv"][1, 14] += 1
        first = compare(left, [Record("one", harmed)])["first"]
        assert (first["path"], first["index"]) == ("qkv", [1, 14])


def test_ranks_that_differ_among_themselves_and_rank_by_rank(x):
    two = [Record("TP0", {"norm": x}), Record("TP1", {"norm": x * numpy.float32(1.01)})]
    first = compare(two, [Record("one", {"norm": x})])["first"]
    assert (first["path"], first["rank"]) == ("norm", 1) and first["relative"] == pytest.approx(0.01, rel=1e-3)
    near = [two[0], Record("TP1", {"norm": numpy.nextafter(x, numpy.float32(9))})]
    assert compare(near, [Record("one", {"norm": x})])["first"] is None
    good = [Record("TP0", {"part": x[:, :12]}), Record("TP1", {"part": x[:, 12:]})]
    bad = [Record("TP0", {"part": x[:, :12]}), Record("TP1", {"part": x[:, 12:] * 2})]
    assert compare(good, bad)["first"]["rank"] == 1


def test_what_ranks_leave_to_the_next_layer_to_add_up(x):
    """A row-parallel layer that returns each rank's summand, against the sum; and one whose sum is another."""
    parts = [Record("TP0", {"o_proj": x / 3, "norm": x}), Record("TP1", {"o_proj": x - x / 3, "norm": x})]
    for sides in ((parts, [Record("one", {"o_proj": x, "norm": x})]), ([Record("one", {"o_proj": x, "norm": x})], parts)):
        found = compare(*sides)
        assert found["first"] is None and [row["path"] for row in found["rows"]] == ["o_proj", "norm"]
        assert found["rows"][0]["why"] == "the ranks' outputs added up"
    wrong = [parts[0], Record("TP1", {"o_proj": x * numpy.float32(0.68), "norm": x})]
    assert compare(wrong, [Record("one", {"o_proj": x, "norm": x})])["first"]["path"] == "o_proj"


@pytest.mark.parametrize("kind", ["RowParallelLinear", "Linear"])
def test_summands_are_not_told_apart_where_values_were_not_saved(x, kind):
    parts, one = (
        [Record(label, {"o_proj": value, "norm": x}, saved=False) for label, value in held]
        for held in ((("TP0", x / 3), ("TP1", x - x / 3)), (("one", x),))
    )
    for record in (*parts, *one):
        record.rows[0]["type"] = kind
    found = compare(parts, one)
    if kind == "Linear":  # each rank has the whole of it, and they differ
        assert found["first"]["path"] == "o_proj"
    else:
        assert found["first"] is None and "not compared" in found["rows"][0]["why"]


def test_ranks_have_parts_of_their_own_that_are_no_difference(x):
    """Record of one rank against that of another: what is cut is left out, what both have whole is compared."""
    cut = {"dim": -1, "parts": [12], "copies": 1}
    one, two = (
        Record(f"TP{n}", {"up": (x[:, n * 12 : n * 12 + 12], cut), "down": x * numpy.float32(1 + n / 50)}) for n in (0, 1)
    )
    found = compare([one], [two])
    assert [(row["equal"], row["different"]) for row in found["rows"]] == [(False, False), (False, True)]
    assert found["first"]["path"] == "down" and "its own part" in found["rows"][0]["why"]


def test_a_model_within_another_and_one_that_shares_nothing(x):
    inner, outer = Record("a", {"layers.0": x, "norm": x}), Record("b", {"model.layers.0": x, "model.norm": x, "head": x})
    found = compare([inner], [outer])
    assert [row["path"] for row in found["rows"]] == ["layers.0", "norm"] and found["only_b"] == ["head"]
    assert compare([inner], [Record("c", {"other": x})])["rows"] == []


# ---- models that are cut into other modules -----------------------------------------------------------------------------
def cut_otherwise(x, batch=True):
    """-> ({path: array} of an engine, of a plain program, of the same layer: packed projections, a gated activation)"""
    q, k, gate, up = x[:, :8], x[:, 8:10], x[:, :12], x[:, 12:]
    act = 1 / (1 + numpy.exp(-gate)) * gate
    engine = {
        "model.0.attn.qkv_proj": numpy.concatenate([q, k, k], 1),
        "model.0.mlp.gate_up_proj": x,
        "model.0.mlp.act_fn": act * up,
    }
    plain = {"0.attn.q_proj": q, "0.attn.k_proj": k, "0.attn.v_proj": k, "0.mlp.gate_proj": gate, "0.mlp.act_fn": act}
    plain["0.mlp.up_proj"] = up
    return engine, {path: value[None] if batch else value for path, value in plain.items()}


def two(engine, plain, **more):
    left, right = Record("TP0", engine, **more), Record("plain", plain, **more)
    for row in left.rows:
        row["type"] = "SiluAndMul" if row["path"].endswith("act_fn") else "ParallelLinear"
    return left, right


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
def test_what_an_engine_packs_is_put_together_of_the_plain_layers(x, batch, swapped):
    engine, plain = cut_otherwise(x, batch)
    sides = two(engine, plain)
    found = compare([sides[swapped]], [sides[not swapped]])
    assert found["first"] is None and sorted(row["path"] for row in found["rows"]) == sorted(engine)
    assert [row["made"]["how"] for row in found["rows"]] == ["concatenated", "concatenated", "product"]
    assert {row["made"]["side"] for row in found["rows"]} == {"ab"[not swapped]} and found["only_a"] == found["only_b"] == []
    engine["model.0.attn.qkv_proj"][1, 9] += 1
    sides = two(engine, plain)
    first = compare([sides[swapped]], [sides[not swapped]])["first"]
    assert (first["path"], first["index"][-2:], first["made"]["part"]) == ("model.0.attn.qkv_proj", [1, 9], "0.attn.k_proj")


def test_what_is_packed_is_compared_by_range_where_values_were_not_saved(x):
    """A product is not known then, which is no difference, and no equality."""
    engine, plain = cut_otherwise(x)
    rows = {row["path"].rpartition(".")[2]: row for row in compare(*([side] for side in two(engine, plain, saved=False)))["rows"]}
    assert not any(row["different"] for row in rows.values()) and not rows["act_fn"]["equal"]
    assert "not saved" in rows["act_fn"]["why"]
    engine["model.0.attn.qkv_proj"] = 1.01 * engine["model.0.attn.qkv_proj"]
    found = compare(*([side] for side in two(engine, plain, saved=False)))
    assert found["first"]["path"] == "model.0.attn.qkv_proj"


def test_ranks_pieces_of_a_packed_layer_against_plain_layers(x):
    engine, plain = cut_otherwise(x)
    q, k, _ = numpy.split(engine["model.0.attn.qkv_proj"], [8, 10], 1)
    shard = {"dim": -1, "parts": [4, 2, 2], "copies": 2}
    mine = [numpy.concatenate([q[:, 4 * n :][:, :4], k, k], 1) for n in (0, 1)]
    ranks = [Record(f"TP{n}", {"model.0.norm": x, "model.0.attn.qkv_proj": (mine[n], shard)}) for n in (0, 1)]
    for sides in ((ranks, [Record("plain", {**plain, "0.norm": x})]), ([Record("plain", {**plain, "0.norm": x})], ranks)):
        found = compare(*sides)
        assert found["first"] is None and [row["equal"] for row in found["rows"]] == [True, True], found
    alone = compare(ranks[:1], [Record("plain", {**plain, "0.norm": x})])["rows"]
    assert [row["why"] for row in alone] == ["", "each rank has its own part"]


def named(record, **names):
    """Gives rows other names of output and type: {path: (output, type)}."""
    for row in record.rows:
        row["output"], row["type"] = names.get(row["path"].replace(".", "_"), (row["output"], row["type"]))
    return record


def test_a_residual_is_added_and_other_returned_values_are_left_out(x):
    """An engine's layer returns ([0] hidden, [1] residual), its norm too: of that the first is meant."""

    engine = Apart("TP0", {"model.0[0]": x, "model.0[1]": 2 * x, "model.0.norm[0]": x + 1, "model.0.norm[1]": x})
    for row in engine.rows:
        row["path"], row["output"] = row["path"][:-3], row["path"][-3:]
    plain = Record("plain", {"model.0": 3 * x, "model.0.norm": x + 1})
    found = compare([engine], [plain])
    assert found["first"] is None and [row["path"] for row in found["rows"]] == ["model.0", "model.0.norm"]
    assert found["rows"][0]["made"] == {"side": "a", "how": "sum", "outputs": ["model.0[0]", "model.0[1]"], "part": None}
    assert found["only_a"] == ["model.0.norm[1]"] and found["only_b"] == []
    wrong = Record("plain", {"model.0": 3.1 * x, "model.0.norm": x + 1})
    assert compare([engine], [wrong])["first"]["path"] == "model.0"


def test_layers_that_leave_the_residual_to_a_norm_have_no_counterpart(x):
    """SGLang's: what they return is not the whole, against another program; against its own kind it is compared. A model returns
    what its last norm does."""

    def of(label, last):
        rows = [("norm", "[0]", x), ("norm", "[1]", 2 * x), ("mlp", "", x), ("", "", last)]
        outputs = {f"model.layers.{n}.{name}{output}": value for n in (0, 1) for name, output, value in rows}
        outputs = {name.rstrip("."): value for name, value in outputs.items()}
        record = Apart(label, {**outputs, "model.norm[0]": 5 * x, "model.norm[1]": 6 * x, "model": 5 * x})
        for row in record.rows:
            row["path"], _, output = row["path"].partition("[")
            row["output"] = output and "[" + output
            row["type"] = "RMSNorm" if "norm" in row["path"] else "Layer"
        return record

    plain = Record("plain", {"model.layers.0": 9 * x, "model.layers.0.mlp": x, "model.norm": 5 * x, "model": 5 * x})
    found = compare([of("TP0", 3 * x)], [plain])
    assert found["first"] is None and "model.layers.0" in found["only_b"]
    assert [row["path"] for row in found["rows"]] == ["model.layers.0.mlp", "model.norm", "model"]
    assert compare([of("TP0", 3 * x)], [of("TP0", 7 * x)])["first"]["path"] == "model.layers.0"


def test_modules_of_one_path_that_do_something_else_are_left_over(x):
    """Tables of cosines against rotated queries; a gate's activation alone against one that multiplies, without its partner."""
    engine = named(
        Record("a", {"rotary": x, "mlp.act_fn": x, "up": x}), rotary=("[0]", "RotaryEmbedding"), mlp_act_fn=("", "SiluAndMul")
    )
    plain = Record("b", {"rotary": x[None, :, :6], "mlp.act_fn": x[None], "up": x[None]})
    found = compare([engine], [named(plain, rotary=("[0]", "LlamaRotaryEmbedding"), mlp_act_fn=("", "SiLU"))])
    assert [row["path"] for row in found["rows"]] == ["up"] and set(found["only_a"]) == {"rotary[0]", "mlp.act_fn"}


def test_padding_behind_the_tokens_does_not_count_and_another_prompt_does(x):
    padded = numpy.concatenate([x, numpy.full((3, 24), 9, "float32")])
    assert compare([Record("a", {"up": padded})], [Record("b", {"up": x[None]})])["first"] is None
    assert compare([Record("a", {"up": padded})], [Record("b", {"up": x})])["first"] is not None
    assert compare([Record("a", {"up": numpy.roll(padded, 1, 0)})], [Record("b", {"up": x[None]})])["first"]["path"] == "up"
    two_prompts = numpy.stack([x, x + 1])
    assert compare([Record("a", {"up": numpy.concatenate([x, x + 1])})], [Record("b", {"up": two_prompts})])["first"] is None


def test_a_model_that_lies_elsewhere_in_both(x):
    one = Record("a", {"language_model.model.layers.0.up": x, "language_model.model.norm": x, "language_model.head": x})
    other = Record("b", {"model.language_model.layers.0.up": x, "model.language_model.norm": x, "head": x})
    found = compare([one], [other])
    assert len(found["rows"]) == 2 and found["first"] is None and found["only_b"] == ["head"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "llm-layers-record/1"}',
        '{"schema": "x", "label": "", "pid": 1, "root": "", "step": 1, "values": null}',
        '{"schema": "llm-layers-record/1", "label": "", "pid": 1, "root": "", "step": 1, "values": null}\n{"path": 3}',
        "[" * 100000,
    ],
)
def test_a_damaged_record_is_one_line(text, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(GdbextError, match="no record of llm-layers|damaged"):
        layer_records.read(str(path))
