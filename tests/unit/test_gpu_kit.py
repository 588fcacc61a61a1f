"""What scripts/get-gpu-kit does to wheels, on made-up ones, and what tests/gpu says that it lacks."""

import json
import os
import struct
import tarfile
import zipfile

import pytest
from tools import get_gpu_kit
from tools.gpu_kit import fatbin, needs, site
from tools.say import Failed


def entry(kind, arch, code):
    return struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + bytes(12) + struct.pack("<I", arch) + bytes(32) + code


def binary(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(body)) + body


def library(*binaries, name=b".nv_fatbin"):
    """An ELF file of 64 bits with one section of GPU code, as far as it is looked at."""
    section = b"".join(one + bytes(-len(one) % 8) for one in binaries)
    names = b"\0" + name + b"\0.shstrtab\0"
    at = 64 + len(section)
    rows = [(0, 0, 0), (1, 64, len(section)), (1 + len(name) + 1, at, len(names))]
    head = bytearray(64)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", head, 40, at + len(names))
    struct.pack_into("<HHH", head, 58, 64, len(rows), 2)
    table = b"".join(struct.pack("<IIQQQQ", n, 1, 0, 0, offset, size) + bytes(24) for n, offset, size in rows)
    return bytearray(bytes(head) + section + names + table)


def codes(data):
    """[[(kind, architecture, code)]] of each fat binary."""
    found = []
    for at, header, size in fatbin._binaries(data, *fatbin._section(data)):
        rows = list(fatbin._entries(data, at + header, at + header + size))
        found.append([(kind, arch, bytes(data[where + 64 : where + length])) for where, length, kind, arch in rows])
    return found


def test_one_architectures_code_stays_in_place():
    old, mine, ptx, other = (
        entry(2, 80, b"eighty--" * 9),
        entry(2, 90, b"ninety--" * 4),
        entry(1, 90, b"text----"),
        entry(2, 100, b"more----"),
    )
    before = library(binary(old, mine, ptx), binary(other), binary(mine))
    data = bytearray(before)
    said = fatbin.slim(data, 90)
    assert codes(data) == [[(2, 90, b"ninety--" * 4)], [], [(2, 90, b"ninety--" * 4)]]
    assert len(data) == len(before) and data[:64] == before[:64] and data[-300:] == before[-300:]
    assert said.emptied == 1 and said.kept == 2 * len(mine) and said.sizes[2, 80] == len(old)
    assert data.count(b"eighty") == data.count(b"text") == data.count(b"more") == 0


def test_of_code_that_is_not_compressed_named_kernels_stay():
    data = library(binary(entry(2, 90, b"..flash_fwd_128.."), entry(2, 90, b"..flash_fwd_256..")))
    fatbin.slim(data, 90, "flash_fwd_(64|128)")
    assert codes(data) == [[(2, 90, b"..flash_fwd_128..")]]


@pytest.mark.parametrize(
    "data, message",
    [
        (bytearray(b"PK"), "not an ELF file"),
        (library(binary(entry(2, 90, b"x" * 8)), name=b".text"), "no section .nv_fatbin"),
        (library(binary(entry(3, 90, b"x" * 64))), "is not understood: kind 3"),
    ],
)
def test_what_is_not_understood_is_refused(data, message):
    with pytest.raises(Failed, match=message):
        fatbin.slim(data, 90)


@pytest.fixture
def kit(tmp_path):
    """A kit of a made-up engine."""
    wheel = tmp_path / "some_engine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        for name in (
            "vllm/a.py",
            "vllm/a.pyi",
            "vllm/tests/b.py",
            "vllm/jobs/c.json",
            "x-1.0.data/purelib/d.py",
            "x-1.0.data/scripts/e",
        ):
            z.writestr(name, name)
    files = get_gpu_kit.files_of(str(wheel), ["vllm/jobs/*"])
    assert sorted(files) == ["d.py", "vllm/a.py"]
    os.mkdir(tmp_path / "kit")
    rows = {}
    for name in ("common", "vllm"):
        get_gpu_kit.pack(str(tmp_path / "kit" / f"{name}.tar.xz"), files if name == "vllm" else {"common.py": (b"", 0o644)})
        rows[name] = {"bytes": 1, "sha256": name}
    (tmp_path / "kit" / "manifest.json").write_text(
        json.dumps({"have": {"python": "3", "no-such-package": "1.0"}, "files": rows})
    )
    return str(tmp_path / "kit")


def test_a_kits_archives_are_the_same_each_time(kit, tmp_path):
    with tarfile.open(os.path.join(kit, "vllm.tar.xz")) as archive:
        assert [(m.name, m.mode, m.mtime) for m in archive] == [(n, 0o644, get_gpu_kit.TIME) for n in ("d.py", "vllm/a.py")]


def test_an_interpreter_that_does_not_suit_a_kit_is_named(kit, monkeypatch):
    monkeypatch.setenv("GDBEXT_TEST_GPU_KIT", kit)
    monkeypatch.delenv("GDBEXT_TEST_GPU_PYTHON", raising=False)
    needs.engine.cache_clear()
    with pytest.raises(Failed, match="no interpreter suits the kit: .*no-such-package is none, the kit wants 1.0"):
        needs.engine("vllm")
    with pytest.raises(Failed, match="the kit in .* has no sglang: run scripts/get-gpu-kit sglang"):
        site.unpacked("sglang", "python3", kit)
    needs.engine.cache_clear()


def test_what_is_missing_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("GDBEXT_TEST_GPU_PYTHON", raising=False)
    monkeypatch.setenv("GDBEXT_TEST_GPU_KIT", str(tmp_path))
    needs.engine.cache_clear()
    missing = needs.missing()
    assert "run scripts/get-gpu-kit" in missing["vllm for a GPU"] and "run scripts/get-gpu-kit" in missing["sglang for a GPU"]
    needs.engine.cache_clear()


def test_a_folder_that_is_no_kit_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Failed, match="holds something that is no kit"):
        get_gpu_kit.make(str(tmp_path), ["vllm"], 90)
    assert (tmp_path / "mine").read_text() == "mine"
