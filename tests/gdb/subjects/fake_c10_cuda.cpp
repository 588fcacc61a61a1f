// A stand-in of libc10_cuda.so: the allocator in force under torch's own name, of torch's own classes by their names. What lies in it
// is written by cuda_allocator.py.
namespace c10::cuda::CUDACachingAllocator {
struct CUDAAllocator {
    virtual ~CUDAAllocator() {}
    char body[1 << 16] = {};
};
namespace Native {
struct NativeCachingAllocator : CUDAAllocator {
    ~NativeCachingAllocator() override {}
};
} // namespace Native
namespace CudaMallocAsync {
struct CudaMallocAsyncAllocator : CUDAAllocator {
    ~CudaMallocAsyncAllocator() override {}
};
} // namespace CudaMallocAsync
CUDAAllocator *allocator;
} // namespace c10::cuda::CUDACachingAllocator

using namespace c10::cuda::CUDACachingAllocator;
extern "C" void *native() { return allocator = new Native::NativeCachingAllocator; }
extern "C" void *malloc_async() { return allocator = new CudaMallocAsync::CudaMallocAsyncAllocator; }
