"""Processes that title themselves as an engine's do: `titled.py FOLDER TREE`, TREE a JSON object {name, title, children, argv,
groups, modules, environ, defines}.

Each process starts its children (fresh interpreters), titles itself (setproctitle, else by writing over its own argv as that
does), and writes what is true of itself to FOLDER/NAME.json. It lives while FOLDER/run exists, at most three minutes.
`groups` puts a FAKE vllm.distributed.parallel_state into sys.modules: {"_TP": [rank, rank_in_group, world_size], ...}.
`modules`: names of further FAKE modules. `defines`: names of functions that this process alone has. `title` null: no title.
`argv`: start this child with that command line instead (a decoy; it gets no truth from itself).
"""

import ctypes
import json
import os
import subprocess
import sys
import time
import types


def set_title(title):
    try:
        import setproctitle
    except ImportError:
        with open("/proc/self/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
        data = title.encode()
        assert len(data) < end - start, "the command line is too short for the title"
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, data, len(data))
        ctypes.CDLL(None).prctl(15, data[:15], 0, 0, 0)  # PR_SET_NAME
    else:
        setproctitle.setproctitle(title)


class GroupCoordinator:
    def __init__(self, rank, rank_in_group, world_size):
        self.rank, self.rank_in_group, self.world_size = rank, rank_in_group, world_size


def fake_groups(groups):
    for name in ("vllm", "vllm.distributed", "vllm.distributed.parallel_state"):
        sys.modules[name] = types.ModuleType(name)
    for name, numbers in groups.items():
        setattr(sys.modules["vllm.distributed.parallel_state"], name, GroupCoordinator(*numbers))


def main():
    folder, tree = sys.argv[1], json.loads(sys.argv[2])
    children = {}
    for child in tree.get("children", ()):
        if "argv" in child:
            argv = [sys.executable if word == "PYTHON" else word for word in child["argv"]]
            process = subprocess.Popen(
                argv, executable=child.get("executable") and argv[0] and child["executable"], stdin=subprocess.DEVNULL
            )
            children[child["name"]] = process.pid
        else:
            environ = {**os.environ, **child.get("environ", {})}
            argv = [sys.executable, __file__, folder, json.dumps(child), " " * 200]  # room for a title
            children[child["name"]] = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL).pid
    if tree.get("groups"):
        fake_groups(tree["groups"])
    for name in tree.get("modules", ()):
        sys.modules[name] = types.ModuleType(name)
    for name in tree.get("defines", ()):
        exec(f"def {name}():\n    return 1", globals())
    if tree.get("title"):
        set_title(tree["title"])
    truth = {"pid": os.getpid(), "ppid": os.getppid(), "title": tree.get("title"), "started": children}
    with open(os.path.join(folder, tree["name"] + ".tmp"), "w") as f:
        json.dump(truth, f)
    os.rename(f.name, os.path.join(folder, tree["name"] + ".json"))
    end = time.monotonic() + 180
    while os.path.exists(os.path.join(folder, "run")) and time.monotonic() < end:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
