"""Which files are opened, where names lead, and what reading may cost."""

import json
import os
import time

import pytest

from gdbext.access import files
from gdbext.errors import GdbextError, NotFoundError


def test_a_name_is_followed_inside_the_root(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "usr" / "lib").mkdir(parents=True)
    outside.mkdir()
    (outside / "lib.so").write_text("the host's")
    (root / "usr" / "lib" / "lib.so").write_text("the container's")
    (root / "lib").symlink_to("usr/lib")
    (root / "absolute").symlink_to("/usr/lib")
    (root / "srv").symlink_to(str(outside))  # absolute: on the host it leads out of the root
    (root / "up").symlink_to("../../../../outside/lib.so")
    (root / "round").symlink_to("round")

    def text(path):
        return open(files.resolve(str(root), path)).read()

    assert (
        text("/usr/lib/lib.so")
        == text("/lib/lib.so")
        == text("/absolute/lib.so")
        == text("/lib/../lib/./lib.so")
        == "the container's"
    )
    for path in ("/srv/lib.so", "/up", "/../outside/lib.so"):
        with pytest.raises(FileNotFoundError):
            text(path)
    with pytest.raises(NotFoundError, match="too many symbolic links"):
        files.resolve(str(root), "/round")
    assert files.resolve("", "/any/../thing") == "/any/../thing"


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "absent", "nul"])
def test_only_regular_files_are_opened_and_nothing_waits(tmp_path, kind):
    path = {"device": "/dev/zero", "folder": str(tmp_path), "absent": str(tmp_path / "no"), "nul": "/tmp/a\0b"}.get(kind)
    if kind == "fifo":
        path = str(tmp_path / "fifo")
        os.mkfifo(path)
    with pytest.raises(NotFoundError):
        files.open_regular(path)
    with pytest.raises(NotFoundError):
        files.source_lines(path)


def test_lines_of_a_source_are_bounded(tmp_path):
    (tmp_path / "a.py").write_bytes(b"one\n\xff\xfe two\n" + b"x" * (20 << 20))
    lines = files.source_lines(str(tmp_path / "a.py"))
    assert lines[0] == "one" and len(lines) == 3 and len(lines[2]) < files.MAX_SOURCE


def test_a_budget_ends_what_a_file_makes_endless(monkeypatch):
    budget = files.Budget("f", 1000, 60)
    budget.take(1000)
    with pytest.raises(GdbextError, match="^f: damaged: reading it would take more"):
        budget.take(1)
    with pytest.raises(GdbextError, match="^f: damaged"):
        files.Budget("f").take(-1)
    late = files.Budget("f", seconds=1.0)
    now = time.monotonic()
    monkeypatch.setattr(files.time, "monotonic", lambda: now + 2)
    with pytest.raises(GdbextError, match="not read in 1 s"):
        late.take(0)


def test_what_damage_raises_is_one_line_that_names_the_file():
    for damage in (
        lambda: json.loads("[" * 100_000),
        lambda: json.loads("nonsense\n"),
        lambda: {}["absent"],
        lambda: [][1],
        lambda: 1 + "a",
        lambda: b"\xff".decode(),
        lambda: 1 // 0,
        lambda: (_ for _ in ()).throw(RuntimeError("encrypted, password required")),  # as zipfile says it
    ):
        with pytest.raises(GdbextError, match=r"^the file: damaged \(") as error, files.reading("the file", RuntimeError):
            damage()
        assert "\n" not in str(error.value)
    with pytest.raises(NotFoundError, match="as it was"), files.reading("the file"):
        raise NotFoundError("as it was")
