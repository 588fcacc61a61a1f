/* Launches as a runtime does that is linked in: the driver is opened late and its functions are asked for by name. Then once by the exported function. */
#include <dlfcn.h>
#include <stdio.h>
typedef int (*launcher)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra);
static void go(launcher launch, void *f, unsigned x) {
  long a = 0x1122334455667788;
  void *args[] = {&a, 0};
  printf("{\"kernel\": \"kernel_unified_attention\", \"grid\": [%u, 2, 1], \"block\": [96, 1, 2], \"cluster\": [0, 0, 0], \"shared\": 333, \"stream\": 11, "
         "\"args\": [\"8877665544332211\"]}\n", x);
  fflush(stdout);
  launch(f, x, 2, 1, 96, 1, 2, 333, (void *)0xb, args, 0);
}
int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *attention, *other;
  if (!driver) return puts(dlerror()), 1;
  int (*get)(const char *, void **, int, unsigned long, int *) = (int (*)(const char *, void **, int, unsigned long, int *))dlsym(driver, "cuGetProcAddress_v2");
  int (*module_get)(void **, void *, const char *), status;
  launcher launch;
  get("cuModuleGetFunction", (void **)&module_get, 12000, 0, &status);
  get("cuLaunchKernel", (void **)&launch, 12000, 0, &status);
  void *nothing;
  get("cuNothing", &nothing, 12000, 0, &status);
  module_get(&other, 0, "other");
  module_get(&attention, 0, "kernel_unified_attention");
  launch(other, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
  for (unsigned i = 1; i < 3; i++) go(launch, attention, i);
  go((launcher)dlsym(driver, "cuLaunchKernel"), attention, 7);
  puts("{\"end\": true}");
  return 0;
}
