"""What each CPython minor does otherwise than the one before: the one table that a new minor is looked through for.

Offsets are in layouts/, whole strategies (how frames are walked, where attributes lie) in dialects.py, which selects them.
"""

from __future__ import annotations

from typing import Callable


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
        self.send_keeps = since(12)  # SEND leaves its receiver for END_SEND
        self.null_below_send = since(15)
        self.jit = since(13)

        # ---- frames, generators and threads: Include/internal/pycore_frame.h, pycore_pystate.h, Objects/genobject.c
        self.frame_objects = not since(11)  # the interpreter runs PyFrameObjects
        self.keeps_line = since(10)  # f_lineno of a frame object is kept up to date
        self.tells_columns = since(11)
        self.leaves_anchors = since(10)  # each activation of the interpreter leaves an object on its C stack
        self.entry_frames = version == (3, 11)  # `is_entry` marks the first frame of an activation
        self.shim_frames = since(12)  # a frame of C's ends each activation
        self.keeps_stack_end = since(14)  # a frame has its stack's end while C code runs
        self.begins_with_value = since(10) and not since(13)  # a generator's stack has the value sent to it
        self.advances_ended = version == (3, 12)  # a generator's end adds `return_offset` to its caller's instruction
        self.states_own_threads = since(12)  # a thread state names the thread that runs it, not the one that made it
        self.remote_execution = since(14)  # of a script
        if since(15):
            states = {0: "created", 1: "suspended", 2: "awaiting", 3: "awaiting", 4: "executing", 5: "finished"}
        elif since(13):
            states = {-3: "created", -2: "suspended", -1: "awaiting", 0: "executing", 1: "finished", 4: "finished"}
        else:
            states = {-2: "created", -1: "suspended", 0: "executing", 1: "finished", 4: "finished"}
        self.generator_states, self.tells_awaiting = states, since(13)  # before, the next RESUME tells an await

        # ---- objects: Include/internal/pycore_object.h, pycore_dict.h, Objects/obmalloc.c, Include/internal/pycore_lock.h
        self.managed_dicts = since(11)  # a word before an instance leads to its attributes
        self.values_apart = since(11) and not since(13)  # such a word leads to an array of their values
        self.dict_and_values = version == (3, 11)  # two words: the dict's and the array's
        self.tagged_values = version == (3, 12)  # one word, tagged where it leads to the array
        self.inline_values = since(13)  # the array is a part of the instance
        self.dicts_behind = not since(12)  # an instance of variable size has its dict's word behind its elements
        self.counts_managed = since(12)  # sys.getsizeof counts the words before an object, also those of weak references
        self.flags_above_count = since(14)  # a reference count is 32 bits of its word
        self.short_key_counts = since(12)  # dk_refcnt is 32 bits of its word
        self.zero_has_digit = since(11)  # in sys.getsizeof(0)
        self.bytearray_of_bytes = since(15)  # its memory is an object of its own, and its repr escapes no '
        self.pool_size = 16 << 10 if since(10) else 4 << 10
        self.mutexes = since(13)  # of one byte; threads that wait are parked in a table of the process
        self.ring_queues = since(13)  # the queue of C code is a ring, no list
        self.interp_atexit = since(10)  # the interpreter keeps its callbacks, not the module
        self.listed_atexit = since(14)  # in a list, not an array
        self.futures_tell_awaiters = since(14)

        self._texts(since)

    def _texts(self, since: Callable[[int], bool]) -> None:
        """What Python says: Objects/*object.c, Lib/enum.py, typing.py, functools.py, re."""
        self.sums_carry = since(12)  # a sum of floats carries what rounding lost
        self.wrappers_name = since(10)  # staticmethod and classmethod name the object that they wrap
        self.says_dead = since(13)  # of a weak proxy, and its type in quotes
        self.full_partials = since(13)  # partial's subclasses with their module
        self.flag_enums = since(11)  # "<flag 'X'>", and unnamed values without "X."
        self.dict_odicts = since(12)  # OrderedDict({k: v}), not OrderedDict([(k, v)])
        self.names_re_template = not since(13)
        self.qualified_aliases = since(15)  # a `type` statement's, and with its module as an argument
        self.none_arguments = since(14)  # None, not NoneType, as a type's argument
        self.starred_aliases = since(11)  # *tuple[int]
