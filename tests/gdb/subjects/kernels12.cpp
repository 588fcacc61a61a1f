// Host code as nvcc 12 makes it: the kernel's host function calls a stub, the stub launches by the host function's address. No GPU code.
#include <cstdio>
struct dim3 { unsigned x, y, z; };
struct config { dim3 grid, block; unsigned long shared; void *stream, *attributes; unsigned count; };
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, unsigned long, void*);
extern "C" int cudaLaunchKernelExC(const config*, const void*, void**);
static thread_local dim3 grid, block;  // the runtime keeps these between <<< >>> and the stub
static thread_local unsigned long shared;
static thread_local void* stream;

namespace vllm {
template <class T, int HEAD, int BLOCK> __attribute__((noinline)) void paged_attention_v1_kernel(T* out, const T* q, float scale, int heads, bool flag) {
  void* args[] = {&out, &q, &scale, &heads, &flag};
  cudaLaunchKernel((void*)&paged_attention_v1_kernel<T, HEAD, BLOCK>, grid, block, args, shared, stream);
}
template <class T> __attribute__((noinline)) void other_kernel(T* out) {
  void* args[] = {&out};
  cudaLaunchKernel((void*)&other_kernel<T>, grid, block, args, shared, stream);
}
}  // namespace vllm
static float numbers[4096];

extern "C" void attend(int i) {
  grid = {8, (unsigned)i + 1, 1}, block = {128, 1, 1}, shared = 2048, stream = (void*)0x7;
  vllm::other_kernel<float>(numbers);
  grid = {8, (unsigned)i + 1, 1}, block = {128, 1, 1};
  printf("{\"kernel\": \"paged_attention_v1_kernel\", \"grid\": [8, %d, 1], \"block\": [128, 1, 1], \"cluster\": [0, 0, 0], \"shared\": 2048, \"stream\": 7, "
         "\"args\": [%zu, %zu, 0.5, %d, true]}\n", i + 1, (size_t)numbers, (size_t)(numbers + 64), 100 + i);
  fflush(stdout);
  vllm::paged_attention_v1_kernel<float, 64, 16>(numbers, numbers + 64, 0.5f, 100 + i, true);
}
extern "C" void attend_by_address(int i) {  // cudaLaunchKernelEx passes by no stub
  float *out = numbers, *q = numbers + 64;
  float scale = 0.25f;
  int heads = i;
  bool flag = false;
  void* args[] = {&out, &q, &scale, &heads, &flag};
  config c = {{4, 2, 1}, {64, 1, 1}, 512, (void*)0x9, nullptr, 0};
  printf("{\"kernel\": \"paged_attention_v1_kernel\", \"grid\": [4, 2, 1], \"block\": [64, 1, 1], \"cluster\": [0, 0, 0], \"shared\": 512, \"stream\": 9, "
         "\"args\": [%zu, %zu, 0.25, %d, false]}\n", (size_t)out, (size_t)q, i);
  fflush(stdout);
  cudaLaunchKernelExC(&c, (void*)&vllm::paged_attention_v1_kernel<float, 64, 16>, args);
}
