"""An arm64 machine of qemu's: a kernel and an initramfs that is all there is of it, a CPython, this pack and the subjects. A
script runs as its first process; what it says stands on its console."""

import os
import subprocess

SKIPPED = ("usr/lib/debug", "usr/share", "usr/include", "usr/src", "usr/lib/python3/", "usr/lib/aarch64-linux-gnu/gconv")
SKIPPED_IN = ("/test/", "/config-3.", "/__pycache__/")


class Archive:
    """A cpio archive as Linux takes it for an initramfs (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self, path):
        self.file, self.number = open(path, "wb"), 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.number += 1
        fields = (self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name.encode()) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

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
                elif name in names and not name.endswith((".a", ".pyc")) and not any(s in path for s in SKIPPED_IN):
                    with open(path, "rb") as f:
                        self.add(prefix + inside + name, 0o100755, f.read())

    def close(self):
        self.add("TRAILER!!!", 0)
        self.file.close()


def boot(qemu, kernel, python, root, script, folder, seconds):
    """Runs `script` on a machine with the interpreter whose start script is `python` and the pack of the checkout `root`: what it
    wrote on its console. It is ended after so many seconds."""
    image = os.path.join(folder, "initramfs")
    archive = Archive(image)
    for name in ("dev", "proc", "sys", "tmp", "root"):
        archive.add(name, 0o40755)
    archive.add("dev/console", 0o20600, device=(5, 1))
    archive.add_tree(os.path.join(os.path.dirname(os.path.dirname(python)), "root"))
    archive.add("repo", 0o40755)
    archive.add_tree(os.path.join(root, "gdbext"), "repo/gdbext/")
    archive.add_tree(os.path.join(root, "tests", "gdb", "subjects"), "repo/subjects/")
    with open(script, "rb") as f:
        archive.add("script.py", 0o100755, f.read())
    archive.close()
    words = [qemu, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-m", "2048", "-nographic", "-nodefaults", "-serial", "stdio"]
    words += ["-no-reboot", "-kernel", kernel, "-initrd", image, "-append"]
    words += [f"console=ttyAMA0 quiet rdinit=/usr/bin/{os.path.basename(python)} -- -S -u /script.py"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as machine:
        try:
            said, _ = machine.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            machine.kill()
            said, _ = machine.communicate()
    return said.decode("utf-8", "replace")
