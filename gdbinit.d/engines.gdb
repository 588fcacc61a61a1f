# Defaults for looking at LLM engines with gdb. Opt in: source /path/to/gdbinit.d/engines.gdb (in ~/.gdbinit, before anything is attached).
# None of it is needed by gdbext; each line says what it changes.

# Libraries' symbols are read only when asked for. libtorch's cost ten seconds in which the process stands still; gdbext needs none, and
# gdb's own bt gets those of one library by: sharedlibrary NAME. With gdb --args and llm-follow it has to be on: llm-follow sees to that.
set auto-solib-add off

# python3.X-gdb.py beside a Python is not loaded, nor are nine lines printed about it. pybt and llm-bt do what it does.
set auto-load python-scripts off

# Nothing is fetched from debug-information servers in the middle of an attach.
set debuginfod enabled off

# Threads come and go by the hundred: no line for each.
set print thread-events off

# No function of the process is ever called by mistake (a printer, a condition). On CPUs with AMX gdb before 16 breaks threads by it.
# llm-inject on Python before 3.14 needs it on.
set may-call-functions off

# Engines use these signals for themselves: passed on, not stopped at.
handle SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE nostop noprint pass

# Long structures are cut, strings too.
set print elements 100
set print repeats 10
set print pretty on

# What was typed survives the session (in .gdb_history of the folder that gdb runs in).
set history save on
set history size 10000
