"""How `gdbext watch` runs beside an engine: a unit of systemd, a service of docker compose, a sidecar of Kubernetes, rules for
Prometheus' alerts, a dashboard for Grafana. `llm-watch -print-…` prints them.

What each may do was tried (tests/unit/test_watch_units.py, docs/pods.md): to read a process of its own user the watch needs
CAP_SYS_PTRACE alone, of another user CAP_DAC_READ_SEARCH too. It needs no network, no home and no file but its folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from .. import package

PORT = 9477
FOLDER = "/var/lib/gdbext"
WORDS = f"watch all -o {FOLDER} -events {FOLDER}/events.jsonl -metrics"

UNIT = """\
# {name}: gdbext watch -print-unit > /etc/systemd/system/gdbext-watch.service
# It may: read /proc of every process, and stop one for the milliseconds of a copy (CAP_SYS_PTRACE); read files of other users
# (CAP_DAC_READ_SEARCH), since engines run as theirs. It may not: write outside {folder}, use the network beyond this
# machine, gain a privilege, load a module, or use more than 256 MiB. Others' work goes first; there is no
# CPUQuota, which could freeze the watch while it holds a process stopped.
[Unit]
Description=gdbext watch: the last minutes of inference engines, and why they hang
Documentation=man:gdbext(1)
After=network.target

[Service]
Type=exec
{start} {words} 127.0.0.1:{port}
Restart=always
RestartSec=5
TimeoutStopSec=30
StateDirectory=gdbext
StateDirectoryMode=0700
Environment=HOME={folder} PYTHONDONTWRITEBYTECODE=1
Nice=5
OOMScoreAdjust=500
CPUWeight=20
MemoryMax=256M
TasksMax=64
CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=no
PrivateDevices=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectClock=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
IPAddressDeny=any
IPAddressAllow=localhost
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
UMask=0077

[Install]
WantedBy=multi-user.target
"""

COMPOSE = """\
# gdbext watch -print-compose > gdbext.yml; docker compose -f compose.yml -f gdbext.yml up
# `engine` is the name of the engine's service. The watch shares its pid namespace, so it sees no other container's processes.
# It may: read and, for milliseconds, stop processes of that container (SYS_PTRACE). Where the engine is no root, add
# DAC_READ_SEARCH. It may not: write outside its volume and /tmp, gain a privilege, use another capability.
# Prometheus finds it at engine:{port}, in the engine's network. When the engine's first process ends, the kernel ends all that
# share its pid namespace: of the death of that process itself there is no box, and events.jsonl ends there.
# No `cpus`: a quota could freeze the watch while it holds a process stopped.
services:
  gdbext-watch:
    image: python:3-slim
    command: ["python3", "/gdbext/gdbext.pyz", {command}, "0.0.0.0:{port}"]
    pid: "service:engine"
    network_mode: "service:engine"
    depends_on: [engine]
    user: "0:0"
    cap_drop: [ALL]
    cap_add: [SYS_PTRACE]
    security_opt: ["no-new-privileges:true"]
    read_only: true
    tmpfs: ["/tmp:size=16m"]
    environment: {{HOME: /tmp, PYTHONDONTWRITEBYTECODE: "1"}}
    mem_limit: 256m
    cpu_shares: 128
    pids_limit: 64
    restart: unless-stopped
    stop_grace_period: 30s
    volumes:
      - ./gdbext.pyz:/gdbext/gdbext.pyz:ro
      - gdbext-boxes:{folder}
volumes:
  gdbext-boxes: {{}}
"""

SIDECAR = """\
# gdbext watch -print-sidecar: a pod of an engine with the watch beside it. Take over what is not the engine's.
# shareProcessNamespace lets the watch see the engine's processes, and every container of the pod see all others'.
# It may: read and, for milliseconds, stop processes of this pod (SYS_PTRACE). It may not: see another pod, write outside its
# volume, gain a privilege, use another capability. Where the engine's runAsUser is not 0, add DAC_READ_SEARCH.
# Pod security "restricted" and "baseline" refuse SYS_PTRACE: there put `gdbext allow` into the engine's image, give the watch
# the engine's runAsUser and drop `add` (docs/pods.md).
apiVersion: v1
kind: Pod
metadata:
  name: engine-with-gdbext
spec:
  shareProcessNamespace: true
  containers:
    - name: engine
      image: your/engine
    - name: gdbext-watch
      image: your/image-with-gdbext  # FROM python:3-slim, RUN pip install gdbext
      command: ["gdbext", {command}, "0.0.0.0:{port}"]
      env:
        - {{name: HOME, value: /tmp}}
        - {{name: PYTHONDONTWRITEBYTECODE, value: "1"}}
      ports:
        - {{name: metrics, containerPort: {port}}}
      securityContext:
        runAsUser: 0
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          add: [SYS_PTRACE]
        seccompProfile: {{type: RuntimeDefault}}
      resources:
        requests: {{cpu: 20m, memory: 64Mi}}
        limits: {{memory: 256Mi}}  # 40 MiB at rest, 130 at a verdict with snapshots; a cpu limit could freeze it at work
      volumeMounts:
        - {{name: gdbext-boxes, mountPath: {folder}}}
        - {{name: gdbext-tmp, mountPath: /tmp}}
  volumes:
    - name: gdbext-boxes
      emptyDir: {{sizeLimit: 2Gi}}  # beyond it the pod is evicted: a watch keeps at most 512 MiB of boxes, and 10
    - name: gdbext-tmp
      emptyDir: {{medium: Memory, sizeLimit: 16Mi}}
"""

ALERTS = """\
# gdbext watch -print-alerts > gdbext-alerts.yml: rule_files of Prometheus
groups:
  - name: gdbext
    rules:
      - alert: EngineStalled
        expr: gdbext_engine_hung == 1 or gdbext_engine_stood_seconds > gdbext_engine_limit_seconds
        for: 30s
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.engine }} has work and makes no progress"
          description: "The verdict is in gdbext_engine_verdict, the box in the watch's folder: gdbext hang BOX"
      - alert: EngineRankLate
        expr: gdbext_rank_lag_steps > 0 and on (job, instance, engine) gdbext_engine_stood_seconds > 10
        for: 1m
        labels: {severity: warn}
        annotations:
          summary: "{{ $labels.rank }} of {{ $labels.engine }} is {{ $value }} steps behind, and the engine waits"
      - alert: EngineRequestWithoutProgress
        expr: gdbext_engine_oldest_stood_seconds > 120 and on (job, instance, engine) rate(gdbext_engine_tokens_total[2m]) > 0
        for: 1m
        labels: {severity: warn}
        annotations:
          summary: "A request of {{ $labels.engine }} has not moved for {{ $value | humanizeDuration }} while others do"
      - alert: EnginePreemptionStorm
        expr: >-
          rate(gdbext_engine_preemptions_total[5m]) > rate(gdbext_engine_steps_total[5m]) / 10
          and rate(gdbext_engine_preemptions_total[5m]) > 0.2
        for: 5m
        labels: {severity: warn}
        annotations:
          summary: "{{ $labels.engine }} preempts {{ $value }} requests a second: its KV cache is too small for its load"
      - alert: EngineRankGone
        expr: gdbext_rank_up == 0 or gdbext_rank_stopped == 1
        for: 30s
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.rank }} of {{ $labels.engine }} has ended or is stopped"
      - alert: EngineRankDied
        expr: increase(gdbext_watch_events_total{kind="died"}[5m]) > 0
        labels: {severity: page}
        annotations:
          summary: "A process of an engine that {{ $labels.instance }} watches has died"
      - alert: GdbextWatchSilent
        expr: time() - gdbext_watch_look_timestamp_seconds > 60 or absent(gdbext_watch_look_timestamp_seconds)
        for: 1m
        labels: {severity: warn}
        annotations:
          summary: "The watch on {{ $labels.instance }} has not looked for a minute"
"""

WHATS = {
    "unit": "a unit of systemd",
    "compose": "a service of docker compose",
    "sidecar": "a sidecar of Kubernetes",
    "alerts": "rules for Prometheus' alerts",
    "dashboard": "a dashboard for Grafana",
}


def text(what: str) -> str:
    """The text of `unit`, `compose`, `sidecar`, `alerts` or `dashboard`."""
    if what == "dashboard":
        return json.dumps(dashboard(), indent=1) + "\n"
    if what == "alerts":
        return ALERTS
    command = ", ".join(f'"{word}"' for word in WORDS.split())
    known = {"start": _start(), "words": WORDS, "command": command, "folder": FOLDER, "port": PORT}
    template = {"unit": UNIT, "compose": COMPOSE, "sidecar": SIDECAR}[what]
    return template.format(name="gdbext-watch.service", **known)


def _start() -> str:
    """The lines of a unit that start this pack; quoted as of systemd.service(5), "Command lines"."""
    words = [sys.executable, package.ROOT] if package.in_archive() else [sys.executable, "-m", "gdbext"]
    quoted = [re.sub(r"[\\\"]", r"\\\g<0>", one).replace("%", "%%").replace("$", "$$") for one in words]
    line = "ExecStart=" + " ".join(one if re.fullmatch(r"[\w./+$%-]+", one) else f'"{one}"' for one in quoted)
    installed = package.in_archive() or os.path.basename(package.ROOT) in ("site-packages", "dist-packages")
    return line if installed else f"WorkingDirectory={package.ROOT.replace('%', '%%')}\n{line}"


PANELS = (  # title, expressions with their legends, unit of Grafana
    ("Requests", (("engine_requests_running", "{{engine}} running"), ("engine_requests_waiting", "{{engine}} waiting")), "short"),
    ("Tokens a second", (("rate(engine_tokens)", "{{engine}}"),), "short"),
    ("Steps a second", (("rate(engine_steps)", "{{engine}}"),), "short"),
    ("KV cache in use", (("engine_kv_used_ratio", "{{engine}}"),), "percentunit"),
    (
        "Without progress while work is owed",
        (("engine_stood_seconds", "{{engine}}"), ("engine_limit_seconds", "{{engine}} limit")),
        "s",
    ),
    ("Oldest request that does not move", (("engine_oldest_stood_seconds", "{{engine}}"),), "s"),
    ("Preemptions a second", (("rate(engine_preemptions)", "{{engine}}"),), "short"),
    ("Verdict", (("engine_verdict", "{{engine}}: {{verdict}}"), ("engine_hung", "{{engine}} hung")), "short"),
    ("Lag of ranks, in steps", (("rank_lag_steps", "{{engine}} {{rank}}"),), "short"),
    ("Main thread in one place", (("rank_stood_seconds", "{{engine}} {{rank}}"),), "s"),
    ("CPU of ranks", (("rank_cpu_ratio", "{{engine}} {{rank}}"),), "percentunit"),
    ("Resident memory of ranks", (("rank_resident_bytes", "{{engine}} {{rank}}"),), "bytes"),
    ("Memory of ranks that keeps growing", (("rank_memory_growth_bytes_per_second", "{{engine}} {{rank}} {{kind}}"),), "Bps"),
    ("Ranks there", (("rank_up", "{{engine}} {{rank}}"), ("rank_stopped", "{{engine}} {{rank}} stopped")), "short"),
    ("The watch: CPU", (("rate(watch_cpu_seconds)", "{{instance}}"),), "percentunit"),
    ("The watch: memory", (("watch_resident_bytes", "{{instance}}"), ("watch_history_bytes", "{{instance}} history")), "bytes"),
    ("The watch: what happened", (("rate(watch_events)", "{{kind}}"),), "short"),
)


def _expression(short: str) -> str:
    counter = re.fullmatch(r"rate\((\w+)\)", short)
    return f"rate(gdbext_{counter[1]}_total[$__rate_interval])" if counter else f"gdbext_{short}"


def dashboard() -> dict[str, Any]:
    """A dashboard for Grafana 9 and newer, to be imported; it asks for the data source."""
    panels = []
    for number, (title, targets, unit) in enumerate(PANELS):
        panels.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": title,
                "datasource": {"type": "prometheus", "uid": "${source}"},
                "gridPos": {"h": 7, "w": 12, "x": 12 * (number % 2), "y": 7 * (number // 2)},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + i), "expr": _expression(expression), "legendFormat": legend}
                    for i, (expression, legend) in enumerate(targets)
                ],
            }
        )
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "Inference engines (gdbext watch)",
        "uid": "gdbext-watch",
        "schemaVersion": 38,
        "tags": ["gdbext", "inference"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [source]},
        "panels": panels,
    }


def metrics_named(text: str) -> set[str]:
    """The names of the metrics that a text names."""
    return set(re.findall(r"\bgdbext_[a-z_]+", text))
