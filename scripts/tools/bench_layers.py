"""scripts/bench --layers: what a step that `llm-layers -save` records takes, on real engines with requests in flight, and how
long the ranks stand still for it: from the attach to the detach, in which nothing but the steps runs."""

import json
import os
import subprocess
import tempfile

from .engines import START
from .environments import cache_folder
from .say import Failed, say

HEAD = "| engine | steps | calls | a rank's step takes ms | of each call ms | of it read and hashed ms | stood still in all s |"


def main(gdb_line, rounds, only=None):
    """A row for each engine; `gdb_line(*commands)`: gdb's command line. Two ranks are recorded at once."""
    say("\n" + HEAD + "\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in only or START:
        with START[name](tp=2) as engine, tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
            engine.wait_ready()
            pids = sorted(pid for pid, title in engine.titles().items() if title[-4:] in ("_TP0", "_TP1"))
            record = f"llm-layers -json -save -force -o {os.path.join(folder, 'step.jsonl')}"
            commands = [f"llm-attach {' '.join(map(str, pids))}", *[record] * rounds, "llm-detach -json"]
            env = {**os.environ, "GDBEXT_DATA": os.path.join(cache_folder(), "test-data")}
            done = subprocess.run(
                gdb_line(*commands), stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=900, check=False
            )
            said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            ranks = [rank for answer in said for rank in answer.get("ranks", ()) if rank["calls"]]
            if not ranks:
                raise Failed(f"bench: no step of {name} was recorded:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            still = [pause["seconds"] for answer in said for pause in answer.get("pauses", ())]
            columns = (
                [1000 * rank["seconds"] for rank in ranks],
                [1000 * rank["seconds"] / rank["calls"] for rank in ranks],
                [1000 * rank["reading"] / rank["calls"] for rank in ranks],
                still,
            )
            cells = [f"{min(column):.3g} to {max(column):.3g}" if column else "-" for column in columns]
            say(f"| {name} | {rounds} | {max(rank['calls'] for rank in ranks)} | {' | '.join(cells)} |")
