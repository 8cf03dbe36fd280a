"""Hands one lock of python-redis-lock on between threads, and prints how often.

Usage: hand_offs.py URL CONTENDERS MILLISECONDS. Only what goes from one thread to another counts.
"""

import sys
import threading
import time

import redis
import redis_lock


def main():
    url, contenders, milliseconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Each thread has a connection, and blocks on another.
    client = redis.Redis.from_url(url, max_connections=2 * contenders + 8)
    end = time.monotonic() + milliseconds / 1000
    # Written only by the holder of the lock.
    last, hand_offs = None, 0

    def contend(number):
        nonlocal last, hand_offs
        lock = redis_lock.Lock(client, "hand-off", expire=30)
        while time.monotonic() < end:
            if not lock.acquire(blocking=True, timeout=1):
                continue
            hand_offs += last != number
            last = number
            lock.release()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(hand_offs)


main()
