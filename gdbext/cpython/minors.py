"""What each CPython minor does otherwise than the one before: the one table that a new minor is looked through for.

Offsets are in layouts/, whole strategies (how frames are walked, where attributes lie) in dialects.py, which selects them.
"""

from __future__ import annotations


class Minor:
    """What holds in one minor; `Runtime.minor` has that of a process."""

    def __init__(self, version: tuple[int, int]) -> None:
        def since(minor: int) -> bool:
            return version >= (3, minor)

        # ---- instructions: Python/bytecodes.c (ceval.c), Lib/dis.py, Include/opcode.h
        self.code_unit = 2 if since(10) else 1  # bytes that f_lasti and the arguments of jumps count
        self.cells_apart = not since(11)  # the instructions of cells number these from 0, behind the local variables
        self.marks_globals = since(11)  # LOAD_GLOBAL's last bit: a NULL is pushed too
        self.marks_methods = since(12)  # LOAD_ATTR's last bit: it looks for a method
        self.callable_first = since(13)  # the callable stands before the NULL or self, not behind it
        self.order_shift = 5 if since(13) else 4 if since(12) else 0  # of COMPARE_OP's argument
        self.paired_ex = since(11)  # CALL_FUNCTION_EX has a NULL beside its callable
        self.always_kwargs = since(14)  # CALL_FUNCTION_EX has a place for keywords, whether there are some or not
        self.keeps_stack_end = since(14)  # a frame has its stack's end while C code runs
        self.send_keeps = since(12)  # SEND leaves its receiver for END_SEND
        self.null_below_send = since(15)
        self.begins_with_value = since(10) and not since(13)  # a generator's stack has the value sent to it
