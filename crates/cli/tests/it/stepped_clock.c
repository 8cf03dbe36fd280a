/* Steps the wall clock by an hour once the file named by STEP_FILE exists, or by STEP_SECONDS from
   the start; with WALL_CLOCK_MS it stands still there. No malloc, no locks.
   Clocks that only move forward are passed through. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void) {
    const char *file = getenv("STEP_FILE"), *seconds = getenv("STEP_SECONDS");
    if (seconds) return atol(seconds);
    return file && access(file, F_OK) == 0 ? 3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    const char *still = getenv("WALL_CLOCK_MS");
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return (int)failed;
    if (still) {
        now->tv_sec = atoll(still) / 1000;
        now->tv_nsec = atoll(still) % 1000 * 1000000;
    } else {
        now->tv_sec += step();
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
