/* Takes memory in the ways of growers.py. Built twice: -DHOOK is the library below, whose function stands in mmap's place. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#define PAGE 4096

static void touch(volatile char *p, size_t size) {
  for (size_t i = 0; i < size; i += PAGE) p[i] = 1;
}

#ifdef HOOK
void *hooked_mmap(size_t size) { /* what a communication library does in its hook, and never gives back */
  char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p != MAP_FAILED) touch(p, size);
  return p;
}
#else
void *hooked_mmap(size_t size);
void *pump(size_t size) { return hooked_mmap(size); }

static void **last;
void keep(size_t count, size_t size) { /* a list of blocks that nobody frees */
  for (size_t i = 0; i < count; i++) {
    void **p = malloc(size);
    touch((char *)p, size);
    *p = last;
    last = p;
  }
}

void churn(size_t count, size_t size) {
  void **all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) touch(all[i] = malloc(size), size);
  for (size_t i = 0; i < count; i++) free(all[i]);
  free(all);
}

void *pin(size_t size) {
  char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p != MAP_FAILED) mlock(p, size);
  return p;
}

void *huge(size_t pages) {
  size_t size = pages << 21;
  char *p = mmap(NULL, size + (1 << 21), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  p = (char *)(((size_t)p + (1 << 21) - 1) & ~(size_t)((1 << 21) - 1));
  madvise(p, size, MADV_HUGEPAGE);
  touch(p, size);
  return p;
}
#endif
