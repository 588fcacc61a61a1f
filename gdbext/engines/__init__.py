"""The engines: one folder for each, and their shared modules here. `FOLDERS` is the only list of engines.

To add an engine is to add a folder with an `ENGINE` (an `EngineSpec`, spec.py) and its row here. `registry.py` loads the specs.
"""

FOLDERS = ("vllm", "sglang", "rtp_llm", "trtllm", "lmdeploy", "torchrun")  # in the order in which they are tried on a process
