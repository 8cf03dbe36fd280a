/* Writes to the database of locks stand still while the file named by STALL_FILE exists, as on a
   disk that is frozen or too busy. No malloc, no locks. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void stall(int fd) {
    char link[32], path[512];
    const char *file = getenv("STALL_FILE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!file || length < 0) return;
    path[length] = 0;
    if (!strstr(path, "locks.db")) return;
    while (access(file, F_OK) == 0) usleep(5000);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    stall(fd);
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    stall(fd);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite64(fd, bytes, count, at);
}
