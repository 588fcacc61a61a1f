"""titled_engine_core.py ARGUMENTS: requests_vllm.py with the title of a vLLM engine core, as a process of an engine."""

import os
import runpy
import sys

import setproctitle

setproctitle.setproctitle("VLLM::EngineCore")
sys.argv[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requests_vllm.py")
runpy.run_path(sys.argv[0], run_name="__main__")
