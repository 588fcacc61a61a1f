"""A hostile process of another user: python3 adversary.py UID FOLDER KIND SEED. Prints "ready".

KIND: "fifo", "device", "forged", "every": it stands in a library, and what lies at the paths that its loader names (forged: a
name that the loader has never heard) is a FIFO or leads to a device by now; "late": once it is traced it loads libraries, and
the loader names a FIFO, pipes of whoever opens them and a terminal without an end; then it sends itself SIGUSR1; "source": its
function's source is a FIFO; "execs": it becomes itself again and again, with titles of 4 KiB, at moments that the seed gives;
"ends": its children come, stand in deep frames and end all the time."""

import ctypes
import os
import random
import shutil
import signal
import sys
import time

EVIL = "\x1b]0;PWNED\x07\nFORGED \x1b[2J\r\u202e\u2067\u061c\x9b31m"
TITLE = "VLLM::Worker_TP0 " + EVIL * (4000 // len(EVIL.encode()))


def drop(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as a process that was started by that user
    ctypes.CDLL(None).prctl(15, EVIL.encode()[:15])


def stand_in_a_library(folder, kind):
    libraries = [ctypes.CDLL(os.path.join(folder, name)) for name in ("one.so", "two.so", "three.so")]
    paths = [os.path.join(folder, name) for name in ("one.so", "two.so", "fifo\n" + EVIL.replace("/", ""))]
    if kind in ("fifo", "every"):
        os.unlink(paths[0])
        os.mkfifo(paths[0])
    if kind in ("device", "every"):
        os.unlink(paths[1])
        os.symlink("/dev/zero", paths[1])
    if kind in ("forged", "every"):
        os.mkfifo(paths[2])
        kept = forge(libraries[2], paths[2])  # noqa: F841
    print("ready", flush=True)
    libraries[0].hang()


def forge(library, path):
    name = ctypes.create_string_buffer(os.fsencode(path))
    ctypes.c_void_p.from_address(library._handle + 8).value = ctypes.addressof(name)  # l_name of struct link_map
    return name


def load_late(folder):
    print("ready", flush=True)
    fifo = os.path.join(folder, "fifo")
    os.mkfifo(fifo)
    while True:
        with open("/proc/self/status") as f:
            if "TracerPid:\t0\n" not in f.read():
                break
        time.sleep(0.05)
    names = [fifo, "/proc/self/fd/5", "/proc/./thread-self/fd/6", "/dev/ptmx"]
    copies = [shutil.copy(os.path.join(folder, "one.so"), f"{folder}/{number}.so") for number in range(len(names))]
    kept = [forge(ctypes.CDLL(path), name) for path, name in zip(copies, names)]  # noqa: F841
    ctypes.CDLL(os.path.join(folder, "two.so"))  # gdb looks at all names
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(3600)


def stand_in_a_source(folder):
    path = os.path.join(folder, "source.py")
    os.mkfifo(path)
    exec(compile("def wait():\n    print('ready', flush=True)\n    time.sleep(3600)\nwait()\n", path, "exec"), {"time": time})


def exec_on(seed):
    chance = random.Random(seed)
    if chance.random() < 0.2:
        print("ready", flush=True)
    time.sleep(chance.random() * 0.06)
    os.execv("/proc/self/exe", [TITLE, "-S", "-E", __file__, *sys.argv[1:4], str(chance.randrange(1 << 30))])


def deep(depth, seconds):
    if depth:
        return deep(depth - 1, seconds)
    time.sleep(seconds)


def end_all_the_time(seed):
    chance = random.Random(seed)
    print("ready", flush=True)
    while True:
        child, depth, seconds = os.fork(), chance.randrange(200), 2 * chance.random() ** 3
        if not child:
            deep(depth, seconds)
            os._exit(0)
        os.waitpid(child, 0)


def main():
    uid, folder, kind, seed = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    if os.getuid() != uid:
        drop(uid)
    if kind == "execs":
        exec_on(seed)
    elif kind == "ends":
        end_all_the_time(seed)
    elif kind == "late":
        load_late(folder)
    elif kind == "source":
        stand_in_a_source(folder)
    else:
        stand_in_a_library(folder, kind)


main()
