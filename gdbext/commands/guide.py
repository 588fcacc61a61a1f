"""The debugging guide: for each trouble the commands in order. `llm guide TOPIC` shows one."""

GUIDE = {
    "hang": """It hangs: requests do not come back, or a rank waits in a collective.
  llm-ranks                    which processes there are; a missing or stopped (T) rank is named
  llm-hang all                 the verdict with its evidence, with a pause of well under a second
  (gdb) llm-hang 27541 27543 27545
  collective: ranks wait in a collective for others that are not there
  culprit: R1 27543 MainThread
    R0,2 wait in all_reduce, called from loop (train.py:11)
    R1 has not come to it: R1 thread 27543 (MainThread) is in <module> (train.py:12), 0 % CPU
  victims: R0, R2
  paused: R0 25.62 ms, R1 16.72 ms, R2 6.67 ms; all resumed
On GPUs the rank that is missing may wait on the host; vLLM with two ranks, one of which left out an all-reduce (H200):
  culprit: TP1 12261 MainThread
    TP0 waits for its device: cuEventSynchronize (libcuda.so.580.159.04)
    NCCL communicator 0x5e69fd93298692ca: collectives counted in memory (AllReduce): TP0 has begun 2602, TP1 has begun 2601
  llm guide kernel             the GPU's side of it, in cuda-gdb
  llm-stacks all               equal stacks folded: the rank that is elsewhere is alone
  llm-bt -all -on TP1          Python frames of the odd one out; attached (llm-attach TP1), native and kernel frames too
  llm-locks                    which thread waits for which: GIL, pthread and Python locks; a cycle as one sentence
Before a restart:              llm-snapshot all -o DIR, to be read later, on another machine
It will happen again:          llm-watch -after 60 -o DIR   captures before the engine's own watchdog kills the evidence""",
    "stuck-request": """My request does not come back: /health says 200, the metrics read 0, the processes look fine.
  llm-hang all                 one verdict per engine, what moved between two samples. Nothing that hangs is called busy or idle
    livelock                   others wait for a thread that runs but makes no progress: an eviction that evicts nothing, say
    loop-blocked               an API server cannot run its ready tasks: the callback that keeps its loop, and how many wait
    dead-thread                a thread waits for one that has ended: its name, and for what
    uninterruptible            a thread is blocked in the kernel (state D), and where: a disk, a file server, a driver
    stuck-requests             no thread is stuck, requests are: each with its place, its holder and what it waits for
    unknown                    not enough evidence; it says what each thread waits for
  llm-requests                 every request over all processes that know it: where it is, since when, what must act.
                               Of SGLang 0.5.23 with two tokenizer workers:
  request                   verdict  at                  state
  request-0-45530102415898  behind   tokenizer-worker    awaited
  router-loops              behind   tokenizer-worker#2  awaited
  router-loops behind: server's task router_worker_obj reads no more messages: it is in loops_for_ever
    (sglang_faults.py:25); must act: server thread 17378 (router_worker_obj)
  llm-request ID               the whole way of one of them; -sampling adds its parameters
  llm-locks                    which thread waits for which; asyncio tasks and their locks too
  pytasks -on server           what each task of a front end awaits (llm-ranks lists what it is called)
  llm-kv                       a prompt that needs more blocks than there are in all never fits
It will happen again:          llm-watch -after 60 -o DIR   captures a report and snapshots while it hangs""",
    "crash": """It crashed, or left a core.
  gdb -ex 'set auto-solib-add off' -ex 'core-file core.4242'   gdbext needs no symbols of libtorch
  llm-bt                       the thread that died, Python and native together
  pyexc                        exceptions in flight in every thread, with causes
  pylocals, pyprint, pytensor  what it worked on
Still running:                 pycatch -uncaught   stops at the last frame that could have handled it
  (gdb) pycatch -uncaught
  pycatch 1: any exception, uncaught  (2 debug registers)
  (gdb) continue
  pycatch 1: KeyError: 'missing' in caught_by_nobody at /srv/serve.py:173, thread 28111 "Thread-1 (threa", hit 1
A CUDA core:                   llm-gpucore FILE   without a GPU""",
    "kernel": """A kernel: which one runs, what it was given, which block has my request, one that does not end or is at fault.
  llm-hang all                 "kernel": a rank waits for its device, and nothing moves; what runs there cuda-gdb alone sees
  kernel: a device kernel does not end
  culprit: EngineCore-9289 9289 MainThread
    EngineCore-9289 waits for its device: cuEventSynchronize (libcuda.so.580.159.04)
In cuda-gdb of the driver's release, attached (llm-attach PID), of the same vLLM on a H200:
  llm-bt                       the kernels on the device before the frames of the host; info cuda kernels
  *      0      -   0 407820 Active … (1,1,1)  (1,1,1) at::cuda::(anonymous namespace)::spin_kernel()
  llm-break -host paged-attention   stops before the launch; llm-launch says what the kernel was given, and what of it is whose
  key_cache_ptr  bf16*  0x7fe2ec000000  KV cache, EngineCore layer 2, k, block 0, slot 0, head 0
  query_ptr      bf16*  0x7fe3469ea800  [4, 8, 128] bfloat16 on cuda:0, local q of unified_attention
  llm-break kernel_unified_attention   stops in it, on the device
  llm-focus -seq 1 -head 3     the block that serves them: blockIdx (1, 1, 0) here
    x = query_start_loc[1] / 8 + 1 + row block 0 = 1 / 8 + 1 + 0 = 1
    y = KV head = head / 2 = 1
  llm-step instruction         one step of the warp in focus; kv-block: to the next block of the cache
A fault:                       llm-gpucore -setup names the variables to start with; the driver then writes a core
  llm-gpucore gpucore.1320     read without a GPU; 248 MB, "Warp Illegal Address" in kernel_unified_attention, block (0, 2, 0)
cuda-gdb 13.0's own detach ended one in five processes that launched kernels, also without gdbext: attach where that may happen.
CUDA graphs pass no launch: what they hide is said. AMD: rocgdb was never tried; of kernels there gdbext knows nothing.""",
    "nan": """NaN, infinities, "!!!!" as output.
  llm-attach TP0               the rank that samples; llm-attach all for every rank
  llm-break nan                stops before sampling when logits hold NaN or an infinity, in the step where it happens first
  (gdb) llm-break nan
  llm-break 1: vllm/v1/worker/gpu_model_runner.py:3443  GPUModelRunner._sample  (1 debug register)
  (gdb) llm-continue
  llm-break 1: GPUModelRunner._sample at vllm/v1/worker/gpu_model_runner.py:3443, TP0 thread 12784 "VLLM::Worker_TP", hit 1
    (logits holds 1536 NaN, 0 infinite of 3072)
  pytensor logits -stats       how many, what the finite values are; half of them, as here: one of two ranks. The stop says what
                               they are called: SGLang's are logits_output.next_token_logits
  llm-continue                 from then on it stops at the first module of a step that returns a NaN, with its inputs
  llm-break -layers nan        the same from the first step on, in any torch program: about 1 ms for each call of a module
  (gdb) llm-break -layers nan
  llm-break 1: NaN in a module's output  (2 debug registers)
  (gdb) continue
  llm-break 1: layers.1.0 (Linear) returned 5 NaN of 320 ([5, 64] float32), thread 7872, hit 1
    (none of its inputs holds a NaN)
    (without: args[0] [5, 64] float32)
    (of its own tensors these hold NaN: weight)
  pyprint self.weight          what that module has; pytensor -stats args[0]
  llm-layers                   what every module of a step returns: NaN, infinities, range, hash
  pytensors -nan               the first live tensor that holds one, -all for each: weights, buffers, KV
Tensors on a GPU are read in cuda-gdb; in plain gdb the answer says so.""",
    "tokens": """Wrong tokens, although nothing fails.
  llm-requests -show-content   what the scheduler thinks each request is
  llm-kv check -ranks          blocks owned twice, freed while used, hashed wrongly
  llm-kv request ID            its block table; llm-kv block N: owners and addresses on each rank
  pylog Scheduler.schedule "{len(self.running)} {self.running[0].request_id} {self.running[0].num_computed_tokens}"
  (gdb) llm-continue
  EngineCore 21913 scheduler.py:592  4 'request-58-ad8f0232' 178
  EngineCore 21913 scheduler.py:592  4 'request-58-ad8f0232' 179
  llm-layers -save -o a.jsonl  what each module of a step returned, on every attached rank (eager engines), and later, or on
                               another rank, release or backend, for the same tokens, -o b.jsonl
  llm-layers -compare a.jsonl b.jsonl           the first module that differs beyond what its dtype explains
  first difference: layers.1.0 (Linear): by up to 0.0163, relatively 0.00998, most at [0, 14]
  llm-layers -compare a-TP0.jsonl,a-TP1.jsonl one.jsonl   two ranks against one: sharded layers are put together
Is it the engine? Attached to a plain program of transformers, model(tokens), with the same weights and tokens:
  (gdb) llm-layers -save -o plain.jsonl
  (gdb) llm-layers -compare a-TP0.jsonl,a-TP1.jsonl plain.jsonl
  no difference in 42 outputs; 39 differ in bits, within what their dtypes explain
  first difference: model.layers.2.mlp.gate_up_proj[0] (MergedColumnParallelLinear): by up to 0.0143981, relatively 0.00727317,
    most at [16, 825] (against gate_proj, up_proj side by side; the most in up_proj)            with a weight of TP1 1 % larger
  pytensors -ranks             a rank with other norms, buffers, replicated layers; what is packed away is named, not compared
  pytensor -compare FILE EXPR  a tensor of two runs or two ranks, side by side""",
    "request": """One request: where is it, and what happens to it.
  llm-requests                 its state, and what blocks it
  llm-break request ID         stops when it was computed for the first time, and when it is freed
  pybreak Scheduler.schedule if any("ID" in r.request_id and r.num_computed_tokens > 60 for r in self.running)
  (gdb) llm-continue
  pybreak 2: Scheduler.schedule at vllm/v1/core/sched/scheduler.py:592, EngineCore thread 21913 "VLLM::EngineCor", hit 1
  (gdb) pyprint len(self.running), self.running[0].request_id, self.running[0].num_computed_tokens
  (4, 'request-25-88d033e8', 176)
  (gdb) pynext
  Scheduler.schedule at vllm/v1/core/sched/scheduler.py:604, thread 21913
  604	        scheduled_new_reqs: list[Request] = []
The others wait meanwhile: llm-detach, or delete and llm-continue, before their timeouts.""",
    "memory": """Memory grows, or runs out.
  llm-memory                   where each rank's resident memory is: Python, malloc, tensors, shared memory, libraries, files;
                               for each GPU what torch's allocator has given out, keeps, and how often it ran out
  pyheap -save FILE            remembers the Python heap, frozen objects too; the process is paused while it is copied
  pyheap -diff FILE            later: what grew since, by path, the largest growth first; -watch 60 does both
  more   length or count      bytes  type  owner
  +2000     1000 -> 3000  +441.2 KiB  dict  __main__:eng.reqs
  +2000     1000 -> 3000  +266.8 KiB  list  __main__:store['x']
  pyheap -type T, -path ADDR   what holds the instances of a type; every way to one object
  pytensors -sort bytes        every live tensor, storage counted once, with its holders
  pytensors -diff FILE         what grew since FILE: an earlier answer of pytensors -json
  llm-kv                       blocks used, cached, free; llm-kv check: blocks that no request owns and that are not free
  llm-break oom                stops where the KV cache is full and a request's blocks are taken back, or at an OutOfMemoryError
  (gdb) llm-break oom
  pycatch 2: OutOfMemoryError  (1 debug register)
  llm-break 3: vllm/v1/core/sched/scheduler.py:1571  Scheduler._preempt_request  (1 debug register)
  pytrace Scheduler._free_request       is it called for every request?
  pylog FILE:LINE "{len(self.requests)}"  a container's length, each time a line runs, without editing the engine""",
    "slow": """It is slow, or its pauses are too long.
  llm-hang all                 busy: which threads run, how far each rank came; a thread that starves the others
  llm-stacks all -samples 200 -folded FILE   where the time goes, without a profiler and without a restart: lines for flame graphs
  pythreads -samples 50        which threads hold the GIL for how long, which wait
  llm-top all                  live: what each rank does, its GIL, CPU, memory; requests, tokens a second, blocks of each engine
  llm-record all -for 30 -o slow.json.gz    what every rank did when, unstopped, on one time base: open the file in Perfetto
  llm-record all -for 30 -o slow.record     the recording itself; later: llm-record -read slow.record -from 12 -to 14 -o part.html
  llm-profile start TP0        the engine's own profiler (torch's traces); stop ends it and names the files
  (gdb) llm-profile start sglang:TP0 -activities CPU,GPU -steps 10 -o /tmp/traces
  pytrace FUNCTION             each call with its arguments and result, without editing the engine
  pytrace -calls vllm.v1.core  every call of some modules, indented, with durations; ends after 1,000 calls
Under another profiler, from the start; gdbext attaches to the ranks meanwhile as always (debuggers of the GPU cannot):
  nsys profile -t cuda,nvtx,osrt --trace-fork-before-exec=true -o trace COMMAND   the timeline, with the engine's own NVTX ranges
  nsys launch COMMAND, then nsys start and nsys stop                                only the seconds of interest
  ncu --target-processes all -k regex:attention -c 3 COMMAND                        one kernel closely; llm-kernels has the names
  rocprofv3 --hip-trace --kernel-trace -- COMMAND; runTracer.sh COMMAND (RPD)       the same on AMD
  compute-sanitizer --target-processes all COMMAND                                  illegal accesses, 10 to 100 times slower
What gdbext adds there: llm-ranks says which rank a trace's pid is, llm-stacks what its host threads do at that moment.
rocgdb: the host side is gdb's; that it works there was never tried.""",
    "start-up": """It does not start, or a worker is missing.
  llm-ranks                    which ranks are there, by title, command line or memory
  llm-stacks all               which ranks wait in init_process_group, which have not come
From the beginning:            gdb --args python serve.py
  (gdb) llm-follow on          children stay with this gdb through fork and exec
  (gdb) pybreak -on TP1 GPUModelRunner.execute_model     waits for the import, in every child
  (gdb) run
  pybreak 1: GPUModelRunner.execute_model at /.../gpu_model_runner.py:3945, TP1 thread 21470 "VLLM::Worker_TP", hit 1
  (gdb) llm-follow
  following, all-stop: children become inferiors and get the Python breakpoints; off gives the settings back
  inferior  pid    rank        state
  1         17385  frontend    stopped
  8         19192  EngineCore  stopped
  11        21469  TP0         stopped
  12        21470  TP1         stopped
-non-stop lets the others run while one is stopped: they wait for it in their next collective, until that times out.""",
}
