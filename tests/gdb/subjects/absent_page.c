/* A thread's stack with pages in its middle that are not in memory, and that whoever has them does not give: of a file of a FUSE
   server that answers no reads any more, or of a userfaultfd range that nobody serves. Source: Linux, include/uapi/linux/fuse.h,
   userfaultfd.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE (1 << 20)

static int device;
static volatile int *mute; /* shared with the server */

static void reply(unsigned long long id, int error, const void *data, size_t size) {
    static char buffer[1 << 20];
    struct fuse_out_header *head = (void *)buffer;
    head->len = sizeof *head + size;
    head->error = error;
    head->unique = id;
    if (size) memcpy(buffer + sizeof *head, data, size);
    if (write(device, buffer, head->len) < 0) _exit(1);
}

static void attributes(struct fuse_attr *a, int folder) {
    memset(a, 0, sizeof *a);
    a->ino = folder ? 1 : 2;
    a->mode = folder ? 0040755 : 0100666;
    a->nlink = 1;
    a->size = folder ? 0 : SIZE;
    a->blksize = 4096;
}

static void serve(void) {
    static char buffer[1 << 20], zeros[1 << 18];
    for (;;) {
        ssize_t got = read(device, buffer, sizeof buffer);
        if (got < 0) _exit(0); /* unmounted */
        struct fuse_in_header *head = (void *)buffer;
        if (head->opcode == FUSE_INIT) {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 65536, .max_background = 16, .congestion_threshold = 12};
            reply(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_LOOKUP) {
            struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000};
            attributes(&out.attr, 0);
            reply(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_GETATTR) {
            struct fuse_attr_out out = {.attr_valid = 1000};
            attributes(&out.attr, head->nodeid == 1);
            reply(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_OPEN) {
            struct fuse_open_out out = {.fh = 1};
            reply(head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_READ) {
            struct fuse_read_in *in = (void *)(buffer + sizeof *head);
            if (!*mute) reply(head->unique, 0, zeros, in->size);
        } else if (head->opcode != FUSE_FORGET && head->opcode != FUSE_BATCH_FORGET && head->opcode != FUSE_INTERRUPT) {
            reply(head->unique, -38, 0, 0);
        }
    }
}

static void *of_fuse(const char *folder) {
    char options[100], path[4096];
    mute = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || mount("gdbext-test", folder, "fuse", MS_NOSUID | MS_NODEV, options)) return 0;
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the kernel then fails all that waits */
        serve();
    }
    snprintf(path, sizeof path, "%s/stack", folder);
    int file = open(path, O_RDWR);
    void *found = file < 0 ? MAP_FAILED : mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (found == MAP_FAILED) return 0;
    madvise(found, SIZE, MADV_RANDOM);
    return found;
}

static int faults;

static void *of_uffd(void) {
    char *found = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {{(unsigned long)found, SIZE / 4 * 3}, UFFDIO_REGISTER_MODE_MISSING, 0};
    struct uffdio_zeropage used = {{(unsigned long)found + SIZE / 4, SIZE / 4}, 0, 0};
    faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range)) return 0;
    if (ioctl(faults, UFFDIO_ZEROPAGE, &used)) return 0; /* where the thread's innermost frames lie */
    return found;
}

static void *waits(void *unused) {
    char hole[SIZE / 2 + SIZE / 8]; /* the pages under it are never touched */
    hole[0] = 1;
    __asm__ volatile("" : : "r"(hole) : "memory");
    for (;;) pause();
    return unused;
}

int begin(const char *kind, const char *folder) {
    pthread_attr_t how;
    pthread_t thread;
    void *stack = strcmp(kind, "fuse") ? of_uffd() : of_fuse(folder);
    if (!stack) return 1;
    pthread_attr_init(&how);
    pthread_attr_setstack(&how, stack, SIZE);
    if (pthread_create(&thread, &how, waits, 0)) return 2;
    usleep(300000);
    if (mute) *mute = 1;
    return 0;
}
