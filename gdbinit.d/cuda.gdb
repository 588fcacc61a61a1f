# For cuda-gdb. Opt in, in ~/.cuda-gdbinit: source /path/to/gdbinit.d/cuda.gdb   In a gdb that is none it says so in one line and sets nothing.
# Every line was accepted by cuda-gdb 11.8, all but software_preemption by 13.0; one that a release does not know is skipped and named.
# ($_streq is defined by gdb's Python part: void means a cuda-gdb without Python, where an unknown setting would end this file; it gets those that every
# release has.)
if $_isvoid($_streq)
  set cuda api_failures stop
  set cuda break_on_launch none
  echo gdbext: this cuda-gdb has no Python: only api_failures and break_on_launch were set\n
else
  python
import gdb

_settings = (
    # A CUDA call that fails stops the program there, not where its error is asked for a hundred calls later.
    "set cuda api_failures stop",
    # No stop at each kernel's launch; llm-break stops at the ones that are meant.
    "set cuda break_on_launch none",
    # No line for every kernel, context and module (gone in 13.4).
    "set cuda kernel_events none",
    "set cuda context_events off",
    # Exceptions on the device are reported where they happen, as far as the hardware tells (gone in 13.0).
    "set cuda software_preemption auto",
    # A launch returns when its kernel has ended, so the failing kernel is the one on the stack. Slow; takes effect with the next run.
    # "set cuda launch_blocking on",
)
try:
    gdb.parameter("cuda break_on_launch")
except RuntimeError:
    gdb.write("gdbext: this gdb is not cuda-gdb: gdbinit.d/cuda.gdb sets nothing here\n")
    _settings = ()
for _setting in _settings:
    try:
        gdb.execute(_setting)
    except gdb.error as e:
        gdb.write("gdbext: skipped: {}: {}\n".format(_setting, str(e).strip()))
del _settings
  end
end
