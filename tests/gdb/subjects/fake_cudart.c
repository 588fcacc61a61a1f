/* A FAKE libcudart.so.12: the launch functions with their real names and arguments, which launch nothing. */
typedef struct { unsigned x, y, z; } dim3;
typedef struct { dim3 grid, block; unsigned long shared; void *stream, *attributes; unsigned count; } config;
int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, unsigned long shared, void *stream) { return f && args && g.x && b.x ? 0 : 1; }
int cudaLaunchKernelExC(const config *c, const void *f, void **args) { return c && f && args ? 0 : 1; }
