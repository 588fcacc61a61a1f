/* Launches attention kernels of libkernels.so, which it loads late, and kernels of the driver by name: for llm-break.
   launches [rounds] [threads]   in each round and thread: attend, attend_by_address, then by the driver "other", "kernel_unified_attention" twice.
   With WAIT in the environment it first waits for a line of input. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
int cuModuleGetFunction(void **out, void *module, const char *name);
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra);
int cuLaunchKernelEx(const void *config, void *f, void **args, void **extra);
static void (*attend)(int), (*by_address)(int);
static int rounds = 1;
static void *attention, *other;
__attribute__((noinline)) void ready(void) { __asm__ volatile(""); }

static void *work(void *unused) {
  for (int i = 0; i < rounds; i++) {
    attend(i);
    by_address(i);
    long a = 0x1122334455667788, b = 7;
    void *args[] = {&a, &b, 0};
    cuLaunchKernel(other, 1, 1, 1, 32, 1, 1, 0, 0, args, 0);
    printf("{\"kernel\": \"kernel_unified_attention\", \"grid\": [3, 2, 5], \"block\": [96, 1, 2], \"cluster\": [0, 0, 0], \"shared\": 333, \"stream\": 11, "
           "\"args\": [\"8877665544332211\", \"0700000000000000\"]}\n");
    fflush(stdout);
    cuLaunchKernel(attention, 3, 2, 5, 96, 1, 2, 333, (void *)0xb, args, 0);
    struct { unsigned dims[6], shared; void *stream, *attributes; unsigned count; } c = {{9, 8, 7, 6, 5, 4}, 444, (void *)0xc, 0, 1};
    struct { unsigned id, pad, value[16]; } attribute = {4, 0, {2, 2, 1}};
    c.attributes = &attribute;
    printf("{\"kernel\": \"kernel_unified_attention\", \"grid\": [9, 8, 7], \"block\": [6, 5, 4], \"cluster\": [2, 2, 1], \"shared\": 444, \"stream\": 12, "
           "\"args\": [\"8877665544332211\", \"0700000000000000\"]}\n");
    fflush(stdout);
    cuLaunchKernelEx(&c, attention, args, 0);
  }
  return 0;
}

int main(int argc, char **argv) {
  rounds = argc > 1 ? atoi(argv[1]) : 1;
  int threads = argc > 2 ? atoi(argv[2]) : 1;
  pthread_t all[16];
  void *library = dlopen("libkernels.so", RTLD_NOW);
  if (!library) return puts(dlerror()), 1;
  attend = (void (*)(int))dlsym(library, "attend"), by_address = (void (*)(int))dlsym(library, "attend_by_address");
  cuModuleGetFunction(&other, 0, "other");
  cuModuleGetFunction(&attention, 0, "kernel_unified_attention");
  ready();
  if (getenv("WAIT")) getchar();
  for (int i = 0; i < threads; i++) pthread_create(&all[i], 0, work, 0);
  for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
  puts("{\"end\": true}");
  return 0;
}
