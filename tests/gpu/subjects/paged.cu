// A paged attention that runs: one block for each (head, sequence), as vLLM's v1. Writes what it did as JSON; with "fault" a block table entry points
// far outside the cache; with "hang" the kernel never ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

const int HEADS = 8, SEQS = 4, SIZE = 32, BLOCK = 16, BLOCKS = 64, TABLE = 4;

namespace vllm {
__global__ void paged_attention_v1_kernel(float* out, const float* q, const float* k_cache, const int* block_tables, const int* seq_lens, int hang, volatile int* started) {
  const int head = blockIdx.x, seq = blockIdx.y, lane = threadIdx.x;
  float sum = 0;
  for (int block_idx = 0; block_idx * BLOCK < seq_lens[seq]; block_idx++) {
    const long physical = block_tables[seq * TABLE + block_idx];
    for (int slot = 0; slot < BLOCK; slot++) sum += q[(seq * HEADS + head) * SIZE + lane] * k_cache[((physical * HEADS + head) * BLOCK + slot) * SIZE + lane];
  }
  if (hang) *started = 1;
  while (hang) hang = __float_as_int(sum) != 12345;
  out[(seq * HEADS + head) * SIZE + lane] = sum;
}
}

int main(int argc, char** argv) {
  const bool fault = argc > 1 && !strcmp(argv[1], "fault"), hang = argc > 1 && !strcmp(argv[1], "hang");
  std::vector<float> q(SEQS * HEADS * SIZE), cache((size_t)BLOCKS * HEADS * BLOCK * SIZE), out(q.size());
  std::vector<int> tables(SEQS * TABLE), lens(SEQS);
  for (size_t i = 0; i < q.size(); i++) q[i] = i % 7;
  for (size_t i = 0; i < cache.size(); i++) cache[i] = i % 5;
  for (int s = 0; s < SEQS; s++) {
    lens[s] = 16 * (s + 1);
    for (int i = 0; i < TABLE; i++) tables[s * TABLE + i] = (s * 7 + i * 3) % BLOCKS;
  }
  if (fault) tables[2 * TABLE + 1] = 1 << 28;
  float *dq, *dk, *dout;
  int *dt, *dl;
  if (cudaMalloc(&dq, q.size() * 4) || cudaMalloc(&dk, cache.size() * 4) || cudaMalloc(&dout, out.size() * 4) || cudaMalloc(&dt, tables.size() * 4) ||
      cudaMalloc(&dl, lens.size() * 4))
    return puts(cudaGetErrorString(cudaGetLastError())), 1;
  int *started, *started_there;  // the kernel of "hang" says here that it runs
  if (cudaHostAlloc(&started, sizeof *started, cudaHostAllocMapped) || cudaHostGetDevicePointer(&started_there, started, 0))
    return puts(cudaGetErrorString(cudaGetLastError())), 1;
  *started = 0;
  cudaMemcpy(dq, q.data(), q.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(dk, cache.data(), cache.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(dt, tables.data(), tables.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(dl, lens.data(), lens.size() * 4, cudaMemcpyHostToDevice);
  printf("{\"q\": %zu, \"k_cache\": %zu, \"block_tables\": %zu}\n", (size_t)dq, (size_t)dk, (size_t)dt);
  fflush(stdout);
  vllm::paged_attention_v1_kernel<<<dim3(HEADS, SEQS), SIZE>>>(dout, dq, dk, dt, dl, hang, started_there);
  if (hang) {
    while (!*(volatile int*)started) {}
    puts("{\"running\": true}"), fflush(stdout);
  }
  const int error = cudaDeviceSynchronize();
  printf("{\"error\": %d}\n", error);
  return error != 0;
}
