/* Layers of native code between Python frames, with names as the interpreter's own; some on another stack: a fiber's, or that of
   a signal's handler. Which come, in which order, is the caller's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include "stack_region.h"
#include <ucontext.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))
typedef void (*callback)(void);
struct chain {
    int count;
    const int *ids;
    callback last;
    int told;
};
static __thread struct chain now;
static volatile int kept;

KEPT static void pymain_rests(void)
{
    if (write(now.told, "c", 1) == 1)
        for (;;)
            pause();
}

static void next(void);
#define LAYERS(L) \
    L(call_python) L(gen_tokens) L(method_dispatch) L(slot_of_request) L(wrapper_main) L(object_vacall) L(cfunction_call) \
    L(_PyEval_EvalFrameDefault) L(PyObject_Vectorcall) L(_PyObject_MakeTpCall) L(py_trampoline_evaluator) L(run_mod) L(type_call) \
    L(thread_run) L(_start) L(start_thread) L(forward_batch)
#define FUNCTION(name) \
    KEPT static void name(void) \
    { \
        next(); \
        kept++; \
    }
LAYERS(FUNCTION)
#define POINTER(name) name,
static callback table[] = {LAYERS(POINTER)};
#define NAME(name) #name "\n"
const char *names = LAYERS(NAME);

__attribute__((always_inline)) static inline void next(void)
{
    if (now.count) {
        now.count--;
        table[*now.ids++]();
    } else if (now.last)
        now.last();
    else
        pymain_rests();
}

KEPT static void handler(int s)
{
    (void)s;
    next();
    kept++;
}

KEPT static void begin(void)
{
    next();
    kept++;
}

/* kind 0: on the same stack; 1: on a fiber's; 2: in a signal's handler, on its stack. */
KEPT int hop(int kind, int up, int count, const int *ids, callback last, int told)
{
    stack_t ss = {.ss_size = SIZE};
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_NODEFER};
    ucontext_t *contexts;
    now = (struct chain){count, ids, last, told};
    if (kind == 0)
        next();
    else if (kind == 1) {
        contexts = mmap(0, 2 * sizeof *contexts, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        getcontext(contexts + 1);
        contexts[1].uc_stack.ss_sp = region(up);
        contexts[1].uc_stack.ss_size = SIZE;
        contexts[1].uc_link = contexts;
        makecontext(contexts + 1, begin, 0);
        swapcontext(contexts, contexts + 1);
    } else {
        ss.ss_sp = region(up);
        sigaltstack(&ss, 0); /* refused on such a stack: the handler then goes on there */
        sigaction(SIGUSR1, &sa, 0);
        pthread_kill(pthread_self(), SIGUSR1);
    }
    return kept++;
}
