"""The pack's block in gdb's init files: put in and taken out. No other byte of the file is changed.

The first line of the block records how room was made for it. So its removal restores exactly the bytes that were there."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from typing import Callable

from .. import package
from ..errors import GdbextError

BEGIN = b"# >>> gdbext >>>"
BEGIN_UNENDED = b"# >>> gdbext, after a line that had no end >>>"
BEGIN_NEW_FILE = b"# >>> gdbext, in a file made for it >>>"
END = b"# <<< gdbext <<<"
_BLOCK = re.compile(
    b"(?P<joint>\n)?(?P<begin>^(?:" + b"|".join(map(re.escape, (BEGIN, BEGIN_UNENDED, BEGIN_NEW_FILE))) + b"))[ \t]*\r?\n"
    b"(?P<body>(?:(?!# >>> gdbext|# <<< gdbext).*\n)*?)" + re.escape(END) + b"[ \t]*(?:\r?\n|\\Z)",
    re.M,
)
_MARK = re.compile(b"^# (?:>>>|<<<) gdbext", re.M)

NO_PYTHON = (
    "gdbext: this gdb was built without Python, which gdbext is written in. Install a full gdb (Debian, Ubuntu: "
    "apt-get install gdb); with cuda-gdb put a python3 that it supports on the PATH."
)


def load_script(init: str) -> str:
    """The gdb script that loads the pack from `init`, the path of init.py. In a gdb without Python, and where the file is gone (a
    removed environment), it prints one line about that.

    `$_streq` is one of the functions that gdb's own Python part defines: where there is no Python it is void.
    """
    if "\n" in init:
        raise GdbextError(f"{init!r}: gdb cannot source a file whose path has a line break; move gdbext")
    gone = f"gdbext: {init} is gone, so gdb starts without it: install it again, or take this block out of gdb's init file"
    return (
        f"if $_isvoid($_streq)\n  echo {NO_PYTHON}\\n\nelse\n  python\nimport os.path\nif os.path.exists({init!r}):\n"
        f"    gdb.execute('source ' + {init!r})\nelse:\n    print({gone!r})\n  end\nend\n"
    )


def _blocks(content: bytes, where: str) -> list[re.Match[bytes]]:
    found = list(_BLOCK.finditer(content))
    if len(_MARK.findall(content)) != 2 * len(found):
        raise GdbextError(
            f"{where}: a marker of gdbext's block is damaged; remove the block by hand ({BEGIN.decode()} ... {END.decode()})"
        )
    return found


def remove_block(content: bytes | None, where: str = "init file") -> bytes | None:
    """`content` (bytes, or None for no file) without the block, as it was before `add_block`; None when the file was made for the
    block and holds nothing else."""
    if content is None:
        return None
    made = False
    while True:
        found = _blocks(content, where)
        if not found:
            return None if made and not content else content
        block = found[-1]
        begin = block.start("begin")
        if block["begin"] == BEGIN_UNENDED and block["joint"] and block.end() == len(content):
            begin -= 1  # lines that the user has added behind the block since need that line's end
        made = made or block["begin"] == BEGIN_NEW_FILE
        content = content[:begin] + content[block.end() :]


def add_block(content: bytes | None, script: str | bytes, where: str = "init file") -> bytes:
    """`content` (bytes, or None for no file) with the block that holds the gdb commands `script`, at its end. An existing block
    is renewed in its place."""
    body = script.encode() if isinstance(script, str) else script
    found = _blocks(content, where) if content is not None else []
    if len(found) > 1:
        raise GdbextError(f"{where}: gdbext's block is in it {len(found)} times; remove it first: {package.how()} uninstall")
    if found and content is not None:
        return content[: found[0].start("body")] + body + content[found[0].end("body") :]
    if content is None:
        return BEGIN_NEW_FILE + b"\n" + body + END + b"\n"
    if content and not content.endswith(b"\n"):
        return content + b"\n" + BEGIN_UNENDED + b"\n" + body + END + b"\n"
    return content + BEGIN + b"\n" + body + END + b"\n"


def init_files(environ: Mapping[str, str] = os.environ) -> tuple[list[tuple[str, str]], list[str]]:
    """The init files to write to, [(program, path)], and all files in which a block may be, [path]. gdb 11 and newer take the
    file in the configuration folder where it exists, else the one in the home folder; cuda-gdb has files of its own."""
    home = environ.get("HOME") or os.path.expanduser("~")
    config = os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "gdb")
    chosen, every = [], []
    for program, name in (("gdb", "gdbinit"), ("cuda-gdb", "cuda-gdbinit")):
        inside, plain = os.path.join(config, name), os.path.join(home, "." + name)
        chosen.append((program, inside if os.path.exists(inside) else plain))
        every += [inside, plain]
    return chosen, every


def read(path: str) -> bytes | None:
    """The file's bytes; None when there is none."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}") from None


def write(path: str, content: bytes | None) -> None:
    """Replaces the file at once, links followed and mode and owner kept; `content` None removes it."""
    real = os.path.realpath(path)
    if content is None:
        os.remove(real)
        return
    new = None
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        fd, new = tempfile.mkstemp(prefix=".gdbext-", dir=os.path.dirname(real))
        with os.fdopen(fd, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
            try:
                old = os.stat(real)
                os.fchmod(f.fileno(), old.st_mode & 0o7777)
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(f.fileno(), old.st_uid, old.st_gid)
            except FileNotFoundError:
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(f.fileno(), 0o666 & ~mask)
        os.replace(new, real)
        new = None
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}; nothing was changed in it") from None
    finally:
        if new:
            os.unlink(new)


def change(path: str, function: Callable[[bytes | None], bytes | None]) -> bool:
    """Writes the result of `function` on the file's bytes. -> whether anything changed."""
    before = read(path)
    after = function(before)
    if after == before:
        return False
    write(path, after)
    return True
