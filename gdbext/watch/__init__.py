"""The watch that stays: looks at running processes, keeps the last minutes, judges a stall, writes the box."""
