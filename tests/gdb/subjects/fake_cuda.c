/* A FAKE libcuda.so.1: functions are handles, launches do nothing. What cuGetProcAddress_v2 hands out has no symbols; the exported functions jump there. */
#include <string.h>
static char handles[64];
static int given;
static int get_function(void **out, void *module, const char *name) { *out = &handles[given++]; return module == (void *)name; }
static int __attribute__((noinline)) launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra) {
  __asm__ volatile("");
  return f ? 0 : 1;
}
int cuModuleGetFunction(void **out, void *module, const char *name) { return get_function(out, module, name); }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra) {
  return launch(f, gx, gy, gz, bx, by, bz, shared, stream, args, extra);
}
int cuLaunchKernelEx(const void *config, void *f, void **args, void **extra) { return f ? 0 : 1; }
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags, int *status) {
  *out = !strcmp(name, "cuLaunchKernel") ? (void *)launch : !strcmp(name, "cuModuleGetFunction") ? (void *)get_function : 0;
  return *out ? 0 : 500;
}
