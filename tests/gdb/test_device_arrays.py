"""pyprint names arrays of jax and cupy: type, shape, dtype and place, as the arrays say of themselves.

With fakes always; with the libraries themselves where GDBEXT_TEST_JAX_PYTHON or GDBEXT_TEST_CUPY_PYTHON names an interpreter that
has them (a GPU is not needed)."""

import os
import shutil
import subprocess

import pytest
from harness.answers import answer, run
from harness.subjects import SUBJECTS, running

from gdbext.errors import GdbextError

PYTHON = os.environ.get("GDBEXT_TEST_TORCH_PYTHON", "")


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    """The folder of the module of fakes, built."""
    if not PYTHON or not shutil.which("gcc"):
        pytest.skip("needs gcc, and a Python with numpy (GDBEXT_TEST_TORCH_PYTHON)")
    ask = "import sysconfig as s; print(s.get_path('include'))"
    headers = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.exists(f"{headers}/Python.h"):
        pytest.skip("this Python has no headers")
    folder = str(tmp_path_factory.mktemp("fakes"))
    words = ["gcc", "-O1", "-shared", "-fPIC", f"-I{headers}", "-o", f"{folder}/fake_device_arrays.so"]
    subprocess.run([*words, f"{SUBJECTS}/fake_device_arrays.c"], check=True)
    return folder


@pytest.mark.parametrize("library", ["fake", "jax", "cupy"])
def test_arrays_of_devices_are_named_with_shape_dtype_and_place(library, request):
    python = PYTHON if library == "fake" else os.environ.get(f"GDBEXT_TEST_{library.upper()}_PYTHON", "")
    env = {"PYTHONPATH": request.getfixturevalue("fakes")} if library == "fake" else None
    if not python:
        pytest.skip(f"no Python with {library}: GDBEXT_TEST_{library.upper()}_PYTHON names one")
    with running(python, "device_arrays.py", library, env=env) as (target, truth):
        on = f"-on {target.pid} -any"
        shown = [answer(f"pyprint {on} -full arrays[{i}]")["repr"] for i in range(len(truth["texts"]))]
        assert shown == truth["texts"]
        assert answer(f"pyprint {on} arrays[-1].dtype")["repr"].strip("'") in shown[-1]
        with pytest.raises(GdbextError, match="no tensor; pyprint shows it"):
            run(f"pytensor {on} arrays[0]")
