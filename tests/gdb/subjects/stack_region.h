/* Memory for a stack that lies above or below the thread's own. */
#include <sys/mman.h>

#define SIZE (1L << 20)

static void *region(int up)
{
    char *here = __builtin_frame_address(0);
    for (long i = 1; i < 4000; i++) {
        char *want = (char *)((unsigned long)(here + (up ? 1 : -1) * i * (64L << 20)) & ~4095UL);
        void *p = mmap(want, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != MAP_FAILED)
            return p;
    }
    return 0;
}
