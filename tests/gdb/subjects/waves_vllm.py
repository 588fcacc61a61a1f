"""waves_vllm.py SEED [dense]: a STAND-IN of vLLM 0.32's data-parallel engine core, of their coordinator and of a server at its
start, one in each thread, under the names of the real classes' attributes. Prints what each has of itself, as JSON."""

import enum
import json
import random
import sys
import threading
import types

for name in ("vllm", "vllm.version", "vllm.v1"):
    sys.modules[name] = types.ModuleType(name)
DRAW = random.Random(int(sys.argv[1]))
READY, OVER = threading.Barrier(4), threading.Event()


class CoreEngineState(enum.Enum):
    NEW = enum.auto()
    CONNECTED = enum.auto()
    READY = enum.auto()


class CoreEngine:
    def __init__(self, index, local):
        self.local, self.identity = local, index.to_bytes(2, "little")
        self.state = DRAW.choice(list(CoreEngineState))


class DPEngineCoreProc:
    def __init__(self):
        self.dp_size = DRAW.randrange(2, 300)
        self.dp_rank, self.current_wave = DRAW.randrange(self.dp_size), DRAW.randrange(9000)
        self.step_counter, self.engines_running = DRAW.randrange(70_000), DRAW.random() < 0.5

    def run_busy_loop(self):
        READY.wait()
        OVER.wait()


class EngineState:
    request_counts = [0, 0, 0.0]


class DPCoordinatorProc:
    def __init__(self):
        self.engines = [EngineState() for _ in range(DRAW.randrange(2, 9))]
        self.enable_wave_coordination = len(sys.argv) < 3

    def process_input_socket(self, wave, running):
        current_wave, engines_running = wave, running
        READY.wait()
        OVER.wait()
        return current_wave, engines_running


def wait_for_engine_startup(core_engines):
    READY.wait()
    OVER.wait()
    return core_engines


core, coordinator = DPEngineCoreProc(), DPCoordinatorProc()
wave, running = DRAW.randrange(1 << 40), DRAW.random() < 0.5
engines = [CoreEngine(i, DRAW.random() < 0.5) for i in range(DRAW.randrange(1, 400))]
for target, args in (
    (core.run_busy_loop, ()),
    (coordinator.process_input_socket, (wave, running)),
    (wait_for_engine_startup, (engines,)),
):
    threading.Thread(target=target, args=args, daemon=True).start()
READY.wait()
lacking = [i for i, one in enumerate(engines) if one.state is CoreEngineState.NEW]
truth = {
    "core": [core.dp_rank, core.dp_size, core.current_wave, core.step_counter, core.engines_running],
    "coordinator": [None, len(coordinator.engines), wave, None, running],
    "start": [
        len(engines),
        [i for i in lacking if engines[i].local],
        [i for i in lacking if not engines[i].local],
        [i for i, one in enumerate(engines) if one.state is CoreEngineState.CONNECTED],
    ],
}
print(json.dumps(truth), flush=True)
OVER.wait()
