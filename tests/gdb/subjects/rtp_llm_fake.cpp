// A FAKE of RTP-LLM: its type names, member names and containers (facts/kv-cache.md, section 5), none of its code. It builds a block pool
// with two streams that share a prefix and a cached block, breaks it in the way named on the command line, says "READY", and waits in
// NormalEngine::loop.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <list>
#include <memory>
#include <set>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace rtp_llm {
struct BlockPoolConfig { uint32_t block_num = 0; };
struct CacheConfig { uint32_t seq_size_per_block = 8; };
struct BlockRefCounter {
    std::unordered_map<int, int> ref_counter;
    uint32_t busy_block_num_ = 0, total_block_nums_ = 0;
    void add(int b) { if (ref_counter[b]++ == 0) busy_block_num_++; }
};
struct BlockPool {
    BlockPoolConfig config_;
    std::set<int32_t> free_block_ids_;
    BlockRefCounter request_ref_counter_, connector_ref_counter_, req_con_ref_counter_, block_cache_ref_counter_, req_cache_ref_counter_;
    size_t freeBlocksNum() const { puts("READY"); fflush(stdout); for (;;) pause(); }
    void requestFree(int b) {  // stops half-way: the counter is down, the block not yet free
        if (--request_ref_counter_.ref_counter[b] == 0) request_ref_counter_.busy_block_num_--;
        puts("READY"); fflush(stdout); for (;;) pause();
    }
};
struct KVCacheAllocator {
    virtual ~KVCacheAllocator() {}
    std::shared_ptr<BlockPool> block_pool_ = std::make_shared<BlockPool>();
};
struct SingleTypeKVCacheAllocator: KVCacheAllocator { int extra = 1; };
struct KVCacheManager {
    CacheConfig config_;
    std::shared_ptr<KVCacheAllocator> allocator_ = std::make_shared<SingleTypeKVCacheAllocator>();
};
struct BlockIds { std::vector<int32_t> block_indices, kernel_block_indices_; size_t kernel_blocks_per_kv_block_ = 1; };
struct KVCacheResource { std::vector<std::shared_ptr<BlockIds>> group_block_ids; };
struct BatchKVCacheResource { std::vector<KVCacheResource> batch_resource; };
struct StreamCacheResource { std::shared_ptr<BatchKVCacheResource> batch_kv_cache_resource_ = std::make_shared<BatchKVCacheResource>(); };
struct GenerateInput { int64_t request_id = 0; };
struct GenerateStream {
    virtual ~GenerateStream() {}
    std::shared_ptr<GenerateInput> generate_input_ = std::make_shared<GenerateInput>();
    std::shared_ptr<StreamCacheResource> stream_cache_resource_ = std::make_shared<StreamCacheResource>();
};
struct NormalGenerateStream: GenerateStream {};
using GenerateStreamPtr = std::shared_ptr<GenerateStream>;
struct SchedulerBase { virtual ~SchedulerBase() {} };
struct FIFOScheduler: SchedulerBase { std::list<GenerateStreamPtr> waiting_streams_, running_streams_; };
struct CacheManager {  // until about 2026: free blocks and counters in the manager itself
    int seq_size_per_block_ = 8;
    std::set<int> free_blocks_index_;
    BlockRefCounter block_ref_counter_, query_ref_counter_;
    int available_blocks_ = 0;
};
#ifdef OLDER
struct ResourceContext { std::shared_ptr<CacheManager> cache_manager = std::make_shared<CacheManager>(); };
#else
struct ResourceContext { std::shared_ptr<KVCacheManager> cache_manager = std::make_shared<KVCacheManager>(); };
#endif
struct EngineBase { virtual ~EngineBase() {} ResourceContext resource_context_; };
struct NormalEngine: EngineBase {
    std::unique_ptr<SchedulerBase> scheduler_;
    void loop(BlockPool* stop_in = nullptr, int block = 0) {
        if (stop_in) { block ? stop_in->requestFree(block) : (void)stop_in->freeBlocksNum(); }
        puts("READY"); fflush(stdout); for (;;) pause();
    }
};
}  // namespace rtp_llm
using namespace rtp_llm;

static GenerateStreamPtr stream(int64_t id, std::vector<int32_t> blocks, BlockPool& pool) {
    auto s = std::make_shared<NormalGenerateStream>();
    s->generate_input_->request_id = id;
    auto ids = std::make_shared<BlockIds>();
    ids->block_indices = blocks;
    KVCacheResource resource;
    resource.group_block_ids.push_back(ids);
    s->stream_cache_resource_->batch_kv_cache_resource_->batch_resource.push_back(resource);
    for (int b : blocks) { pool.request_ref_counter_.add(b); pool.free_block_ids_.erase(b); }
    return s;
}

int main(int argc, char** argv) {
    NormalEngine engine;
    BlockPool copied;  // OLDER: what is built in it is handed to the manager below
#ifdef OLDER
    auto& pool = copied;
#else
    auto& pool = *engine.resource_context_.cache_manager->allocator_->block_pool_;
#endif
    pool.config_.block_num = 32;
    for (int i = 1; i < 32; i++) pool.free_block_ids_.insert(i);
    auto* scheduler = new FIFOScheduler;
    engine.scheduler_.reset(scheduler);
    scheduler->running_streams_.push_back(stream(101, {1, 2, 3}, pool));
    scheduler->running_streams_.push_back(stream(102, {1, 2, 7, 8}, pool));
    scheduler->waiting_streams_.push_back(stream(103, {}, pool));
    for (int b : {1, 2, 20}) { pool.block_cache_ref_counter_.add(b); pool.free_block_ids_.erase(b); }
    const char* fault = argc > 1 ? argv[1] : "none";
    if (!strcmp(fault, "leak")) pool.free_block_ids_.erase(15);
    if (!strcmp(fault, "freed-used")) pool.free_block_ids_.insert(7);
    if (!strcmp(fault, "zero-freed")) pool.free_block_ids_.insert(0);
    if (!strcmp(fault, "count-high")) pool.request_ref_counter_.ref_counter[3] = 4;
    if (!strcmp(fault, "negative")) pool.request_ref_counter_.ref_counter[9] = -1;
    if (!strcmp(fault, "busy")) pool.request_ref_counter_.busy_block_num_ += 2;
#ifdef OLDER
    auto& manager = *engine.resource_context_.cache_manager;
    manager.free_blocks_index_ = pool.free_block_ids_;
    manager.query_ref_counter_ = pool.request_ref_counter_;
    manager.block_ref_counter_.total_block_nums_ = 32;
    for (auto& counter : {pool.request_ref_counter_, pool.block_cache_ref_counter_})
        for (auto& entry : counter.ref_counter)
            for (int n = 0; n < entry.second; n++) manager.block_ref_counter_.add(entry.first);
    if (!strcmp(fault, "negative")) manager.block_ref_counter_.ref_counter[9] = -1;
    if (!strcmp(fault, "busy")) manager.block_ref_counter_.busy_block_num_ += 2;
#endif
#ifndef OLDER
    if (!strcmp(fault, "half-free") || !strcmp(fault, "half-free-used") || !strcmp(fault, "asked-used")) {
        if (strcmp(fault, "half-free")) pool.free_block_ids_.insert(7);
        if (strcmp(fault, "asked-used")) scheduler->running_streams_.front()->stream_cache_resource_->batch_kv_cache_resource_->batch_resource[0].group_block_ids[0]->block_indices.pop_back();
        engine.loop(&pool, !strcmp(fault, "asked-used") ? 0 : 3);
    }
#endif
    engine.loop();
}
