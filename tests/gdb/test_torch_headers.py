"""A torch that the table does not know is refused by name, and nothing is started for it; the script that the error names makes
the table's row from its headers."""

import json
import os
import shutil
import subprocess

import pytest
from harness.subjects import spawned
from tools import torch_headers

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import LayoutError
from gdbext.torch import layout


@pytest.fixture(scope="module")
def target(torch_python):
    with spawned(
        [torch_python, "-c", "import torch, time; print('ready', flush=True); time.sleep(600)"], ready="ready"
    ) as process:
        found = ProcTarget(process.pid)
        yield found
        found.close()


def test_a_torch_without_a_row_is_refused_and_nothing_is_started(target, monkeypatch):
    version = layout.torch_version(target, open_runtime(target))
    rest = {minor: row for minor, row in layout._rows().items() if minor != layout.minor_of(version)}
    monkeypatch.setattr(layout, "_rows", lambda: rest)
    monkeypatch.setattr(subprocess, "Popen", None)
    target.invalidate()
    with pytest.raises(LayoutError, match=r"torch \S+ has no layout here .*scripts/make-torch-layouts --headers DIR") as e:
        layout.for_process(target, open_runtime(target))
    assert version in str(e.value) and "\n" not in str(e.value)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_the_row_made_from_its_own_headers_is_the_tables(target):
    library = next(m for m in target.modules() if m.name == "libtorch_cpu.so")
    include = os.path.join(os.path.dirname(os.path.dirname(library.path)), "include")
    minor = layout.minor_of(layout.torch_version(target, open_runtime(target)))
    wanted = {k: v for k, v in layout._rows()[minor].items() if k not in ("release", "from")}
    assert json.loads(json.dumps(torch_headers.make_row(include, minor))) == wanted


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
@pytest.mark.parametrize(
    "text, error", [("#error broken\n", "failed on the probe"), ('#include "{fifo}"\n', "did not end in 2 s")]
)
def test_headers_that_do_not_compile_are_told_in_one_line(tmp_path, monkeypatch, text, error):
    core = tmp_path / "c10" / "core"
    core.mkdir(parents=True)
    os.mkfifo(tmp_path / "fifo")
    (core / "TensorImpl.h").write_text(text.format(fifo=tmp_path / "fifo") + "\n")
    monkeypatch.setattr(torch_headers, "SECONDS", 2 if "fifo" in text else 300)
    with pytest.raises(LayoutError, match=error) as e:
        torch_headers.make_row(str(tmp_path), "9.9")
    assert "\n" not in str(e.value)
