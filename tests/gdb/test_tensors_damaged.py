"""Words of a real process's tensors overwritten at random (in the reader's view): an answer or one clear line, in bounded
time."""

import random
import time

import pytest
from harness.subjects import Damaged
from harness.tensors import tensors as running

from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.torch.arrays import of_tensor
from gdbext.torch.repr import tensor_repr
from gdbext.torch.stats import statistics
from gdbext.torch.tensor_impl import read_tensor

numpy = pytest.importorskip("numpy")
VICTIMS = [
    "float32 bits (3, 4)",
    "permuted 6-D",
    "big strided",
    "huge kv",
    "parameter",
    "quantized",
    "conj",
    "expanded",
    "python function",
    "meta",
]
KINDS = ["sparse", "csr", "nested", "batched", "gradient wrapper", "functional", "per channel", "jagged", "wrapper subclass"]
WORDS = [0, 1, 7, 64, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8, 0x4141414141414141, 0x7FFF00000000]


@pytest.fixture(scope="module")
def subject(torch_python, tmp_path_factory):
    with running(torch_python, tmp_path_factory.mktemp("damaged")) as found:
        yield found


def places(subject, name, rng):
    """Addresses in a tensor's own structures: the impl, the storage, what the impl points at, the Python object."""
    truth = subject.tensors.get(name) or subject.beyond[name]
    rt, table = subject.rt, subject.table
    impl = rt.target.u64(truth["address"] + table.offset("THPVariable", "cdata"))
    size = table.size("TensorImpl")
    words = rt.target.words(impl, size // 8 + 6)
    starts = [(impl, size + 48), (impl, size), (truth["address"], 48)]
    starts += [(w, 96) for w in words if w % 8 == 0 and rt.target.read_partial(w, 96) and w > 1 << 20]
    return starts, words


@pytest.mark.parametrize("name", VICTIMS + KINDS)
def test_a_damaged_tensor_is_shown_or_refused_in_one_line(subject, name):
    if name not in subject.tensors and name not in subject.beyond:
        pytest.skip("this torch makes none")
    rng = random.Random(name)
    truth = subject.tensors.get(name) or subject.beyond[name]
    starts, known = places(subject, name, rng)
    refused = 0
    target = Damaged(subject.pid)
    rt = open_runtime(target)
    for _ in range(120):
        start, size = rng.choice(starts)
        value = rng.choice(WORDS + [rng.getrandbits(64), rng.choice(known), start])
        target.bad = {start + 8 * rng.randrange(size // 8): value for _ in range(rng.choice((1, 1, 2)))}
        target._pages.clear()
        began = time.process_time()
        for work in (lambda t: tensor_repr(t), lambda t: statistics(of_tensor(t), sample=1000)):
            try:
                work(read_tensor(rt, truth["address"]))
            except GdbextError as e:
                assert "\n" not in str(e) and len(str(e)) < 1000
                refused += 1
        assert time.process_time() - began < 20  # bounded, whatever the machine does besides
        for key in [k for k in target._caches if isinstance(k, tuple) and k[0] == "rtti"]:
            del target._caches[key]
    target.close()
    assert refused > 10
