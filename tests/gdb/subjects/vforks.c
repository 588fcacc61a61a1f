/* Main stands in uninterruptible sleep: it waits for its vfork's child, which sleeps. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    printf("ready\n");
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        sleep(atoi(argv[1]));
        _exit(0);
    }
    printf("through\n");
    fflush(stdout);
    return getchar();
}
