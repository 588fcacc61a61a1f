"""Exceptions that nobody catches, each leaving the program's frames in its own way: uncaught.py WAY [spawn|fork|thread|main]"""

import multiprocessing
import sys
import threading


def plain():
    mine = "plain"
    raise KeyError(mine)


def by_finally():
    try:
        plain()
    finally:
        print("finally", flush=True)


def raised_again():
    try:
        plain()
    except KeyError:
        print("again", flush=True)
        raise


def handled():
    for way in (plain, by_finally, raised_again):
        try:
            way()
        except KeyError:
            pass


if __name__ == "__main__":
    way, where = globals()[sys.argv[1]], sys.argv[2]
    handled()
    if where == "thread":
        one = threading.Thread(target=way)
    elif where != "main":
        one = multiprocessing.get_context(where).Process(target=way)
    else:
        way()
    one.start()
    one.join()
