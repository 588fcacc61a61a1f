"""Set-up: prepares gdb for the pack (init files, wheels for gdb's own Python) and reports what is missing (doctor)."""
