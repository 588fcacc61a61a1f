"""One way to see what the threads of running processes do over a time, without stopping them.

`clocks`, `system_calls`, `stack_keys`, `effects`: what one sample says of a thread. `window`: what several samples say: whether
it moved, ran, woke, wanted a CPU, made progress. `observer`: takes the samples of one process, and of many in one loop.
"""
