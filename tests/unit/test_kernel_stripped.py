"""Kernels and launch functions of stripped libraries, found in code: compared with what the symbols said before they were
stripped."""

import os
import re
import shutil
import subprocess

import pytest

from gdbext.access.elf import Elf
from gdbext.kernels import stripped
from gdbext.kernels.stripped_code import code_of

SOURCE = r"""
#define KERNELS(ONE) ONE(of_float, "_ZN4vllm25paged_attention_v1_kernelIfEEvPT_") ONE(of_double, "_ZN4vllm25paged_attention_v1_kernelIdEEvPT_")
int __cudaRegisterFunction(void** handle, const void* host, char* device, const char* name, int limit,
                           void* a, void* b, void* c, void* d, int* e);
int __cudaGetKernel(void** handle, const void* host);
int __cudaLaunchKernel(void* handle, void** args);
__attribute__((section(".nv_fatbin"))) int code[8] = {1};
#define KERNEL(NAME, SYMBOL) \
  void* NAME##_handle; \
  void NAME(void* out) __asm__(SYMBOL); \
  __attribute__((noinline)) void NAME(void* out) { \
    if (!NAME##_handle) __cudaGetKernel(&NAME##_handle, (void*)&NAME); \
    void* args[] = {&out}; \
    __cudaLaunchKernel(NAME##_handle, args); \
  }
KERNELS(KERNEL)
static void** fatbin;
#define REGISTER(FUNCTION, NAME) __cudaRegisterFunction(fatbin, (void*)&FUNCTION, (char*)NAME, NAME, -1, 0, 0, 0, 0, 0);
__attribute__((constructor)) static void all() {
  KERNELS(REGISTER)
  REGISTER(code, "_Z5wrongv")  // its host function is no function
}
void profiled(void*);
#define RUNTIME(FUNCTION, NAME, ID) void FUNCTION(void* a) { \
    struct { long id; const char* name; void* x; } d; d.id = ID; d.name = NAME; d.x = a; profiled(&d); }
RUNTIME(first, "cudaLaunchKernel", 211)
RUNTIME(second, "cudaLaunchKernelExC", 430)
RUNTIME(wrong_number, "cudaLaunchCooperativeKernel", 7)
"""
COMPILERS = {name: path for name, path in [("own", "gcc"), ("arm64", os.environ.get("GDBEXT_TEST_ARM_CC"))] if path}


@pytest.fixture(
    scope="module", params=[(name, level) for name in COMPILERS for level in ("-O0", "-O1", "-O2", "-O3")], ids="".join
)
def libraries(request, tmp_path_factory):
    """(with symbols, stripped)"""
    name, level = request.param
    compiler = shutil.which(COMPILERS[name])
    if not compiler:
        pytest.skip(f"no compiler: {name}")
    folder = tmp_path_factory.mktemp("stripped")
    (folder / "a.c").write_text(SOURCE)
    for name, options in (("a.so", []), ("b.so", ["-s"])):
        words = [
            compiler,
            level,
            *options,
            "-shared",
            "-nostdlib",
            "-fPIC",
            "-fvisibility=hidden",
            "-o",
            folder / name,
            folder / "a.c",
        ]
        subprocess.run(words, check=True)
    return Elf(str(folder / "a.so")), Elf(str(folder / "b.so"))


def test_host_functions_and_the_runtimes_functions_are_found(libraries):
    whole, bare = libraries
    assert not bare.has_static_symbols
    code = code_of(bare)
    assert {whole.function_from(a): name for a, name in code.host_functions().items()} == {
        n: n for n in ("_ZN4vllm25paged_attention_v1_kernelIfEEvPT_", "_ZN4vllm25paged_attention_v1_kernelIdEEvPT_")
    }
    assert {name: whole.function_from(a) for name, a in code.runtime()} == {
        "cudaLaunchKernel": "first",
        "cudaLaunchKernelExC": "second",
    }
    for host, name in code.host_functions().items():
        handle = whole.symbol("of_float_handle" if "If" in name else "of_double_handle")
        assert handle and set(code.handles(host + 4)) == {(handle, host)}


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
