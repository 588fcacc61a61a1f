"""Files that commands write: complete or absent, however the command ends, and never in the place of another user's file.

Every command writes through a `Draft` (or `writing`, `drawing`, `write`, which use one)."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from typing import IO, Any, Callable, Iterator

from .. import package
from ..errors import GdbextError

KINDS = {
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}  # errors of open(2) where O_TMPFILE is not supported
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
CORE = b"\x7fELF"


def may_write(path: str, option: str, force: bool, may_replace: Callable[[str], bool] | None = None) -> None:
    """`GdbextError` where `path` may not be written.

    That is the case for an existing file that is no regular one, another user's or a core, for any existing file without `force`,
    and where nothing can be written to its folder. It is checked before any work is done, and again when the file is kept.
    `may_replace`: says of the path of a core whether it may be replaced all the same."""
    path = os.path.expanduser(path)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return
        raise GdbextError(f"{option} {path}: {folder} is no folder that can be written to: name another file") from None
    except (OSError, ValueError) as e:
        raise GdbextError(f"{option} {path}: {getattr(e, 'strerror', None) or e}: name another file") from None
    if not stat.S_ISREG(there.st_mode):
        raise GdbextError(
            f"{option} {path}: there is {KINDS.get(stat.S_IFMT(there.st_mode), 'no regular file')}: name another file"
        )
    if there.st_uid != os.geteuid():
        raise GdbextError(f"{option} {path}: the file there is user {there.st_uid}'s, and is not replaced: name another file")
    if _is_core(path) and not (may_replace is not None and may_replace(path)):
        raise GdbextError(f"{option} {path}: the file is there already, and is a core, which nothing replaces: name another file")
    if not force:
        raise GdbextError(f"{option} {path}: the file is there already; -force replaces it")


def _is_core(path: str) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
            return f.read(len(CORE)) == CORE
    except OSError:
        return False  # the user's own file, without the right to read it


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _hidden(folder: str) -> str:
    return os.path.join(folder, f".gdbext-{os.urandom(8).hex()}")


class Draft:
    """A file that is written before it has a name: `file`, binary. `keep()` gives it its name. If the process ends before,
    however it does, no file remains. (On a file system without O_TMPFILE it has a hidden name meanwhile; SIGKILL leaves that file
    behind.)

    `path`, `option` (names it in errors), `force`, `may_replace` as for `may_write`. `mode`: its permissions, less the umask.
    `folders`: `keep()` makes the folder of `path` where it is missing, for its user alone."""

    def __init__(
        self,
        path: str,
        option: str,
        force: bool = False,
        *,
        mode: int = 0o666,
        may_replace: Callable[[str], bool] | None = None,
        folders: bool = False,
    ) -> None:
        self.path, self.option, self.force, self._may_replace = os.path.expanduser(path), option, force, may_replace
        folder = os.path.dirname(os.path.abspath(self.path))
        self._folders = folders
        while folders and not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if os.path.dirname(os.path.abspath(self.path)) == folder:
            may_write(path, option, force, may_replace)
        self._name = ""  # of the draft, where it needs one
        with self.named():
            try:
                handle = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)
            except OSError as e:
                if e.errno not in NO_TMPFILE:
                    raise
                self._name = _hidden(folder)
                handle = os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, mode)
            self.file: IO[bytes] = os.fdopen(handle, "w+b")

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """A block in which errors of the system name the option and the path."""
        try:
            yield
        except OSError as e:
            raise GdbextError(f"{self.option} {self.path}: {e.strerror or e}: name another file") from None

    def fileno(self) -> int:
        """The descriptor of the file."""
        return self.file.fileno()

    def keep(self, path: str = "") -> str:
        """Gives it its name, or `path` where that differs by now; -> the name. A file that it replaces exists until that
        moment."""
        self.path = path or self.path
        with self.named():
            self.file.flush()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # two steps
            try:
                if self._folders:
                    os.makedirs(os.path.dirname(os.path.abspath(self.path)), mode=0o700, exist_ok=True)
                may_write(self.path, self.option, self.force, self._may_replace)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path)  # a hidden name, to be renamed to this one, could be left by SIGKILL
                self._link(self.path)  # an error where a file has appeared meanwhile
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self.path

    def _link(self, path: str) -> None:
        if self._name:
            os.link(self._name, path)
            return
        here = os.open("/", os.O_PATH | os.O_CLOEXEC)  # os.link follows the link of /proc only where it gets a folder
        try:
            os.link(f"/proc/self/fd/{self.file.fileno()}", path, src_dir_fd=here)
        finally:
            os.close(here)

    def write(self, text: str) -> None:
        """Adds `text` in UTF-8."""
        with self.named():
            self.file.write(_encoded(text))

    def close(self) -> None:
        """Closes it: without `keep()` nothing remains."""
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name)
            self._name = ""
        with contextlib.suppress(OSError):  # the rest of its buffer, to a full disk
            self.file.close()


def own_folder(path: str, option: str, make: bool = False) -> str:
    """The full path of a folder of the user's own to write files into. With `make` it is made (0700) where it is missing.

    `GdbextError` where it is another user's, no folder, or cannot be made. `option` names it in errors."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        if make:
            os.makedirs(path, mode=0o700, exist_ok=True)
        there = path
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there):
            raise GdbextError(f"{option} {path}: {there} is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise GdbextError(f"{option} {path}: {os.strerror(errno.EACCES)}: name another folder")
        if there == path and os.stat(path).st_uid != os.geteuid():
            raise GdbextError(f"{option} {path} belongs to another user, who could exchange the files: choose one of your own")
    except OSError as e:
        raise GdbextError(f"{option} {path}: {e.strerror}") from None
    return path


def check_parent(parent: str, option: str) -> None:
    """Raises the `GdbextError` that `folder_for` would, before there is anything to write."""
    path = os.path.realpath(os.path.expanduser(parent))
    try:
        _refuse_others(path, option)
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        raise GdbextError(f"{option} {parent}: {e.strerror}: name another folder") from None


def _refuse_others(parent: str, option: str) -> None:
    why = package.owned_by_us(parent, sticky=True) if os.path.isdir(parent) else ""
    if why:
        raise GdbextError(f"{option} {parent}: what is written could be exchanged: {why}: name another folder")


def folder_for(path: str, option: str) -> str:
    """A folder to write files of new names into, made for this user alone where it is missing. -> its path

    `GdbextError` where it cannot be made, or where others could exchange the files: it is another user's, or all users may rename
    in it. `option` names it in errors."""
    path = os.path.realpath(os.path.expanduser(path))
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        _refuse_others(path, option)
    except OSError as e:
        raise GdbextError(f"{option} {path}: {e.strerror}: name another folder") from None
    return path


@contextlib.contextmanager
def writing(path: str, option: str, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary file to write. It appears as `path` when the block ends without an error, and not at all otherwise. Errors as of
    `may_write`. `option` names it in errors."""
    with contextlib.closing(Draft(path, option, force)) as draft, draft.named():
        yield draft.file
        draft.keep()


@contextlib.contextmanager
def drawing(path: str, option: str, size: tuple[float, float], force: bool = False) -> Iterator[Any]:
    """A matplotlib Figure of `size` inches to draw on, written to `path` when the block ends without an error. The file's suffix
    chooses the format.

    Callers make sure that matplotlib is installed. `GdbextError` for a suffix of no picture format, and as of `writing`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, constrained_layout=True)
    known = FigureCanvasAgg(figure).get_supported_filetypes()
    kind = os.path.splitext(path)[1].lower().lstrip(".")
    if kind not in known:
        raise GdbextError(f"{option} {path}: the file's name must end in one of {', '.join(sorted(known))}")
    may_write(path, option, force)
    yield figure
    with writing(path, option, force) as f:
        figure.savefig(f, format=kind, dpi=110)


def write(path: str, option: str, text: str, force: bool = False) -> None:
    """Writes `text` in UTF-8; errors as of `may_write`."""
    with writing(path, option, force) as f:
        f.write(_encoded(text))
