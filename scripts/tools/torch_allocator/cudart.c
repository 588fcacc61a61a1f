/* As much of the CUDA runtime as torch's caching allocator calls: devices without a GPU, whose memory is malloc's. Everything else is
 * made by make-torch-allocator-layouts: a function that returns 0, cudaSuccess. */
#include <stdlib.h>
#include <string.h>

int gdbext_device; /* the current one */

int cudaGetDevice(int *device) { return *device = gdbext_device, 0; }
int cudaSetDevice(int device) { return gdbext_device = device, 0; }
int cudaGetDeviceCount(int *count) { return *count = 8, 0; }
int cudaMalloc(void **at, size_t bytes) { return *at = aligned_alloc(512, bytes), 0; }
int cudaFree(void *at) { return free(at), 0; }
int cudaMemGetInfo(size_t *available, size_t *total) { return *available = *total = (size_t)1 << 36, 0; }
int cudaStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, 0; }
const char *cudaGetErrorString(int error) { return (void)error, "an error of the stand-in"; }
const char *cudaGetErrorName(int error) { return (void)error, "error"; }
