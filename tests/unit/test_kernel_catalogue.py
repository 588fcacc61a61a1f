"""The catalogue of kernels: names fit what libraries hold, signatures come apart, a library's tables are searched right."""

import json
import os
import re
import shutil
import subprocess

import pytest

from gdbext.access.elf import Elf
from gdbext.kernels import catalogue, signatures

V1 = "_ZN4vllm25paged_attention_v1_kernelIfhLi64ELi16EEEvPT_PKS1_fPKT0_b"


@pytest.mark.parametrize(
    "symbol,name,template,parameters",
    [
        (
            V1,
            "vllm::paged_attention_v1_kernel",
            ["float", "unsigned char", "64", "16"],
            ["float*", "float const*", "float", "unsigned char const*", "bool"],
        ),
        ("_Z5plainif", "plain", [], ["int", "float"]),
        ("_ZN1AclEPFviE", "A::operator()", [], ["void (*)(int)"]),
        ("_ZN1AlsERKSt6vectorIiSaIiEE", "A::operator<<", [], ["std::vector<int, std::allocator<int> > const&"]),
        ("cudaLaunchKernel", "cudaLaunchKernel", [], None),
        ("_Z6simplev", "simple", [], []),
    ],
)
def test_signatures_come_apart(symbol, name, template, parameters):
    found = signatures.parse(symbol)
    assert (found.name, found.template, found.parameters, found.stub) == (name, template, parameters, False)


def test_a_comparison_among_the_template_arguments_closes_nothing():
    found = signatures.parse(
        "std::enable_if<(((8)>(0)))&&A<int>::b, void>::type vllm::poly_norm_kernel<c10::Half, ((4)<(8))>(c10::Half*, int)"
    )
    assert (found.path, found.template, found.parameters) == (
        ["vllm", "poly_norm_kernel"],
        ["c10::Half", "((4)<(8))"],
        ["c10::Half*", "int"],
    )


def test_a_stub_is_its_kernel_and_a_clone_is_known():
    called = "__device_stub_" + V1
    for static in ("L", ""):
        stub = signatures.parse(f"_Z{static}{len(called)}{called}PfPKffPKhb")
        assert stub.stub and stub.text == signatures.parse(V1).text
    clone = signatures.parse("_Z18mla_decode_kvcachei.cold")
    assert (clone.base, clone.clone, clone.parameters) == ("mla_decode_kvcache", "[clone .cold]", ["int"])
    assert (
        signatures.scalar("float const*") == (8, "Q")
        and signatures.scalar("unsigned int") == (4, "I")
        and signatures.scalar("Params") is None
    )


def test_every_entry_has_a_source_and_is_found_by_its_mangled_name():
    with open(os.path.join(os.path.dirname(catalogue.__file__), "catalogue.json")) as f:
        raw = json.load(f)
    assert raw["about"]
    book = catalogue.catalogue()
    assert len(book.kernels) > 90 and {k.source for k in book.kernels} == set(book.sources)
    for k in book.kernels:
        assert k.launch in ("runtime", "driver", "cpu") and k.role in ("attention", "reduce", "cache", "plan", "launcher"), (
            k.kernel
        )
        assert k.needle and re.fullmatch(r"|[\w.]+ -( [\w.]+)?", k.releases), k.kernel


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library with kernels' host code as nvcc names it, made by a C++ compiler."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    source = folder / "kernels.cpp"
    source.write_text("""
        extern "C" int cudaLaunchKernel(const void*, ...);
        namespace vllm {
        template <class T, int N> __attribute__((noinline)) void paged_attention_v1_kernel(T* out, const T* q, float scale) {
          cudaLaunchKernel((void*)out, q, scale); }
        template <class T> __attribute__((noinline)) void reshape_and_cache_kernel(T* a) { cudaLaunchKernel(a); }
        }
        template void vllm::paged_attention_v1_kernel<float, 64>(float*, const float*, float);
        template void vllm::paged_attention_v1_kernel<double, 128>(double*, const double*, float);
        template void vllm::reshape_and_cache_kernel<int>(int*);
        namespace cutlass { template <class K> void device_kernel(typename K::Params p) { cudaLaunchKernel(p.x); } }
        namespace flash { template <int N> struct FlashAttnFwdSm90 { struct Params { void* x; }; }; }
        template void cutlass::device_kernel<flash::FlashAttnFwdSm90<2>>(flash::FlashAttnFwdSm90<2>::Params);
        static void hidden() asm("_ZL63__device_stub__ZN4vllm25paged_attention_v2_kernelIfLi64EEEvPT_fPff");
        __attribute__((noinline)) static void hidden() { cudaLaunchKernel(0); }
        void* keep = (void*)hidden;
        void about_paged_attention_v1_kernel_only() {}
    """)
    out = folder / "_vllm_fa3_C.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(source)], check=True)
    return str(out)


def test_a_library_is_looked_through(library):
    rows = {r.name: r for r in catalogue.scan_library(Elf(library), library, bias=0x1000)}
    v1 = rows["vllm::paged_attention_v1_kernel"]
    assert (
        v1.instances == 2 and {p.kind for p in v1.sites} == {"wrapper"} and v1.kernel.role == "attention" and v1.where == "host"
    )
    truth = {
        line.split()[2]: int(line.split()[0], 16)
        for line in subprocess.run(["nm", library], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        if len(line.split()) == 3
    }
    for place in [p for r in rows.values() for p in r.sites]:
        assert place.address == truth[place.symbol] + 0x1000
    assert {p.kind for p in rows["vllm::paged_attention_v2_kernel"].sites} == {"stub"}
    assert rows["FlashAttnFwdSm90"].kernel.backend == "flash-attention 3"
    assert set(rows) == {
        "vllm::paged_attention_v1_kernel",
        "vllm::reshape_and_cache_kernel",
        "FlashAttnFwdSm90",
        "vllm::paged_attention_v2_kernel",
    }
    only = catalogue.scan_library(Elf(library), library, pattern=re.compile("v1_kernel<double"))
    assert [(r.name, r.instances) for r in only] == [("vllm::paged_attention_v1_kernel", 1)]


def test_a_kernel_of_a_lambda_in_a_function_of_tensors_is_a_kernel(tmp_path):
    """As torch's elementwise kernels are; and static, as nvcc 13 makes the host code of templates: it may stand where it is
    launched."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler")
    source, out = tmp_path / "a.cpp", tmp_path / "libtorch_cuda.so"
    source.write_text("""
        extern "C" int cudaLaunchKernel(const void*);
        namespace at { struct TensorIteratorBase; struct Tensor; }
        namespace vllm {
        template <class F> __attribute__((noinline)) static void paged_attention_v1_kernel(F f) { cudaLaunchKernel(&f); }
        template <class F> __attribute__((noinline)) void paged_attention_v2_kernel(F f) { cudaLaunchKernel(&f); }
        }
        void host(at::TensorIteratorBase&, at::Tensor&) {
            auto f = [](int) {};
            vllm::paged_attention_v1_kernel(f), vllm::paged_attention_v2_kernel(f);
        }
        __attribute__((noinline)) void paged_attention_v2_reduce_kernel(const at::Tensor&) { cudaLaunchKernel(0); }
    """)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(source)], check=True)
    rows = {r.kernel.kernel: r for r in catalogue.scan_library(Elf(str(out)), str(out))}
    roles = {name: (row.kernel.role, {s.kind for s in row.sites}) for name, row in rows.items()}
    assert roles["paged_attention_v1_kernel"] == roles["paged_attention_v2_kernel"] == ("attention", {"wrapper"})
    assert roles["paged_attention_v2_reduce_kernel"] == ("launcher", {"function"})
    (site,) = rows["paged_attention_v1_kernel"].sites
    assert "::{lambda(int)#1}" in site.signature.text and rows["paged_attention_v1_kernel"].inlined == {site.signature.text}
    assert not rows["paged_attention_v2_kernel"].inlined


def test_names_that_share_their_tail_are_found(tmp_path):
    """Linkers may store `b` as the end of `a_b`: a symbol then begins inside another's name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    (tmp_path / "a.c").write_text("void x_mla_decode_kvcache(void) {} void mla_decode_kvcache(void) {} void other(void) {}")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-O2", "-o", str(tmp_path / "a.so"), str(tmp_path / "a.c")], check=True)
    names = [name for name, _, _ in Elf(str(tmp_path / "a.so")).symbols_named([b"mla_decode_kvcache"])]
    assert sorted(names) == ["mla_decode_kvcache", "x_mla_decode_kvcache"]
