"""What tests share: how a gdb is run, how subjects are started and what they say, how a command is asked. Test modules import
from here, never from each other."""
