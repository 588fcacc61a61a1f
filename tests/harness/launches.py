"""Programs that launch kernels of a fake CUDA (gdb/subjects/launches.c and what it is linked with)."""

import shutil
import subprocess

import pytest

from .subjects import SUBJECTS


def build(*line, cwd=None):
    subprocess.run([str(w) for w in line], check=True, cwd=cwd, timeout=300)


def small_program(at):
    """A program that loads its kernels late, host code as nvcc 12 makes it, against a fake libcudart.so.12 and a fake
    libcuda.so.1."""
    if not (shutil.which("gcc") and shutil.which("g++")):
        pytest.skip("no gcc and g++")
    build(
        "gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcudart.so.12", "-o", at / "libcudart.so.12", f"{SUBJECTS}/fake_cudart.c"
    )
    build("gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", at / "libcuda.so.1", f"{SUBJECTS}/fake_cuda.c")
    build(
        "g++",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        "libkernels.so",
        f"{SUBJECTS}/kernels12.cpp",
        "-L.",
        "-l:libcudart.so.12",
        "-Wl,-rpath,$ORIGIN",
        cwd=at,
    )
    build(
        "gcc",
        "-O1",
        "-o",
        "launches",
        f"{SUBJECTS}/launches.c",
        "-L.",
        "-l:libcuda.so.1",
        "-Wl,-rpath,$ORIGIN",
        "-ldl",
        "-lpthread",
        cwd=at,
    )
    build("gcc", "-O1", "-o", "by_pointer", f"{SUBJECTS}/by_pointer.c", "-Wl,-rpath,$ORIGIN", "-ldl", "-s", cwd=at)
    return str(at / "launches")
