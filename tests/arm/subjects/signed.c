/* Calls down through functions of several kinds, and through a signal handler, then says what is true of its stack and stays:
   {"frames": [functions, innermost first], "signed": the return address of `in_handler` as it lies on the stack} */
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))
static volatile int zero;
static volatile char *place;

KEPT static int innermost(int n)
{
    unsigned long *frame = *(unsigned long **)__builtin_frame_address(0); /* of a function that returns */
    printf("{\"frames\": [\"innermost\", \"in_handler\", \"raising\", \"by_pointer\", \"with_alloca\", \"recursive\", \"recursive\", "
           "\"recursive\", \"large\", \"main\"], \"signed\": %lu}\n", frame[1]);
    fflush(stdout);
    for (;;)
        pause();
    return n + 1;
}

KEPT static void in_handler(int number) { zero = innermost(number) + zero; }

KEPT static int raising(int n)
{
    raise(SIGUSR1);
    return n + zero;
}

static int (*volatile pointer)(int) = raising;

KEPT static int by_pointer(int n) { return pointer(n + 1) + zero; }

KEPT static int with_alloca(int n)
{
    place = alloca(n * 100 + 16);
    place[1] = n;
    return by_pointer(n) + place[1];
}

KEPT static int recursive(int n) { return n ? recursive(n - 1) + n + zero : with_alloca(3) + zero; }

KEPT static int large(int n)
{
    volatile char wide[70000];
    wide[n] = n;
    return recursive(2) + wide[n];
}

int main(void)
{
    signal(SIGUSR1, in_handler);
    return large(5) + zero;
}
