"""An arm64 machine of qemu's: a kernel and an initramfs that is all there is of it, CPythons, this pack and the subjects. Its
first process, tests/arm/guest/first.py, runs the scripts beside it; what they tell stands on its console."""

import json
import os
import re
import subprocess

import pytest

SKIPPED = ("usr/lib/debug", "usr/share", "usr/include", "usr/src", "usr/lib/python3/", "usr/lib/aarch64-linux-gnu/gconv")
SKIPPED_IN = ("/test/", "/config-3.", "/__pycache__/")
DEBUG_BUILD = re.compile(r"python3\.\d+d($|\.so|-)|\.cpython-3\d+d-")


class Archive:
    """A cpio archive as Linux takes it for an initramfs (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self, path):
        self.file, self.number = open(path, "wb"), 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.number += 1
        fields = (self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name.encode()) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

    def add_folders(self, *names):
        for name in names:
            self.add(name, 0o40755)

    def add_tree(self, folder, prefix=""):
        for where, folders, names in os.walk(folder):
            inside = "" if where == folder else os.path.relpath(where, folder) + "/"
            if inside.startswith(SKIPPED):
                folders[:] = []
                continue
            if inside or prefix:
                self.add((prefix + inside).rstrip("/"), 0o40755)
            for name in folders + names:
                path = os.path.join(where, name)
                if os.path.islink(path):
                    self.add(prefix + inside + name, 0o120777, os.readlink(path).encode())
                elif name in names and not _needless(path):
                    with open(path, "rb") as f:
                        self.add(prefix + inside + name, 0o100755, f.read())

    def close(self):
        self.add("TRAILER!!!", 0)
        self.file.close()


def _needless(path):
    return path.endswith((".a", ".pyc")) or DEBUG_BUILD.search(path) or any(s in path for s in SKIPPED_IN)


def told(plan, root, folder, seconds):
    """Runs scripts of tests/arm/guest on one machine with the pack of the checkout `root`. `plan`: {minor: (start script of its
    interpreter, folder of a gdb for it or "", scripts)}. -> {minor: {name: what it told}}, under "machine" what the first process
    told, and as "text" the end of all that it wrote on its console. It is ended after so many seconds."""
    qemu, kernel = os.environ.get("GDBEXT_TEST_ARM_SYSTEM"), os.environ.get("GDBEXT_TEST_ARM_KERNEL")
    if not qemu or not kernel:
        pytest.skip("no qemu for a whole arm64 machine, or no kernel for it")
    image = os.path.join(folder, "initramfs")
    first = _write(image, plan, root)
    text, found = _boot(qemu, kernel, image, first, seconds), {}
    os.unlink(image)
    for line in text.splitlines():
        if line.startswith("@@ "):
            for which, facts in json.loads(line[3:]).items():
                found.setdefault(which, {}).update(facts)
    assert "machine" in found, text[-2000:]
    found["text"] = text[-2000:]
    return found


def _write(image, plan, root):
    """Each interpreter has its own root, /roots/MINOR. -> the path of the last one, whose root is the first process's too."""
    archive = Archive(image)
    archive.add_folders("dev", "proc", "sys", "roots", "repo")
    archive.add("dev/console", 0o20600, device=(5, 1))
    scripts = {}
    for minor, (python, debugger, names) in plan.items():
        inside = f"roots/{minor}/"
        archive.add_tree(os.path.join(os.path.dirname(os.path.dirname(python)), "root"), inside)
        archive.add_folders(*(inside + name for name in ("dev", "proc", "sys", "tmp", "root", "repo")))
        if debugger:
            archive.add_tree(debugger, inside + "gdb/")
        scripts[minor] = [f"/usr/bin/{os.path.basename(python)}", names]
    for name in ("bin", "lib", "lib64", "usr"):
        archive.add(name, 0o120777, f"roots/{minor}/{name}".encode())
    archive.add("plan", 0o100644, json.dumps(scripts).encode())
    archive.add_tree(os.path.join(root, "gdbext"), "repo/gdbext/")
    archive.add_tree(os.path.join(root, "tests", "gdb", "subjects"), "repo/subjects/")
    archive.add_tree(os.path.join(root, "tests", "arm", "guest"), "repo/guest/")
    archive.close()
    return scripts[minor][0]


def _boot(qemu, kernel, image, first, seconds):
    """What a machine writes on its console until it is off."""
    words = [qemu, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-m", "3072", "-nographic", "-nodefaults", "-serial", "stdio"]
    words += ["-no-reboot", "-kernel", kernel, "-initrd", image]
    words += ["-append", f"console=ttyAMA0 quiet rdinit={first} -- -S -u /repo/guest/first.py"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as machine:
        try:
            said, _ = machine.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            machine.kill()
            said, _ = machine.communicate()
    return said.decode("utf-8", "replace")
