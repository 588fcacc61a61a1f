/* Code that is hard to unwind without call-frame information: no frame pointers, stack arrays, callbacks, a signal handler. */
#include <alloca.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*callback)(void);
static _Thread_local callback sorted_call;

__attribute__((noinline)) int deep(int n, callback f) {
    char *room = alloca(n * 24 + 1);
    memset(room, n, n * 24 + 1);
    int found = 0;
    if (n)
        found = deep(n - 1, f);
    else
        f();
    return found + room[0];
}

static int compare(const void *a, const void *b) {
    if (sorted_call) {
        callback f = sorted_call;
        sorted_call = 0;
        f();
    }
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) int sorting(callback f) {
    int numbers[] = {3, 1, 2};
    sorted_call = f;
    qsort(numbers, 3, sizeof *numbers, compare);
    return numbers[0];
}

__attribute__((noinline)) static void wait_here(void) {
    for (;;)
        pause();
}

static void handler(int number) {
    (void)number;
    wait_here();
}

__attribute__((noinline)) int in_handler(int n) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    return n + 1;
}

__attribute__((noinline)) double spinning(double x) {
    for (;;)
        x = x * 1.0000001 + 1e-9;
    return x;
}

#ifdef __x86_64__
/* As hand-written kernels are: a frame on the stack, rbp used as any register, no call-frame information. */
void bare(callback f);
__asm__(".text\n.globl bare\n.type bare, @function\n"
        "bare: push %rbp\n xor %ebp, %ebp\n mov $77, %ebp\n sub $64, %rsp\n call *%rdi\n add $64, %rsp\n pop %rbp\n ret\n"
        ".size bare, . - bare\n");

void in_bare(void) {
    bare(wait_here);
}
#endif
