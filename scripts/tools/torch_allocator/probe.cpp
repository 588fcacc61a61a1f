// Where torch's CUDA caching allocator keeps its counters, measured: it runs the allocator of a real libc10_cuda on a stand-in
// of the CUDA runtime (cudart.c), asks it for its counters, and looks for them in the allocator's own memory.
// Prints a line of JSON: offsets in DeviceStats from the header, the others as they were found; and a second one, what snapshot()
// says, with the address of the allocator. Then it waits for its input.
#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

extern int gdbext_device;
namespace alloc = c10::cuda::CUDACachingAllocator;
using Stats = std::decay_t<decltype(alloc::getDeviceStats(0))>;
constexpr int kDevices = 3;
constexpr size_t kObject = 1 << 16, kDevice = 1 << 12;  // bytes that are searched

static bool look(uint64_t at, void *into, size_t bytes) {  // no fault where nothing is mapped
  iovec here{into, bytes}, there{reinterpret_cast<void *>(at), bytes};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

#include "blocks.h"

static bool same(uint64_t at, const void *want, size_t bytes) {
  std::vector<char> got(bytes);
  return look(at, got.data(), bytes) && !memcmp(got.data(), want, bytes);
}

static bool holds(uint64_t device, size_t at, int index) {  // later releases have a hash map between these two
  const Stats want = alloc::getDeviceStats(index);
  return same(device + at, &want, offsetof(Stats, reserved_bytes) + sizeof want.reserved_bytes) &&
         same(device + at + offsetof(Stats, active_bytes), &want.active_bytes, 3 * sizeof want.active_bytes);
}

#define FIELD(name) printf("\"%s\": %zu, ", #name, offsetof(Stats, name))

int main() {
  alloc::init(kDevices);
  auto *allocator = alloc::get();
  for (int device = 0; device < kDevices; device++) {
    gdbext_device = device;
    std::vector<void *> kept;
    for (int i = 0; i < 40 + device; i++) kept.push_back(allocator->raw_alloc(1000 + 300000 * i));
    for (size_t i = 0; i < kept.size(); i += 3) allocator->raw_deallocate(kept[i]);
  }
  const uint64_t object = reinterpret_cast<uint64_t>(allocator);
  int found = 0;
  size_t vector_at = 0, stats_at = 0;
  for (size_t at = 8; at + 24 <= kObject; at += 8) {
    uint64_t v[3], devices[kDevices];
    if (!look(object + at, v, sizeof v) || v[1] - v[0] != 8 * kDevices || v[2] < v[1] || v[0] % 8) continue;
    if (!look(v[0], devices, sizeof devices)) continue;
    for (size_t inside = 0; inside < kDevice; inside += 8) {
      bool all = true;
      for (int i = 0; i < kDevices && all; i++) all = holds(devices[i], inside, i);
      if (all) vector_at = at, stats_at = inside, found++;
    }
  }
  if (found != 1) return fprintf(stderr, "the counters were found %d times in the allocator\n", found), 1;
  printf("{\"NativeCachingAllocator\": {\"device_allocator\": %zu}, \"DeviceCachingAllocator\": {\"stats\": %zu, ", vector_at,
         stats_at);
  gdbext_device = 1;
  blocks::measure(blocks::word(blocks::word(object + vector_at) + 8), 1);
  printf("\"DeviceStats\": {");
  FIELD(allocation), FIELD(segment), FIELD(active), FIELD(inactive_split), FIELD(allocated_bytes), FIELD(reserved_bytes);
  FIELD(active_bytes), FIELD(inactive_split_bytes), FIELD(requested_bytes), FIELD(num_alloc_retries), FIELD(num_ooms);
  printf("\"sizeof\": %zu}, ", sizeof(Stats));
  using Stat = std::decay_t<decltype(Stats().allocation[0])>;
  printf("\"Stat\": {\"current\": %zu, \"peak\": %zu, \"allocated\": %zu, \"freed\": %zu, \"sizeof\": %zu}}\n",
         offsetof(Stat, current), offsetof(Stat, peak), offsetof(Stat, allocated), offsetof(Stat, freed), sizeof(Stat));
  blocks::tell(kDevices);
  fflush(stdout);
  getchar();  // somebody reads all that from outside
  _exit(0);   // the runtime is no real one: nothing to shut down
}
