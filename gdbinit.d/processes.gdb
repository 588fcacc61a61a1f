# Several processes of one engine in one gdb. Opt in: source /path/to/gdbinit.d/processes.gdb
# For gdb --args python serve.py, `llm-follow on` sets what it needs and gives it back; this file is for those who want it always.

# A child stays with gdb as an inferior of its own, instead of being let go.
set detach-on-fork off
# The parent stays the selected one.
set follow-fork-mode parent
# exec keeps the inferior's number.
set follow-exec-mode same
# continue resumes every process, not only the selected one: a rank that stands still lets all others wait in their next collective.
set schedule-multiple on
# One line when a process comes or goes.
set print inferior-events on
