// Where torch's CUDA caching allocator keeps segments and blocks, measured as the counters are (probe.cpp): one device's
// allocator is given small and large blocks, streams, private pools, a block that waits for an event, and expandable segments;
// what snapshot() says of them is looked for in its memory. Sets are libstdc++'s red-black trees, tables ska::flat_hash_map's.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#if __has_include(<c10/cuda/CUDAAllocatorConfig.h>)
#include <c10/cuda/CUDAAllocatorConfig.h>
#endif
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define GDBEXT_PEERS c10::cuda::detail::init_p2p_access_cache(3)
#else
#define GDBEXT_PEERS
#endif
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(c10::DeviceIndex));  // no header declares it
}  // namespace c10::cuda::_internal

namespace blocks {

namespace alloc = c10::cuda::CUDACachingAllocator;
constexpr size_t kBlock = 256, kPool = 320, kAllocator = 1 << 13;  // bytes that are searched

struct Row {  // a block as snapshot() has it
  uint64_t address, size, requested, stream, segment;
  bool allocated, active, large, expandable;
  std::pair<uint64_t, uint64_t> pool;
};

static uint64_t word(uint64_t at) {
  uint64_t value = 0;
  return look(at, &value, sizeof value) ? value : ~0ull;
}

static uint8_t byte(uint64_t at) {
  uint8_t value = 0xee;
  look(at, &value, 1);
  return value;
}

static size_t only(const std::string &what, size_t end, size_t step, const std::function<bool(size_t)> &holds,
                   bool several = false) {
  std::vector<size_t> found;
  for (size_t at = 0; at < end; at += step)
    if (holds(at)) found.push_back(at);
  if (found.size() == 1 || (several && found.size())) return found[0];
  fprintf(stderr, "%s was found %zu times\n", what.c_str(), found.size());
  _exit(1);
}

// The values, each of `words` words, of a table at `at`; none where there can be no table. Its head: entries, slots - 1, (u8 of
// the hash policy, i8 of the longest probe, float), count; an entry: i8 of the distance (below 0: empty), value.
static std::vector<std::vector<uint64_t>> table(uint64_t at, size_t words) {
  uint64_t head[4], size = 8 + 8 * words;
  if (!look(at, head, sizeof head) || head[1] & (head[1] + 1) || head[1] >> 20 || !head[3] || head[3] > head[1] + 1) return {};
  const size_t slots = head[1] + byte(at + 17);
  std::vector<std::vector<uint64_t>> found;
  for (size_t i = 0; i < slots; i++) {
    std::vector<uint64_t> entry(1 + words);
    if (!look(head[0] + i * size, entry.data(), size)) return {};
    if (static_cast<int8_t>(entry[0]) >= 0) found.emplace_back(entry.begin() + 1, entry.end());
  }
  return found.size() == head[3] ? found : std::vector<std::vector<uint64_t>>{};
}

// The pointers in a set whose tree's header is at `at`: color, root, first, last, count; a node: color, parent, left, right,
// value.
static std::vector<uint64_t> set(uint64_t at) {
  std::vector<uint64_t> found, open{word(at + 8)};
  const uint64_t count = word(at + 32);
  if (!count || count > 1000 || word(open[0] + 8) != at) return {};
  while (!open.empty()) {
    const uint64_t node = open.back();
    open.pop_back();
    if (!node) continue;
    if (found.size() == count) return {};
    found.push_back(word(node + 32));
    open.push_back(word(node + 16));
    open.push_back(word(node + 24));
  }
  return found.size() == count ? found : std::vector<uint64_t>{};
}

static void to_pool(int device, cudaStream_t stream, std::pair<uint64_t, uint64_t> id, bool begin) {
  const c10::cuda::MempoolId_t pool{id.first, id.second};
#if GDBEXT_TORCH_MINOR < 3
  if (begin)
    alloc::get()->beginAllocateStreamToPool(device, stream, pool);
  else
    alloc::get()->endAllocateStreamToPool(device, stream);
#else
  if (begin)
    alloc::get()->beginAllocateToPool(device, pool, [stream](cudaStream_t one) { return one == stream; });
  else
    alloc::get()->endAllocateToPool(device, pool);
#endif
}

static void fill(int device) {  // each kind of pool gets blocks in use and free ones, as many as no other
  const auto stream = [](int i) { return reinterpret_cast<cudaStream_t>(uint64_t(0x5550 + 16 * i)); };
  int turn = 0;
  const auto some = [&](int pool, int count, size_t bytes) {
    std::vector<void *> kept;
    for (int i = 0; i < count; i++) kept.push_back(alloc::get()->raw_alloc_with_stream(bytes + 1000 * turn++, stream(pool)));
    for (int i = 1; i < count; i += 2) alloc::get()->raw_deallocate(kept[i]);
  };
  some(0, 5, 3000), some(0, 9, 2 << 20);
  for (int pool = 1; pool < 3; pool++) {
    to_pool(device, stream(pool), {pool == 1 ? 0 : 9, pool == 1 ? 7 : 0}, true);
    some(pool, 4 + pool * 4, 5000), some(pool, 10 + pool * 6, 3 << 20);
    to_pool(device, stream(pool), {pool == 1 ? 0 : 9, pool == 1 ? 7 : 0}, false);
  }
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  c10::DataPtr waits = alloc::get()->allocate(777777);
  alloc::get()->recordStream(waits, c10::cuda::getStreamFromExternal(stream(5), device));
  waits.clear();  // until the event comes, which never does
  GDBEXT_PEERS;
  alloc::setAllocatorSettings("expandable_segments:True");
  some(6, 5, 4000), some(6, 7, 30 << 20);
}

static std::vector<Row> truth(int device) {
  std::vector<Row> rows;
  for (const auto &s : alloc::snapshot().segments) {
    if (s.device != device) continue;
    uint64_t at = (uint64_t)s.address;
    for (const auto &b : s.blocks) {
      rows.push_back({at,
                      (uint64_t)b.size,
                      (uint64_t)b.requested_size,
                      (uint64_t)s.stream,
                      (uint64_t)s.address,  // casts that each release takes
                      b.allocated,
                      b.active,
                      s.is_large,
                      s.is_expandable,
                      {s.owner_private_pool_id.first, s.owner_private_pool_id.second}});
      at += b.size;
    }
  }
  return rows;
}

// Prints what is to be added to the row: the offsets of DeviceCachingAllocator, Block, BlockPool and PrivatePool.
static void measure(uint64_t device_allocator, int device) {
  fill(device);
  const std::vector<Row> rows = truth(device);
  std::map<uint64_t, const Row *> by_address;
  std::set<uint64_t> active;
  for (const Row &r : rows) {
    by_address[r.address] = &r;
    if (r.active) active.insert(r.address);
  }
  size_t ptr = 0;
  const size_t active_blocks = only("active_blocks", kAllocator, 8, [&](size_t at) {
    const auto found = table(device_allocator + at, 1);
    for (size_t o = 0; found.size() == active.size() && o < kBlock; o += 8) {
      std::set<uint64_t> got;
      for (const auto &b : found) got.insert(word(b[0] + o));
      if (got == active) return ptr = o, true;
    }
    return false;
  });
  // from the active blocks to those beside them: `next`, which lead to blocks that snapshot() has or that are not mapped
  std::map<uint64_t, const Row *> block;  // address of a Block -> its row
  for (const auto &b : table(device_allocator + active_blocks, 1)) block[b[0]] = by_address[word(b[0] + ptr)];
  const auto neighbour = [&](const char *name, bool after) {
    return only(name, kBlock, 8, [&](size_t at) {
      size_t tried = 0;
      for (const auto &b : block) {
        const uint64_t to = word(b.first + at);
        const auto wanted = after ? by_address.find(b.second->address + b.second->size) : by_address.find(word(to + ptr));
        const bool inside = after ? wanted != by_address.end() && wanted->second->segment == b.second->segment
                                  : b.second->address != b.second->segment;
        if (!inside) continue;
        tried++;
        if (after ? word(to + ptr) != wanted->first
                  : wanted == by_address.end() || wanted->first + wanted->second->size != b.second->address)
          return false;
      }
      return tried > 5;
    });
  };
  const size_t next = neighbour("Block.next", true), prev = neighbour("Block.prev", false);
  std::set<uint64_t> unmapped;
  for (bool more = true; more;) {
    more = false;
    for (const auto &b : std::map<uint64_t, const Row *>(block))
      for (const uint64_t to : {word(b.first + next), word(b.first + prev)}) {
        if (!to || block.count(to)) continue;
        const auto row = by_address.find(word(to + ptr));
        if (row != by_address.end())
          block[to] = row->second, more = true;
        else
          unmapped.insert(to);
      }
  }
  const auto each = [&](const std::function<bool(uint64_t, const Row &)> &holds) {
    return std::all_of(block.begin(), block.end(), [&](const auto &b) { return holds(b.first, *b.second); });
  };
  const auto words = [&](const char *name, uint64_t Row::*field) {
    return only(name, kBlock, 8,
                [&](size_t at) { return each([&](uint64_t b, const Row &r) { return word(b + at) == r.*field; }); });
  };
  const size_t size = words("Block.size", &Row::size), stream = words("Block.stream", &Row::stream);
  const size_t requested = only("Block.requested_size", kBlock, 8, [&](size_t at) {
    return each([&](uint64_t b, const Row &r) { return !r.active || word(b + at) == r.requested; });
  });
  const size_t allocated = only("Block.allocated", kBlock, 1, [&](size_t at) {
    return each([&](uint64_t b, const Row &r) { return byte(b + at) == r.allocated; });
  });
  const size_t expandable = only("Block.expandable_segment_", kBlock, 8, [&](size_t at) {
    return at != size && at != ptr && each([&](uint64_t b, const Row &r) { return (word(b + at) != 0) == r.expandable; });
  });
  const size_t mapped = only("Block.mapped", kBlock, 1, [&](size_t at) {
    return !unmapped.empty() && each([&](uint64_t b, const Row &) { return byte(b + at) == 1; }) &&
           std::all_of(unmapped.begin(), unmapped.end(), [&](uint64_t b) { return byte(b + at) == 0; });
  });
  // one BlockPool for each (large, private pool)
  std::map<std::pair<bool, std::pair<uint64_t, uint64_t>>, std::set<uint64_t>> free;
  std::map<std::pair<bool, std::pair<uint64_t, uint64_t>>, uint64_t> pools;
  for (const Row &r : rows)
    if (!r.active) free[{r.large, r.pool}].insert(r.address);
  const size_t pool = only("Block.pool", kBlock, 8, [&](size_t at) {
    std::map<std::pair<bool, std::pair<uint64_t, uint64_t>>, uint64_t> found;
    std::set<uint64_t> apart;
    for (const auto &b : block) {
      const uint64_t to = word(b.first + at);
      auto &known = found[{b.second->large, b.second->pool}];
      if (to < 4096 || to == ~0ull || (known && known != to)) return false;
      known = to, apart.insert(to);
    }
    if (apart.size() != found.size() || found.size() != 6) return false;
    return pools = found, true;
  });
  const auto inside = [&](bool large) { return size_t(pools.at({large, {0, 0}}) - device_allocator); };
  const size_t small_blocks = inside(false), large_blocks = inside(true);
  if (small_blocks >= kAllocator || large_blocks >= kAllocator) fprintf(stderr, "the pools are not in the allocator\n"), _exit(1);
  const size_t tree = only(
      "BlockPool.blocks", kPool, 8,
      [&](size_t at) {
        return std::all_of(pools.begin(), pools.end(), [&](const auto &p) {
          std::set<uint64_t> got;
          for (const uint64_t b : set(p.second + at)) got.insert(word(b + ptr));
          return got == free[p.first];
        });
      },
      true);  // 2.14 keeps it in two orders
  const size_t is_small = only("BlockPool.is_small", 160, 1, [&](size_t at) {
    return std::all_of(pools.begin(), pools.end(), [&](const auto &p) { return byte(p.second + at) == !p.first.first; });
  });
  size_t small_in = 0, large_in = 0;
  const size_t graph_pools = only("graph_pools", kAllocator, 8, [&](size_t at) {
    const auto found = table(device_allocator + at, 3);
    if (found.size() != 2) return false;
    std::set<std::pair<size_t, size_t>> places;
    for (const auto &p : found) {
      const auto mine = [&](bool large) { return pools.find({large, {p[0], p[1]}}); };
      if (mine(true) == pools.end() || mine(false) == pools.end()) return false;
      places.insert({mine(false)->second - p[2], mine(true)->second - p[2]});
    }
    if (places.size() != 1 || places.begin()->first >= 2 * kPool || places.begin()->second >= 2 * kPool) return false;
    return small_in = places.begin()->first, large_in = places.begin()->second, true;
  });
  const auto row = [](const char *before, std::initializer_list<std::pair<const char *, size_t>> fields) {
    for (const auto &f : fields) printf("%s\"%s\": %zu", before, f.first, f.second), before = ", ";
    printf("}, ");
  };
  row("", {{"small_blocks", small_blocks},
           {"large_blocks", large_blocks},
           {"active_blocks", active_blocks},
           {"graph_pools", graph_pools}});
  row("\"Block\": {", {{"stream", stream},
                       {"size", size},
                       {"requested_size", requested},
                       {"pool", pool},
                       {"ptr", ptr},
                       {"allocated", allocated},
                       {"mapped", mapped},
                       {"prev", prev},
                       {"next", next},
                       {"expandable_segment_", expandable},
                       {"sizeof", expandable + 8}});
  row("\"BlockPool\": {", {{"blocks", tree}, {"is_small", is_small}});
  row("\"PrivatePool\": {", {{"small_blocks", small_in}, {"large_blocks", large_in}});
}

// Prints the allocator's address and the blocks of all devices, each [device, address, size, requested size, allocated, active,
// stream, large, expandable, pool id, segment].
static void tell(int devices) {
  printf("{\"allocator\": %zu, \"blocks\": [", reinterpret_cast<size_t>(alloc::get()));
  const char *comma = "";
  for (int device = 0; device < devices; device++)
    for (const Row &r : truth(device)) {
      printf("%s[%d, %zu, %zu, %zu, %d, %d, %zu, %d, %d, [%zu, %zu], %zu]", comma, device, r.address, r.size, r.requested,
             r.allocated, r.active, r.stream, r.large, r.expandable, r.pool.first, r.pool.second, r.segment);
      comma = ", ";
    }
  printf("]}\n");
}

}  // namespace blocks
