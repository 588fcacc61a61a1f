"""The one line that says which right is missing: what stands in the way first is named first."""

import pytest

from gdbext.access import permission


class Rights(permission.Rights):
    def __init__(self, **changed):
        self.euid, self.scope, self.user = 1000, "0", 1000
        self.may = self.filtered = self.nested = self.hidden = False
        self.__dict__.update(changed)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({}, "run this with sudo"),
        ({"scope": "1"}, "sudo sysctl kernel.yama.ptrace_scope=0"),
        ({"scope": "1", "euid": 0}, "--cap-add=SYS_PTRACE"),
        ({"scope": "2", "euid": 0}, "sudo sysctl kernel.yama.ptrace_scope=0"),
        ({"scope": "3", "euid": 0}, "until a reboot"),
        ({"scope": "1", "user": 0}, "it belongs to user 0"),
        ({"euid": 0, "user": 5}, "--cap-add=SYS_PTRACE"),
        ({"euid": 0, "may": True, "filtered": True}, "seccomp=unconfined"),
        ({"euid": 0, "filtered": True}, "--cap-add=SYS_PTRACE"),  # docker's default: the filter comes with the lacking capability
        ({"hidden": True}, "hides its memory"),
        ({"nested": True, "user": 65534}, "user namespace of its own"),
        ({"nested": True, "may": True, "filtered": True}, "user namespace of its own"),
        ({"user": None}, "run this with sudo"),
        ({"euid": 0, "may": True, "reads": False, "user": 5}, "DAC_READ_SEARCH"),
        ({"euid": 0, "may": False, "reads": False, "user": 5}, "--cap-add=SYS_PTRACE"),
    ],
)
def test_the_first_thing_in_the_way_is_named(changed, said):
    assert said in permission.hint(Rights(**changed))


def made(folder, status="CapEff:\t0000000000080000\nSeccomp:\t2\n", uid_map="0 0 4294967295"):
    (folder / "self").mkdir()
    (folder / "self" / "status").write_text(status)
    (folder / "self" / "uid_map").write_text(uid_map)
    return permission.Rights(7, str(folder))


def test_what_proc_says_is_read(tmp_path):
    found = made(tmp_path)
    assert found.may and found.filtered and not found.nested and found.scope == "0" and found.user is None and not found.hidden


LOWER = "run: sudo sysctl kernel.yama.ptrace_scope=0"


@pytest.mark.parametrize(
    "euid, asked",
    [
        (1000, {"0": "run this with sudo, or in a container", "1": LOWER, "2": LOWER, "3": "until a reboot"}),
        (0, {"0": permission.ADD, "1": permission.ADD, "2": LOWER, "3": "until a reboot"}),
    ],
)
def test_yamas_setting_is_read(tmp_path, monkeypatch, euid, asked):
    """A FAKE of /proc/sys/kernel/yama, which a kernel may lack and few may set. Values: Yama.rst of the kernel's admin
    guide."""
    monkeypatch.setattr(permission.os, "geteuid", lambda: euid)
    monkeypatch.setattr(permission, "_owner", lambda path: euid)
    made(tmp_path, "CapEff:\t0000000000000000\nSeccomp:\t0\n")
    (tmp_path / "sys" / "kernel" / "yama").mkdir(parents=True)
    for scope, said in asked.items():
        (tmp_path / "sys" / "kernel" / "yama" / "ptrace_scope").write_text(scope + "\n")
        rights = permission.Rights(7, str(tmp_path))
        assert rights.scope == scope and said in permission.hint(rights)


@pytest.mark.parametrize("uid_map, nested", [("0 0 4294967295", False), ("0 100000 65536\n", True), ("", True)])
def test_a_user_namespace_is_seen_by_its_map(tmp_path, uid_map, nested):
    assert made(tmp_path, "", uid_map).nested is nested


def test_a_kernel_without_user_namespaces(tmp_path):
    assert not permission.Rights(7, str(tmp_path)).nested
