"""What `llm-watch -print-…` prints: units and manifests that parse, alerts and panels whose metrics are there."""

import configparser
import glob
import json
import os
import re
import shutil
import subprocess

import pytest

from gdbext import package
from gdbext.watch import box, events, metrics, units
from gdbext.watch.model import RankLook

WHATS = ("unit", "compose", "sidecar", "alerts", "dashboard")
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "examples")


def parsed(text, tmp_path):
    """A text of YAML as JSON, by an environment that has PyYAML."""
    for python in glob.glob(os.path.expanduser("~/.cache/gdbext/envs/*/bin/python")):
        code = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.read())))"
        done = subprocess.run([python, "-c", code], input=text, capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert "No module named 'yaml'" in done.stderr, done.stderr
    pytest.skip("PyYAML is in no environment here")


@pytest.mark.parametrize("what", ("alerts", "dashboard"))
def test_every_metric_that_is_named_is_there(what):
    named = units.metrics_named(units.text(what))
    assert named <= metrics.names() and len(named) >= 8
    labels = {label for family in metrics.FAMILIES for label in family.labels} | {"instance"}
    assert set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", units.text(what))) <= labels


def test_every_kind_of_trouble_has_an_alert(tmp_path):
    (group,) = parsed(units.text("alerts"), tmp_path)["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert {"EngineStalled", "EngineRankLate", "EngineRequestWithoutProgress", "EnginePreemptionStorm"} <= set(rules)
    assert all(rule["expr"].count("(") == rule["expr"].count(")") and rule["annotations"]["summary"] for rule in rules.values())


def test_alerts_match_one_engine_of_one_instance_and_fire_for_what_is_gone(tmp_path):
    (group,) = parsed(units.text("alerts"), tmp_path)["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    on = {found for rule in rules.values() for found in re.findall(r"\b(?:on|ignoring) \(([^)]*)\)", rule["expr"])}
    assert on == {"job, instance, engine"}
    assert "absent(gdbext_watch_look_timestamp_seconds)" in rules["GdbextWatchSilent"]["expr"]
    assert rules["EngineRankGone"]["for"] == "30s" and 'kind="died"' in rules["EngineRankDied"]["expr"]
    traced = [RankLook("TP0", 7, engine="e", state=state) for state in ("t", "T")]
    assert [family.read(one) for family in metrics.RANKS if family.name == "rank_stopped" for one in traced] == [0, 1]


def test_nothing_freezes_the_watch_or_evicts_its_pod(tmp_path):
    """A quota of CPU stops it where it stands, which may be while it holds a process."""
    assert not re.search(r"^\s*(CPUQuota|cpus:|cpu_quota)", units.text("unit") + units.text("compose"), re.M)
    pod = parsed(units.text("sidecar"), tmp_path)["spec"]
    watch = next(one for one in pod["containers"] if one["name"] == "gdbext-watch")
    assert "cpu" not in watch["resources"]["limits"] and watch["resources"]["requests"]["cpu"]
    volume = next(one for one in pod["volumes"] if one["name"] == "gdbext-boxes")["emptyDir"]
    assert 2 * box.MOST_BYTES + 2 * events.FILE_BYTES < int(volume["sizeLimit"].replace("Gi", "")) << 30
    assert "0.0.0.0:9477" in parsed(units.text("compose"), tmp_path)["services"]["gdbext-watch"]["command"]


@pytest.mark.parametrize(
    "root, archive, lines",
    [
        ("/opt/a b/gdbext.pyz", True, ['ExecStart=/usr/bin/python3 "/opt/a b/gdbext.pyz" watch all']),
        ("/srv/100%/gdbext.pyz", True, ["ExecStart=/usr/bin/python3 /srv/100%%/gdbext.pyz watch all"]),
        ("/src/gdbext", False, ["WorkingDirectory=/src/gdbext", "ExecStart=/usr/bin/python3 -m gdbext watch all"]),
        ("/usr/lib/python3/site-packages", False, ["Type=exec", "ExecStart=/usr/bin/python3 -m gdbext watch all"]),
    ],
)
def test_the_unit_starts_the_pack_that_printed_it(root, archive, lines, monkeypatch):
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    monkeypatch.setattr(package, "ROOT", root)
    monkeypatch.setattr(package, "in_archive", lambda: archive)
    found = units.text("unit").splitlines()
    at = next(number for number, line in enumerate(found) if line.startswith("ExecStart="))
    assert [line[: len(wanted)] for line, wanted in zip(found[at + 1 - len(lines) : at + 1], lines)] == lines


def test_the_dashboard_has_a_panel_for_each_number_of_engines_and_ranks():
    named = units.metrics_named(units.text("dashboard"))
    families = (*metrics.ENGINES, *metrics.RANKS)
    missing = {f.name for f in families if not any(one.startswith(f"gdbext_{f.name}") for one in named)}
    assert missing <= {"engine_owes_work", "rank_steps"}
    panels = json.loads(units.text("dashboard"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) and all(panel["targets"] for panel in panels)


def test_the_sidecar_may_trace_and_nothing_else(tmp_path):
    pod = parsed(units.text("sidecar"), tmp_path)["spec"]
    watch = next(one for one in pod["containers"] if one["name"] == "gdbext-watch")
    may = watch["securityContext"]
    assert pod["shareProcessNamespace"] is True and may["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert may["readOnlyRootFilesystem"] and not may["allowPrivilegeEscalation"] and "privileged" not in may
    assert watch["resources"]["limits"]["memory"] == "256Mi"
    mounted = {one["name"] for one in watch["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]} and units.FOLDER in {
        one["mountPath"] for one in watch["volumeMounts"]
    }


def test_the_compose_service_may_trace_and_nothing_else(tmp_path):
    watch = parsed(units.text("compose"), tmp_path)["services"]["gdbext-watch"]
    assert (watch["cap_drop"], watch["cap_add"], watch["read_only"]) == (["ALL"], ["SYS_PTRACE"], True)
    assert watch["pid"] == "service:engine" and watch["mem_limit"] == "256m" and "privileged" not in watch


def test_systemd_takes_the_unit(tmp_path):
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string(units.text("unit"))
    assert unit["Service"]["CapabilityBoundingSet"] == "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"
    assert unit["Service"]["NoNewPrivileges"] == "yes" and unit["Service"]["ExecStart"].split()[1:4] == ["-m", "gdbext", "watch"]
    if shutil.which("systemd-analyze"):
        path = tmp_path / "gdbext-watch.service"
        path.write_text(units.text("unit"))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True)
        assert done.returncode == 0 and "Unknown" not in done.stderr, done.stderr


@pytest.mark.parametrize("name, what", [("grafana-dashboard.json", "dashboard"), ("prometheus-alerts.yml", "alerts")])
def test_the_examples_are_what_is_printed(name, what):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as f:
        assert f.read() == units.text(what), f"gdbext watch -print-{what} > docs/examples/{name}"


@pytest.mark.parametrize("what", WHATS)
def test_nothing_is_left_to_fill_in(what):
    assert not re.search(r"\{(name|python|words|command|folder|port)\}", units.text(what)) and units.text(what).endswith("\n")
