"""`gdbext allow`: what lets a Python be traced by every process of its user, put into its site-packages, for images of engines.

Yama's kernel.yama.ptrace_scope=1 lets a process be traced by its ancestors alone, and by those that it names itself:
prctl(PR_SET_PTRACER) (Documentation/admin-guide/LSM/Yama.rst, PR_SET_PTRACER(2const)). No child inherits that.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
from typing import Any, Callable

from ..access.files import open_regular
from ..errors import GdbextError
from ..render import files

MODULE, PATH = "gdbext_allow.py", "gdbext_allow.pth"
MODE = 0o644  # whatever the umask: other users run this Python too, and none of them may write here
LINE = "import gdbext_allow\n"
CODE = '''\
"""Lets every process of this user trace this one (gdb, py-spy, gdbext) where Yama's kernel.yama.ptrace_scope=1 forbids it.

`gdbext allow` has put this and gdbext_allow.pth here, `gdbext allow -remove` takes them away, GDBEXT_ALLOW=0 in the environment
turns them off. With GDBEXT_DUMP=USR2 that signal makes the process print the stacks of all its threads to its standard error.
"""

import os
import sys


def allow():
    """prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); a kernel without Yama refuses that and lets the user trace anyway."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
    except Exception:
        pass


def dump(name):
    """Prints stacks at the signal, if no handler of it is there."""
    try:
        import faulthandler
        import signal

        number = getattr(signal, "SIG" + name)
        if name in ("USR1", "USR2") and signal.getsignal(number) is signal.SIG_DFL:
            faulthandler.register(number, all_threads=True)
    except Exception:
        pass


if sys.platform == "linux" and os.environ.get("GDBEXT_ALLOW", "1") != "0":
    allow()
    os.register_at_fork(after_in_child=allow)
    if os.environ.get("GDBEXT_DUMP"):
        dump(os.environ["GDBEXT_DUMP"])
'''


def text() -> str:
    """Both files, as a reviewer reads them."""
    return f"# {PATH}\n{LINE}\n# {MODULE}\n{CODE}"


def change(folder: str, remove: bool, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Writes both files into a folder of site-packages (this Python's own for ''), or removes them.

    -> `{files: [{path, changed}]}`; `GdbextError` where that may not be done"""
    folder = os.path.abspath(os.path.expanduser(folder or sysconfig.get_path("purelib")))
    done = []
    for name, content in ((PATH, LINE), (MODULE, CODE))[:: 1 if remove else -1]:  # the line never stands there without its module
        path = os.path.join(folder, name)
        try:
            done.append({"path": path, "changed": _removed(path) if remove else _written(path, content)})
        except OSError as e:
            raise GdbextError(f"{path}: {e.strerror}; -into DIR names another folder of site-packages") from None
        say(f"{path}: {'removed' if remove else 'written'}" if done[-1]["changed"] else f"{path}: nothing to do")
    if not remove:
        say("every process of the user may trace what this Python runs from now on; GDBEXT_ALLOW=0 turns it off")
    return {"files": done}


def _content(path: str) -> tuple[str, int] | None:
    """The text and the permissions of a file; None where there is none. `GdbextError` where it is no file that can be read."""
    if not os.path.lexists(path):
        return None
    with open_regular(path) as f:
        return f.read(1 << 16).decode("utf-8", "replace"), os.fstat(f.fileno()).st_mode & 0o7777


def _written(path: str, content: str) -> bool:
    before = _content(path)
    if before is not None and before[0] != content and "gdbext" not in before[0]:
        raise GdbextError(f"{path} is there and not ours: remove it first")
    if before is not None and before[0] == content and before[1] & 0o444 == 0o444 and not before[1] & 0o022:
        return False
    with contextlib.closing(files.Draft(path, "-into", force=True)) as draft:
        draft.write(content)
        with draft.named():
            os.fchmod(draft.fileno(), MODE)
        draft.keep()
    return True


def _removed(path: str) -> bool:
    before = _content(path)
    if before is None:
        return False
    if "gdbext" not in before[0]:
        raise GdbextError(f"{path} is not ours: it stays")
    os.unlink(path)
    return True
