"""Set-up: what makes gdb ready for the pack (init files, wheels for gdb's own Python) and says what is missing (doctor)."""
