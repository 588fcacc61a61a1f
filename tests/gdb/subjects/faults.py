"""faults.py SCENARIO: one process that hangs, works or idles in a known way. Says {"pid", "culprits": [tid]} (of another pid:
[pid, tid]), then does it. The scenarios are the functions of the modules imported here."""

import sys

import fault_children
import fault_locks
import fault_waits
import fault_work

if __name__ == "__main__":
    rooms = (fault_locks, fault_waits, fault_work, fault_children)
    next(vars(room)[sys.argv[1]] for room in rooms if sys.argv[1] in vars(room))()
