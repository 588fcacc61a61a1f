"""One way to see what the threads of running processes do over a time, without stopping them.

`clocks`, `system_calls`, `stack_keys`, `effects`, `gil_samples`: what one sample says of a thread, and of the GIL;
`thread_files`, `bulk_stacks`: its clock and its stack where there are many samples a second. `window`: what several samples say:
whether it moved, ran, woke, wanted a CPU, made progress. `loop`: when samples are due. `observer`: takes those of one process.
"""
