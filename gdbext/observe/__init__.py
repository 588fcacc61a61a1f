"""The one way to see what threads of running processes do over a time, without stopping them.

`clocks`, `system_calls`, `stack_keys`, `effects`, `gil_samples`: one sample of a thread, or of the GIL. `thread_files`,
`bulk_stacks`: clock and stack of a thread that is sampled many times a second. `window`: the result of several samples: whether a
thread moved, ran, woke, wanted a CPU, made progress. `loop`: when samples are due, and `Collector`, what takes them. `observer`:
takes the samples of one process.
"""
