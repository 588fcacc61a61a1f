"""Code that was copied to memory of no file at its own place counts as its file's; other code in such a place does not."""

from gdbext.access import text_copies
from gdbext.access.model import PAGE, Mapping

BASE = 0x400000


class Memory:
    """A process whose file's pages 2 to 9 are `code` in memory of `kind`."""

    def __init__(self, path, code, kind="", last=None):
        self.path, self.code = str(path), code
        end = BASE + 10 * PAGE
        self.maps = [
            Mapping(BASE, BASE + 2 * PAGE, "r--p", 0, self.path, 7, device="00:1"),
            Mapping(BASE + 2 * PAGE, end, "r-xp", 0, kind),
            Mapping(end, end + 2 * PAGE, "r--p", 10 * PAGE, last or self.path, 7, device="00:1"),
        ]

    def mappings(self):
        return self.maps

    def file_of(self, path, base):
        return path

    def read(self, address, size):
        at = address - BASE - 2 * PAGE
        return self.code[at : at + size]


def written(tmp_path):
    data = b"".join(bytes((page,)) * PAGE for page in range(12))
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    return path, data[2 * PAGE : 10 * PAGE]


def found(memory):
    return [(m.start, m.end, m.offset, m.path) for m in text_copies.find(memory)]


def test_a_copy_at_its_own_place_is_its_files(tmp_path):
    path, code = written(tmp_path)
    right = [(BASE + 2 * PAGE, BASE + 10 * PAGE, 2 * PAGE, str(path))]
    assert found(Memory(path, code)) == right
    assert found(Memory(path, code, "/anon_hugepage (deleted)")) == right


def test_other_code_in_such_a_place_is_nobodys(tmp_path):
    path, code = written(tmp_path)
    assert found(Memory(path, code[:-PAGE] + bytes(PAGE))) == []  # its last page was patched
    assert found(Memory(path, code, last="/other.so")) == []
    assert found(Memory(path, code, "/memfd:jit (deleted)")) == []
    path.write_bytes(b"a rebuilt file")
    assert found(Memory(path, code)) == []
