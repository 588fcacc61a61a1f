# For cuda-gdb. Opt in, in ~/.cuda-gdbinit: source /path/to/gdbinit.d/cuda.gdb   Not for plain gdb, which does not know these settings.
# Written from NVIDIA's documentation; what needs a GPU was not tried here.

# A CUDA call that fails stops the program there, not where its error is asked for a hundred calls later.
set cuda api_failures stop
# No line for every kernel, context and module.
set cuda kernel_events none
set cuda context_events off
# No stop at each kernel's launch; llm-break stops at the ones that are meant.
set cuda break_on_launch none
# A launch returns when its kernel has ended, so the failing kernel is the one on the stack. Slow; takes effect with the next run.
# set cuda launch_blocking on
# Exceptions on the device are reported where they happen, as far as the hardware tells.
set cuda software_preemption auto
