"""Kernels and launch functions of stripped libraries, found in code: compared with what the symbols said before they were
stripped."""

import re
import shutil
import subprocess

import pytest

from gdbext.access.elf import Elf
from gdbext.kernels import stripped

SOURCE = r"""
extern "C" {
int __cudaRegisterFunction(void** handle, const void* host, char* device, const char* name, int limit,
                           void* a, void* b, void* c, void* d, int* e);
int __cudaGetKernel(void** handle, const void* host);
int __cudaLaunchKernel(void* handle, void** args);
}
__attribute__((section(".nv_fatbin"))) int code[8] = {1};
namespace vllm {
template <class T> __attribute__((noinline)) void paged_attention_v1_kernel(T* out) {
  static void* handle;
  if (!handle) __cudaGetKernel(&handle, (void*)&paged_attention_v1_kernel<T>);
  void* args[] = {&out};
  __cudaLaunchKernel(handle, args);
}
}
static void** fatbin;
#define REGISTER(NAME, ...) __cudaRegisterFunction(fatbin, (void*)&__VA_ARGS__, (char*)NAME, NAME, -1, 0, 0, 0, 0, 0)
__attribute__((constructor)) static void all() {
  REGISTER("_ZN4vllm25paged_attention_v1_kernelIfEEvPT_", vllm::paged_attention_v1_kernel<float>);
  REGISTER("_ZN4vllm25paged_attention_v1_kernelIdEEvPT_", vllm::paged_attention_v1_kernel<double>);
  __cudaRegisterFunction(fatbin, code, (char*)"_Z5wrongv", "_Z5wrongv", -1, 0, 0, 0, 0, 0);  // its host function is no function
}
extern "C" {
void profiled(void*);
#define RUNTIME(FUNCTION, NAME, ID) void FUNCTION(void* a) { \
    struct { long id; const char* name; void* x; } d; d.id = ID; d.name = NAME; d.x = a; profiled(&d); }
RUNTIME(first, "cudaLaunchKernel", 211)
RUNTIME(second, "cudaLaunchKernelExC", 430)
RUNTIME(wrong_number, "cudaLaunchCooperativeKernel", 7)
}
"""


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def libraries(request, tmp_path_factory):
    """(with symbols, stripped)"""
    if not shutil.which("g++") or not shutil.which("strip"):
        pytest.skip("no g++ and strip")
    folder = tmp_path_factory.mktemp("stripped")
    (folder / "a.cpp").write_text(SOURCE)
    subprocess.run(
        ["g++", request.param, "-shared", "-fPIC", "-fvisibility=hidden", "-o", folder / "a.so", folder / "a.cpp"], check=True
    )
    subprocess.run(["strip", "-o", folder / "b.so", folder / "a.so"], check=True)
    return Elf(str(folder / "a.so")), Elf(str(folder / "b.so"))


def test_host_functions_and_the_runtimes_functions_are_found(libraries):
    whole, bare = libraries
    assert not bare.has_static_symbols
    code = stripped.code_of(bare)
    if code is None:
        pytest.skip("only code of x86-64 is understood")
    assert {whole.function_from(a): name for a, name in code.host_functions().items()} == {
        n: n for n in ("_ZN4vllm25paged_attention_v1_kernelIfEEvPT_", "_ZN4vllm25paged_attention_v1_kernelIdEEvPT_")
    }
    assert {name: whole.function_from(a) for name, a in code.runtime()} == {
        "cudaLaunchKernel": "first",
        "cudaLaunchKernelExC": "second",
    }
    for host in code.host_functions():
        (pair,) = set(code.handles(host + 4))
        assert pair[1] == host and pair[0] in {value for name, value, size in objects(whole.path)}


def objects(path):
    text = subprocess.run(["nm", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [
        (line.split()[2], int(line.split()[0], 16), 0)
        for line in text.splitlines()
        if len(line.split()) == 3 and line.split()[1] in "bBdDuV"
    ]


def test_instructions_are_as_long_as_objdump_says():
    objdump = shutil.which("objdump")
    if not objdump or Elf(objdump).arch != "x86-64":
        pytest.skip("no objdump of x86-64")
    text = subprocess.run([objdump, "-d", "-w", "-j", ".text", objdump], stdout=subprocess.PIPE, text=True, check=True).stdout
    seen, wrong = 0, []
    for line in text.splitlines()[:200000]:
        found = re.match(r"\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*\t(\S.*)", line)
        if found and "(bad)" not in line:
            data = bytes.fromhex(found.group(1))
            seen += 1
            if stripped.decode(data + bytes(16), 0).length != len(data):
                wrong.append(line)
    assert seen > 10000 and not wrong, wrong[:5]


def test_code_that_is_cut_off_ends():
    with pytest.raises(IndexError):
        stripped.decode(b"\x48\x8d", 0)
    with pytest.raises(IndexError):
        stripped.decode(b"\xe8\x01", 0)
