# Loads gdbext:   source /path/to/gdbinit.d/gdbext.gdb
#
# For those who prefer a gdb script to `source gdbext/init.py`, and for cuda-gdb, which may turn out to be its build without
# Python: there this prints one line that says so, where init.py would end in `Undefined command: "import"`.
#
# A gdb script is not told where it lies. gdb has this file open while it reads it, so the open files tell; $GDBEXT_HOME, the
# folder that holds gdbext/, is asked first. ($_streq is defined by gdb's Python part: void means there is none.)
if $_isvoid($_streq)
  echo gdbext: this gdb was built without Python, which gdbext is written in. Install a full gdb (Debian, Ubuntu: apt-get install gdb); with cuda-gdb put a python3 that it supports on the PATH.\n
else
  python
import os
import sys

import gdb


def _gdbext_init():
    """Paths where gdbext/init.py may be: from $GDBEXT_HOME and from where this file lies (a clone, or an installed package)."""
    places = [os.path.join(os.environ["GDBEXT_HOME"], "gdbext")] if "GDBEXT_HOME" in os.environ else []
    for fd in sorted(map(int, os.listdir("/proc/self/fd")), reverse=True):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if os.path.basename(path) == "gdbext.gdb":
            folder = os.path.dirname(os.path.dirname(path))
            places += [os.path.join(folder, "gdbext"), folder]
    return [os.path.join(p, "init.py") for p in places]


# Only what root or this user could have put there: a process that gdb holds may have a file of this name open in it too.
_found = [p for p in _gdbext_init() if os.path.isfile(p) and os.stat(p).st_uid in (0, os.geteuid())]
if _found:
    sys.path.insert(0, os.path.dirname(os.path.dirname(_found[0])))
    from gdbext.access.cli_gdb import command

    gdb.execute(command("source {}", _found[0]))
    del command
else:
    gdb.write("gdbext: gdbext/init.py was not found; set GDBEXT_HOME to the folder that holds gdbext/, or source init.py itself\n")
del _gdbext_init, _found
  end
end
