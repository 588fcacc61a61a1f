"""A Python program with a thread whose stack has pages that do not come (absent_page.c): `absent_page.py LIBRARY KIND FOLDER`."""

import ctypes
import sys
import threading
import time


def counts():
    number = 0
    while True:
        number += 1
        time.sleep(0.003)


threading.Thread(target=counts, daemon=True, name="counts").start()
failed = ctypes.CDLL(sys.argv[1]).begin(sys.argv[2].encode(), sys.argv[3].encode())
print("failed" if failed else "ready", flush=True)
sys.stdin.readline()
