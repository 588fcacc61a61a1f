"""The engines: one folder for each, and beside the folders what they share. `FOLDERS` is the list of engines, the only one.

To add an engine is to add a folder with an `ENGINE` (an `EngineSpec`, spec.py) and its row here. `registry.py` loads the specs.
"""

FOLDERS = ("vllm", "sglang", "rtp_llm", "trtllm", "lmdeploy")  # in the order in which they are asked whose a process is
