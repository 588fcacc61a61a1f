"""Short C++ names: what makes a frame's line readable and still says which function it is."""

import pytest

from gdbext.render import names

LOOP = (
    "_ZN12_GLOBAL__N_110shm_cc_ops11shm_cc_loopIN3c104HalfEZNS0_19all_reduce_sum_implIS3_Li2EEEvPNS_16ThreadSHMContextEPT_mEUlS6_llbE_EEvS6_lOT0_"
    "._omp_fn.0"
)


@pytest.mark.parametrize(
    "name,said",
    [
        ("PyObject_Call", "PyObject_Call"),
        ("_ZN2at4_ops3mul4callERKNS_6TensorES4_", "at::_ops::mul::call(at::Tensor const&, at::Tensor const&)"),
        (LOOP, "void {anonymous}::shm_cc_ops::shm_cc_loop<…>"),
        ("f(" + "int, " * 40 + "int)", "f"),
        ("ns::g(long)::{lambda(" + "int, " * 40 + "int)#1}::operator()(int) const", "ns::g"),
        ("(" * 300, "("),
        ("a<" * 300, "a<…>"),
    ],
)
def test_short_names(name, said):
    assert names.short(name) == said
