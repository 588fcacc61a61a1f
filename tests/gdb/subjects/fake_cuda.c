/* A FAKE libcuda.so.1: functions are handles, launches do nothing. */
static char handles[64];
static int given;
int cuModuleGetFunction(void **out, void *module, const char *name) { *out = &handles[given++]; return module == (void *)name; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra) { return f ? 0 : 1; }
int cuLaunchKernelEx(const void *config, void *f, void **args, void **extra) { return f ? 0 : 1; }
