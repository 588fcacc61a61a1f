"""gdbext: a GDB / cuda-gdb extension pack for LLM inference engines. `source gdbext/init.py` in gdb loads it."""

__version__ = "0.1.0"
