// A program that has CPython linked in, and calls Python in threads of its own.
#include <Python.h>
#include <thread>
#define HIDDEN __attribute__((noinline))
struct PyScheduler {
    HIDDEN void call_model(int r)
    {
        PyGILState_STATE s = PyGILState_Ensure();
        PyObject *f = PyObject_GetAttrString(PyImport_AddModule("__main__"), "forward");
        PyObject *x = PyObject_CallFunction(f, "i", r);
        Py_XDECREF(x);
        PyGILState_Release(s);
    }
};
static volatile int kept;
extern "C" HIDDEN void gen_tokens() { PyScheduler().call_model(1); kept++; }
extern "C" HIDDEN void PyEngine_run() { gen_tokens(); kept++; }
extern "C" HIDDEN void run_mod() { PyEngine_run(); kept++; }
int main(int, char **argv)
{
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    PyConfig_SetBytesString(&config, &config.home, argv[1]);
    Py_InitializeFromConfig(&config);
    PyRun_SimpleString("import os, sys, time\ndef forward(r):\n  inner(r)\ndef inner(r):\n"
                       "  sys.stdout.write('{\"pid\": %d}\\n' % os.getpid())\n  sys.stdout.flush()\n  time.sleep(1000)\n");
    PyEval_SaveThread();
    std::thread a(run_mod);
    a.join();
}
