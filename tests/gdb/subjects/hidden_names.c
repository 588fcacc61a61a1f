/* A user's native code whose functions have names as the interpreter's own: below Python and above it. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
typedef void (*callback)(void);
static callback wanted;
static volatile int kept;
#define LAYER(name, inner) __attribute__((noinline, noclone)) void name(void) { inner(); kept++; }
__attribute__((noinline, noclone)) void call_python(void)
{
    if (wanted)
        wanted();
    else
        for (;;)
            pause();
    kept++;
}
LAYER(gen_tokens, call_python)
LAYER(PyEngine_step, gen_tokens)
LAYER(method_dispatch, PyEngine_step)
LAYER(slot_of_request, method_dispatch)
LAYER(wrapper_main, slot_of_request)
static void *start(void *arg)
{
    (void)arg;
    wrapper_main();
    return 0;
}
void begin(callback f)
{
    pthread_t t;
    wanted = f;
    pthread_create(&t, 0, start, 0);
}
