/* A host with CPythons as plugins: two_pythons LIBRARY HOME CODE ...; each lives in a thread of its own, and is at work for good. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>
static void *embeds(void *arg)
{
    char **job = arg;
    void *h = dlopen(job[0], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!h) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    wchar_t *(*decode)(const char *, size_t *) = (wchar_t * (*)(const char *, size_t *)) dlsym(h, "Py_DecodeLocale");
    ((void (*)(const wchar_t *))dlsym(h, "Py_SetPythonHome"))(decode(job[1], 0));
    ((void (*)(int))dlsym(h, "Py_InitializeEx"))(0);
    ((int (*)(const char *))dlsym(h, "PyRun_SimpleString"))(job[2]);
    return 0;
}
int main(int count, char **words)
{
    pthread_t t;
    for (int i = 1; i + 2 < count; i += 3)
        pthread_create(&t, 0, embeds, words + i);
    for (;;)
        pause();
}
