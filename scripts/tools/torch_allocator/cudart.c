/* As much of the CUDA runtime as torch's caching allocator calls: devices without a GPU, whose memory is malloc's. Everything
 * else is made by make-torch-allocator-layouts: a function that returns 0, cudaSuccess. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int gdbext_device;                        /* the current one */
static size_t reserved = (size_t)1 << 46; /* addresses that are handed out; nothing is read there */

int cudaGetDevice(int *device) { return *device = gdbext_device, 0; }
int cudaSetDevice(int device) { return gdbext_device = device, 0; }
int cudaGetDeviceCount(int *count) { return *count = 8, 0; }
int cudaMalloc(void **at, size_t bytes) { return *at = aligned_alloc(512, bytes), 0; }
int cudaFree(void *at) { return free(at), 0; }
int cudaMemGetInfo(size_t *available, size_t *total) { return *available = *total = (size_t)1 << 36, 0; }
int cudaStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, 0; }
const char *cudaGetErrorString(int error) { return (void)error, "an error of the stand-in"; }
const char *cudaGetErrorName(int error) { return (void)error, "error"; }
int cudaEventQuery(void *event) { return (void)event, 600; } /* cudaErrorNotReady */
int cudaGetDeviceProperties(char *properties, int device) {
  return (void)device, *(size_t *)(properties + 288) = (size_t)1 << 36, 0;
}
int cudaGetDeviceProperties_v2(char *properties, int device) { return cudaGetDeviceProperties(properties, device); }

/* Expandable segments are made by the driver; a libcuda.so.1 and libnvidia-ml.so.1 of this very library answer for it. */
int cuMemAddressReserve(void **at, size_t bytes, size_t alignment, void *wish, unsigned long long flags) {
  return (void)alignment, (void)wish, (void)flags, *at = (void *)(reserved += (bytes + ((size_t)1 << 40)) & -((size_t)1 << 30)),
                                                   0;
}
int cuMemCreate(unsigned long long *handle, size_t bytes, const void *how, unsigned long long flags) {
  return (void)bytes, (void)how, (void)flags, *handle = 1, 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **at, unsigned version, unsigned long long flags, int *found) {
  return (void)version, (void)flags, *at = dlsym(RTLD_DEFAULT, name), *found = 0, 0;
}
int cudaGetDriverEntryPoint(const char *name, void **at, unsigned long long flags, int *found) {
  return (void)flags, *at = dlsym(RTLD_DEFAULT, name), *found = 0, 0;
}
