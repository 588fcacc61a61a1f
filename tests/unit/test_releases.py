"""What a release is made of: its notes, and workflows whose actions cannot change under it."""

import glob
import os
import re

import pytest
from harness.gdb_run import ROOT
from tools import release_notes
from tools.say import Failed

CHANGES = "# Changes\n\n## 0.4.0 (not released)\n\n* next\n\n## 0.3.0\n\n### Added\n\n* this\n\n## 0.2.0\n\n"


def test_the_notes_are_the_section_of_the_release():
    assert release_notes.notes(CHANGES, "v0.3.0", "0.3.0") == "### Added\n\n* this\n"


@pytest.mark.parametrize(
    "tag, version, why",
    [
        ("v0.3.1", "0.3.0", "they must agree"),
        ("v0.5.0", "0.5.0", "no section 0.5.0"),
        ("v0.4.0", "0.4.0", "not released"),
        ("v0.2.0", "0.2.0", "is empty"),
    ],
)
def test_a_tag_without_notes_is_refused(tag, version, why):
    with pytest.raises(Failed, match=why):
        release_notes.notes(CHANGES, tag, version)


def test_every_action_is_pinned_by_its_hash_and_says_its_version():
    used = []
    for path in glob.glob(os.path.join(ROOT, ".github", "workflows", "*.yml")):
        with open(path) as f:
            used += re.findall(r"uses: (.*)", f.read())
    assert len(used) > 8
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []
    assert len(set(used)) == len({line.partition("@")[0] for line in used}), "one version of each"


def test_every_script_that_a_workflow_runs_is_there():
    scripts = set()
    for path in glob.glob(os.path.join(ROOT, ".github", "workflows", "*.yml")):
        with open(path) as f:
            scripts |= set(re.findall(r"scripts/[\w-]+", f.read())) - {"scripts/tools", "scripts/get-"}
    assert len(scripts) >= 4
    assert [name for name in scripts if not os.access(os.path.join(ROOT, name), os.X_OK)] == []
