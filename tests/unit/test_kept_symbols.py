"""What is kept of libraries' symbols between looks: believed where it is the user's own, whole and of this very file; else made
again. The subject is the interpreter's own program; a planted answer, which no symbol table gives, shows what was believed."""

import binascii
import json
import os
import shutil
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT

from gdbext import __main__, log
from gdbext.access import elf, kept_symbols
from gdbext.errors import GdbextError

PLANTED = "a_name_that_no_table_has"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gdbext" / "symbols"


@pytest.fixture
def library(tmp_path):
    """A copy of a program that has a build-id, and an address in it with its function's name"""
    for path in (os.path.realpath(sys.executable), "/bin/sh", "/bin/bash"):
        file = elf.Elf(path)
        start = next(
            (value for values, _, _ in file._values() for value in map(int, memoryview(values).cast("Q")[10:400]) if value), 0
        )
        if file.build_id and start and file._named(start):
            return shutil.copy(path, tmp_path / "library"), start, file._named(start)
    pytest.skip("no program with a build-id and symbols is here")


def opened(path):
    """The file as another process would open it"""
    elf.drop_cached(str(path))
    return elf.open_elf(str(path))


def look(path, start):
    """The function's name, in a look that keeps what it found"""
    file = opened(path)
    name = file.function_from(start)
    kept_symbols.keep([file])
    return name


def plant(cache, library, change=lambda said: said):
    """Writes, as a look does, that the function has another name. -> the file"""
    path, start, name = library
    assert look(path, start) == name
    kept = next(iter(cache.iterdir()))
    said = json.loads(kept.read_bytes().partition(b"\n")[2])
    said["named"][f"{start:x}"] = PLANTED
    write(kept, json.dumps(change(said)).encode())
    return kept


def write(kept, text):
    kept.write_bytes(b"%08x\n" % binascii.crc32(text) + text)


def noted(capfd, path, start):
    """(the name, what the log says) of a look"""
    with log.during(True):
        name = look(path, start)
    return name, capfd.readouterr().err


def test_the_next_look_takes_what_is_kept(cache, library):
    plant(cache, library)
    assert opened(library[0]).function_from(library[1]) == PLANTED
    assert os.stat(cache).st_mode & 0o777 == 0o700 and next(iter(cache.iterdir())).stat().st_mode & 0o777 == 0o600


def test_what_has_no_name_and_what_lies_around_are_kept_too(cache, library):
    path, start, name = library
    file = opened(path)
    inside = file.function_and_start(start + 1)
    nothing = file.function_and_start(1), file.function_from(3)
    kept_symbols.keep([file])
    again = opened(path)
    answers = kept_symbols.of(again)
    assert answers.known == len(answers) == 3
    assert (again.function_and_start(start + 1), again.function_and_start(1), again.function_from(3)) == (inside, *nothing)
    assert nothing == (("", 0), "")


DAMAGE = {
    "a byte": lambda kept: kept.write_bytes(kept.read_bytes().replace(PLANTED.encode(), PLANTED.upper().encode())),
    "cut short": lambda kept: kept.write_bytes(kept.read_bytes()[:-5]),
    "empty": lambda kept: kept.write_bytes(b""),
    "no JSON": lambda kept: write(kept, b"\x80\x04K\x01."),
    "a list": lambda kept: write(kept, b"[]"),
    "deep": lambda kept: write(kept, b"[" * 100_000),
    "no text": lambda kept: write(kept, kept.read_bytes().partition(b"\n")[2].replace(f'"{PLANTED}"'.encode(), b"7")),
    "too large": lambda kept: write(kept, kept.read_bytes().partition(b"\n")[2] + b" " * kept_symbols.MOST_BYTES),
    "others may write it": lambda kept: kept.chmod(0o666),
    "a link": lambda kept: (shutil.move(kept, kept.parent / "x"), kept.symlink_to(kept.parent / "x")),
    "a FIFO": lambda kept: (kept.unlink(), os.mkfifo(kept)),
    "a folder": lambda kept: (kept.unlink(), kept.mkdir()),
    "another library's": lambda kept: None,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_what_is_damaged_or_another_ones_is_made_again_with_a_note(cache, library, capfd, how):
    kept = plant(cache, library, lambda said: {**said, "key": "0" * 40} if how == "another library's" else said)
    DAMAGE[how](kept)
    name, said = noted(capfd, *library[:2])
    assert name == library[2]
    assert "made again" in said, said
    if how != "a folder":  # whose place a file cannot take
        assert opened(library[0]).function_from(library[1]) == library[2] and kept_symbols.of(elf.open_elf(library[0])).known


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["file", "folder", "above"])
def test_what_belongs_to_another_user_is_not_believed(cache, library, capfd, what):
    kept = plant(cache, library)
    os.chown({"file": kept, "folder": cache, "above": cache.parent}[what], 65534, 65534)
    before = kept.read_bytes()
    name, said = noted(capfd, *library[:2])
    assert name == library[2] and "65534" in said or "alone may write" in said, said
    if what != "file":  # where another one could exchange what is written, nothing is
        assert kept.read_bytes() == before and list(cache.iterdir()) == [kept]
        with pytest.raises(GdbextError, match="65534"):
            kept_symbols.clear()


def test_a_folder_that_others_may_write_to_is_not_used(cache, library, capfd):
    kept = plant(cache, library)
    cache.chmod(0o777)
    name, said = noted(capfd, *library[:2])
    assert name == library[2] and "writable by others" in said
    assert PLANTED.encode() in kept.read_bytes()


def test_a_changed_file_under_the_same_path_has_answers_of_its_own(cache, library):
    path, start, name = library
    plant(cache, library)
    st = os.stat(path)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns + 1))  # written anew, of the same size
    assert opened(path).function_from(start) == name
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))  # and its time set back, as objcopy --preserve-dates does
    assert opened(path).function_from(start) == name
    with open(path, "ab") as f:
        f.write(b"\0")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))  # longer, of the same time
    assert opened(path).function_from(start) == name
    other = shutil.copy2(path, f"{path}2")
    os.truncate(other, st.st_size)
    os.utime(other, ns=(st.st_atime_ns, st.st_mtime_ns))
    os.rename(other, path)  # exchanged for a file of the same size and time
    assert opened(path).function_from(start) == name


def test_a_file_that_is_rewritten_in_place_during_a_look_leaves_no_answers(cache, library):
    path, start, name = library
    file = opened(path)
    assert file.function_from(start) == name
    with open(path, "r+b") as f:  # the same bytes again: what a builder writes over it is read as if it were there before
        head = f.read(64)
        f.seek(0)
        f.write(head)
    os.utime(path, ns=(os.stat(path).st_atime_ns, 1))
    kept_symbols.keep([file])
    assert not cache.exists() or not list(cache.iterdir())
    assert look(path, start) == name and len(list(cache.iterdir())) == 1  # the next look keeps its own


WRITER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from gdbext.access import elf, kept_symbols
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 300):
    file = elf.Elf(sys.argv[1])
    file.function_from(number)
    kept_symbols.keep([file])
"""


def test_two_writers_leave_a_whole_file_at_every_moment(cache, library):
    path, start, _ = library
    look(path, start)
    kept = next(iter(cache.iterdir()))
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, ROOT, path, str(first)]) for first in (1, 10_000)]
    looks = 0
    while any(one.poll() is None for one in writers):
        kept_symbols._checked(str(kept))  # raises where it is not whole
        looks += 1
    assert looks and [one.returncode for one in writers] == [0, 0]
    numbers = kept_symbols.of(opened(path)).named
    assert start in numbers and {300, 10_299} & set(numbers)
    assert list(cache.iterdir()) == [kept]


@pytest.mark.parametrize("home", ["no folder", "a file", "read-only", "relative", "none"])
def test_without_a_writable_home_nothing_is_kept_and_all_is_reported(library, tmp_path, monkeypatch, capfd, home):
    (tmp_path / "file").write_text("")
    places = {"no folder": "/proc/nowhere", "a file": str(tmp_path / "file"), "read-only": "/sys/kernel", "relative": "cache"}
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    if home in places:
        monkeypatch.setenv("XDG_CACHE_HOME", places[home])
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir(tmp_path))
    name, said = noted(capfd, *library[:2])
    assert name == library[2] and set(os.listdir(tmp_path)) == before
    assert "are not kept" in said if home in ("no folder", "a file", "read-only") else not kept_symbols.folder()
    assert kept_symbols.clear() == (0, 0)


def test_the_oldest_files_go_where_there_are_too_many(cache, library, monkeypatch):
    monkeypatch.setattr(kept_symbols, "MOST_FILES", 3)
    path, start, _ = library
    for number in range(5):
        os.utime(path, ns=(1, number))
        look(path, start)
    assert sorted(int(name.name.split("-")[2], 16) for name in cache.iterdir()) == [2, 3, 4]


def test_of_one_library_so_many_answers_are_kept(cache, library, monkeypatch):
    monkeypatch.setattr(kept_symbols, "MOST_ANSWERS", 10)
    path, start, _ = library
    for first in (start, *range(1, 60)):
        look(path, first)
        assert 1 <= kept_symbols.of(opened(path)).known <= 10


def test_what_is_no_file_and_what_has_no_build_id_is_not_kept(cache, library):
    with open(library[0], "rb") as f:
        in_memory = elf.Elf("library", f.read())
    assert in_memory.function_from(library[1]) == library[2]
    kept_symbols.keep([in_memory])
    assert not cache.exists()


def test_cache_clear_removes_what_is_ours_alone(cache, library, capsys):
    kept = plant(cache, library)
    draft = cache / f".{kept.name[:-5]}.123"  # of a writer that was killed
    draft.write_bytes(b"x")
    (cache / "notes.txt").write_text("mine")
    (cache / f"{'a' * 40}-1-2-3-4.json").mkdir()  # which nobody of ours makes
    size = kept.stat().st_size + 1
    assert __main__.main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "cache/1", "partial": [], "folder": str(cache), "files": 2, "bytes": size
    }  # fmt: skip
    assert sorted(one.name for one in cache.iterdir() if one.is_file()) == ["notes.txt"]
    assert __main__.main(["cache", "clear"]) == 0 and "removed 0 files" in capsys.readouterr().out


def test_cache_clear_removes_packs_from_their_own_folder_alone(cache, library, capsys):
    plant(cache, library)
    packs = cache.parent / "packs"
    packs.mkdir(mode=0o700)
    for folder in (cache, packs):
        for name in ("c" * 64, ".123", "notes.txt"):
            (folder / name).write_bytes(b"12345678")
    assert __main__.main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 3  # the results of one library; a pack and a draft
    assert sorted(one.name for one in packs.iterdir()) == ["notes.txt"]
    assert sorted(one.name for one in cache.iterdir()) == [".123", "c" * 64, "notes.txt"]
