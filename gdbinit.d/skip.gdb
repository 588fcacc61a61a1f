# What gdb's own step and finish should not walk into when one steps C++ of an engine. Opt in: source /path/to/gdbinit.d/skip.gdb

# The standard library and its small helpers.
skip -gfi */bits/*.h
skip -gfi */ext/*.h
# c10's reference counting and dispatch: a step into an operator ends in its kernel, not in the dispatcher.
skip -rfu ^c10::(intrusive_ptr|SmallVector|ArrayRef|optional).*
skip -rfu ^c10::(Dispatcher|impl::|KernelFunction).*
skip -rfu ^at::_ops::.*::call$
# pybind11's casting of arguments.
skip -rfu ^pybind11::detail::.*
