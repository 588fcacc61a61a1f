"""What the tests of tests/gpu need of a machine, and what of that is there."""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
import sys

from ..environments import cache_folder
from ..say import Failed
from . import site
from .contents import ENGINES


def tool(name: str) -> str | None:
    """A tool of the machine's own CUDA toolkit: on the PATH, else the newest under /usr/local; an nvcc of scripts/get-cuda
    too."""
    found = shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"), reverse=True)), None)
    fetched = os.path.join(cache_folder(), "cuda", name, "bin", name)
    return found or (fetched if name == "nvcc" and os.path.exists(fetched) else None)


def gpu() -> str:
    """Why no test can use a GPU here, '' where one can."""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return "no NVIDIA GPU: there is no /dev/nvidia0"
    return "" if os.path.exists("/proc/driver/nvidia/version") else "an NVIDIA GPU without its driver"


def missing() -> dict[str, str]:
    """{what the tests want and this machine lacks: why, or what to do}."""
    lacking = {"a GPU": gpu()}
    lacking["the GPU's cuda-gdb"] = "" if tool("cuda-gdb") else "install the CUDA toolkit of the driver's release"
    lacking["nvcc"] = "" if tool("nvcc") else "run scripts/get-cuda nvcc"
    for name in ENGINES:
        try:
            if not lacking["a GPU"]:
                engine(name)
            elif not os.environ.get("GDBEXT_TEST_GPU_PYTHON"):
                site.manifest(os.environ.get("GDBEXT_TEST_GPU_KIT") or site.KIT)
        except Failed as e:
            lacking[f"{name} for a GPU"] = str(e)
    return {what: why for what, why in lacking.items() if why}


@functools.lru_cache(None)
def engine(name: str) -> tuple[str, str]:
    """(interpreter, folder to import from or '') that run an engine on a GPU: those of GDBEXT_TEST_GPU_PYTHON, else the kit's
    (GDBEXT_TEST_GPU_KIT, default .gpu-kit) with the first interpreter that suits it. `Failed` says what to do."""
    named = os.environ.get("GDBEXT_TEST_GPU_PYTHON")
    if named:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{name}') is None)"
        if subprocess.run([named, "-c", code], stdin=subprocess.DEVNULL, capture_output=True).returncode:
            raise Failed(f"GDBEXT_TEST_GPU_PYTHON has no {name}")
        return named, ""
    kit = os.environ.get("GDBEXT_TEST_GPU_KIT") or site.KIT
    try:
        site.manifest(kit)
    except Failed:
        raise Failed(f"no {name} for a GPU: set GDBEXT_TEST_GPU_PYTHON, or run scripts/get-gpu-kit {name}") from None
    pythons = dict.fromkeys(filter(None, (os.environ.get("GDBEXT_TEST_TORCH_PYTHON"), sys.executable, shutil.which("python3"))))
    why = {python: site.unsuited(python, kit) for python in pythons}
    suited = next((python for python in pythons if not why[python]), None)
    if suited is None:
        raise Failed("no interpreter suits the kit: " + "; ".join(f"{python}: {reason}" for python, reason in why.items()))
    return suited, site.unpacked(name, suited, kit)
