"""What a release is made of: its notes, and workflows whose actions cannot change under it."""

import glob
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest
from harness.gdb_run import ROOT
from tools import news, release, release_notes
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


def test_a_tag_is_refused_while_a_change_is_in_no_release():
    with pytest.raises(Failed, match="late.fixed.md is in no release"):
        release_notes.notes(CHANGES, "v0.3.0", "0.3.0", ["docs/news/late.fixed.md"])


def written(folder, **files):
    for name, text in files.items():
        (folder / f"{name.replace('__', '.')}.md").write_text(text)
    return str(folder)


def test_a_release_joins_the_files_of_its_changes(tmp_path):
    folder = written(tmp_path, a__fixed="a fault\nof two lines\n", b__added="small", c__added="**Large.** A thing.")
    text = news.released("# Changes\n\nWords.\n\n## 0.3.0\n\n* old\n", "0.4.0", "1 December 2026", folder)
    head = "# Changes\n\nWords.\n\n## 0.4.0 (1 December 2026)\n\n### Added\n\n* **Large.** A thing.\n* small\n\n"
    assert text == head + "### Fixed\n\n* a fault of two lines\n\n## 0.3.0\n\n* old\n"
    assert release_notes.notes(text, "v0.4.0", "0.4.0").startswith("### Added")


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("a", "words", "NAME.KIND.md"),
        ("a__other", "words", "NAME.KIND.md"),
        ("a__fixed", "* words", "one paragraph"),
        ("a__fixed", "one\n\ntwo", "one paragraph"),
        ("a__fixed", "", "one paragraph"),
        ("a__fixed", "word " * 61, "61 words"),
    ],
)
def test_a_file_of_news_that_is_none_is_refused(tmp_path, name, text, why):
    with pytest.raises(Failed, match=why):
        news.section("Unreleased", written(tmp_path, **{name: text}))


def test_the_files_of_news_can_be_joined_and_are_no_section_yet():
    assert news.section("Unreleased").startswith("## Unreleased\n")
    with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as f:
        assert "## Unreleased" not in f.read(), "docs/news has a file for each change: scripts/news --help"


def test_the_newest_release_has_its_tag():
    git = ["git", "-C", ROOT, "tag"]
    tags = subprocess.run(git, capture_output=True, text=True, check=False).stdout.split()
    if not tags:
        pytest.skip("this checkout has no tags")
    with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as f:
        newest = re.search(r"^## (\S+)", f.read(), re.M)[1]
    assert f"v{newest}" in tags or not news.files(), f"git tag v{newest} at the commit that released it"


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


def long_description(**env):
    words = [sys.executable, "setup.py", "--long-description"]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout


@pytest.mark.sources
def test_an_index_gets_readme_with_whole_addresses():
    pytest.importorskip("setuptools")
    said, links = long_description(GDBEXT_HOME_URL="https://example.org/x/"), r"\]\(([^)\s]+)\)"
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        ours = re.findall(links, f.read())
    theirs = re.findall(links, said)
    version = re.search(r"/blob/v([\d.]+)/docs/index.md", said)[1]
    assert len(ours) > 15 and len(theirs) == len(ours)
    for own, whole in zip(ours, theirs):
        kind = "raw" if own.endswith(".svg") else "blob"
        assert whole == (own if ":" in own else f"https://example.org/x/{kind}/v{version}/{own}")


def test_the_index_of_a_rehearsal_serves_each_file(tmp_path):
    for name in ("gdbext-0.1.0.tar.gz", "gdbext-0.2.0-py3-none-any.whl", "gdbext.pyz"):
        (tmp_path / name).write_text(name)
    with release.index(str(tmp_path)) as address:
        with urllib.request.urlopen(f"{address}gdbext/") as page:
            links = re.findall('href="(.+?)"', page.read().decode())
        files = []
        for link in links:
            with urllib.request.urlopen(urllib.parse.urljoin(f"{address}gdbext/", link)) as file:
                files.append(file.read().decode())
    assert files == ["gdbext-0.1.0.tar.gz", "gdbext-0.2.0-py3-none-any.whl"]


def test_a_tree_becomes_the_release_after_the_last(tmp_path):
    (tmp_path / "gdbext").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "make-commands-reference").write_text("")
    for before, after in (("0.3.0", "0.4.0"), ("0.4.1", "0.4.1")):
        (tmp_path / "gdbext" / "__init__.py").write_text(f'__version__ = "{before}"\n')
        assert release.as_next(str(tmp_path), "0.3.0") == after == release.version_in(str(tmp_path))
