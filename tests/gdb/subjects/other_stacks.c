/* Code that stands on a stack of its own, mapped above or below the thread's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include "stack_region.h"
#include <ucontext.h>
#include <unistd.h>

typedef void (*callback)(void);

static void park(int s)
{
    (void)s;
    for (;;)
        pause();
}

int on_signal_stack(int up)
{
    stack_t ss = {.ss_size = SIZE, .ss_sp = region(up)};
    struct sigaction sa = {.sa_handler = park, .sa_flags = SA_ONSTACK};
    if (!ss.ss_sp || sigaltstack(&ss, 0) || sigaction(SIGUSR1, &sa, 0))
        return -1;
    return pthread_kill(pthread_self(), SIGUSR1);
}

struct fiber {
    ucontext_t outside, inside;
    callback wanted;
};
static __thread struct fiber *current;

static void begin(void)
{
    current->wanted();
}

int on_fiber(callback wanted, int up)
{
    void *stack = region(up);
    struct fiber *f = mmap(0, sizeof *f, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!stack)
        return -1;
    f->wanted = wanted;
    getcontext(&f->inside);
    f->inside.uc_stack.ss_sp = stack;
    f->inside.uc_stack.ss_size = SIZE;
    f->inside.uc_link = &f->outside;
    makecontext(&f->inside, begin, 0);
    current = f;
    return swapcontext(&f->outside, &f->inside);
}

void c_waits(void)
{
    park(0);
}

int plainly(callback wanted, int up)
{
    (void)up;
    wanted();
    return 0;
}
