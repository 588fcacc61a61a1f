// A FAKE of TensorRT-LLM's KV cache manager: its type names, member names and containers (facts/kv-cache.md, section 6), none of its code.
// Two sequences share a prefix; the fault named on the command line is planted; it says "READY" and waits in KVCacheManager::addToken.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace tensorrt_llm::batch_manager::kv_cache_manager {
using SizeType32 = int32_t;
class KVCacheBlock;
using BlockPtr = std::shared_ptr<KVCacheBlock>;
using FreeBlocksQueue = std::list<BlockPtr>;
struct KVCacheBlock {
    SizeType32 mBlockId = 0, mRefCount = 0;
    std::optional<FreeBlocksQueue::iterator> mFreeBlockIterator;
};
struct BaseEvictionPolicy { virtual ~BaseEvictionPolicy() {} };
struct LRUEvictionPolicy: BaseEvictionPolicy {
    std::vector<std::vector<FreeBlocksQueue>> mFreeQueues;
    std::vector<SizeType32> mNumFreeBlocksPerLevel;
    void releaseBlock(BlockPtr block) {  // stops half-way: in its queue, not yet counted
        auto& queue = mFreeQueues[0][0];
        block->mFreeBlockIterator = queue.insert(queue.end(), block);
        puts("READY"); fflush(stdout); for (;;) pause();
    }
};
struct WindowBlockManager {
    SizeType32 mNumPrimaryBlocks = 12, mNumSecondaryBlocks = 4, mTokensPerBlock = 32;
    std::unordered_map<uint64_t, std::vector<BlockPtr>> mAllocatedBlocksPerSeq;
    std::vector<BlockPtr> mAllBlocksById;
    std::shared_ptr<BaseEvictionPolicy> mEvictionPolicy;
};
struct BlockManager { std::map<SizeType32, WindowBlockManager> mWindowBlockManagers; };
struct KVCacheManager {
    virtual ~KVCacheManager() {}
    BlockManager mBlockManager;
    void addToken(uint64_t, LRUEvictionPolicy* policy = nullptr, BlockPtr block = nullptr) {
        if (policy) policy->releaseBlock(block);
        puts("READY"); fflush(stdout); for (;;) pause();
    }
};
}  // namespace tensorrt_llm::batch_manager::kv_cache_manager
using namespace tensorrt_llm::batch_manager::kv_cache_manager;

static void give_back(LRUEvictionPolicy& policy, BlockPtr block, int level) {
    auto& queue = policy.mFreeQueues[level][block->mBlockId % 2];
    block->mFreeBlockIterator = queue.insert(queue.end(), block);
    policy.mNumFreeBlocksPerLevel[level]++;
}

int main(int argc, char** argv) {
    KVCacheManager manager;
    for (int window : {128, 4096}) {
        auto& w = manager.mBlockManager.mWindowBlockManagers[window];
        auto policy = std::make_shared<LRUEvictionPolicy>();
        policy->mFreeQueues = {std::vector<FreeBlocksQueue>(2), std::vector<FreeBlocksQueue>(2)};
        policy->mNumFreeBlocksPerLevel = {0, 0};
        w.mEvictionPolicy = policy;
        for (int i = 0; i < 16; i++) {
            w.mAllBlocksById.push_back(std::make_shared<KVCacheBlock>());
            w.mAllBlocksById[i]->mBlockId = i;
        }
        auto take = [&](uint64_t seq, std::vector<int> ids) {
            for (int i : ids) { w.mAllocatedBlocksPerSeq[seq].push_back(w.mAllBlocksById[i]); w.mAllBlocksById[i]->mRefCount++; }
        };
        take(7, {0, 1, 2});
        take(9, {0, 1, 5, 6});
        for (auto& block : w.mAllBlocksById) if (!block->mRefCount) give_back(*policy, block, block->mBlockId >= 12);
        const char* fault = argc > 1 ? argv[1] : "none";
        auto& b = w.mAllBlocksById;
        if (!strcmp(fault, "leak")) b[2]->mRefCount = 0, w.mAllocatedBlocksPerSeq[7].pop_back();
        if (!strcmp(fault, "count-low")) b[0]->mRefCount = 1;
        if (!strcmp(fault, "freed-used")) give_back(*policy, b[5], 0);
        if (!strcmp(fault, "wrong-level")) give_back(*policy, b[2], 1), b[2]->mRefCount = 0, w.mAllocatedBlocksPerSeq[7].pop_back();
        if (!strcmp(fault, "counter")) policy->mNumFreeBlocksPerLevel[0]++;
        if (!strcmp(fault, "iterator")) b[8]->mFreeBlockIterator.reset();
        if (!strcmp(fault, "swapped")) std::swap(b[3], b[4]);
    }
    auto& w = manager.mBlockManager.mWindowBlockManagers[128];
    if (argc > 1 && !strcmp(argv[1], "half-released")) {
        auto block = w.mAllocatedBlocksPerSeq[7].back();
        w.mAllocatedBlocksPerSeq[7].pop_back();
        block->mRefCount--;
        manager.addToken(7, static_cast<LRUEvictionPolicy*>(w.mEvictionPolicy.get()), block);
    }
    manager.addToken(7);
}
