"""Drives one Python lock library by lines on standard input.

The words: docs/contributing/interop-tests.md.

Usage: driver.py PEER URL..., where PEER is redis-py, python-redis-lock or pottery. The last locks over
several servers.
"""

import logging
import socket
import sys
import threading
from importlib.metadata import version

import redis


class RedisPy:
    """`redis.lock.Lock`: the key is the name as it is."""

    package = "redis"

    def __init__(self, clients, name, milliseconds):
        (client,) = clients
        self.lock = client.lock(name, timeout=milliseconds / 1000, sleep=0.01)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait)

    def value(self):
        return self.lock.local.token

    def extend(self, milliseconds):
        self.lock.extend(milliseconds / 1000, replace_ttl=True)

    def release(self):
        self.lock.release()


class PythonRedisLock:
    """`redis_lock.Lock`: the key is `lock:NAME`; waiters block on the list `lock-signal:NAME`."""

    package = "python-redis-lock"

    def __init__(self, clients, name, milliseconds):
        import redis_lock

        (client,) = clients
        self.lock = redis_lock.Lock(client, name, expire=seconds(milliseconds))

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait)

    def value(self):
        return self.lock.id.encode()

    def extend(self, milliseconds):
        self.lock.extend(expire=seconds(milliseconds))

    def release(self):
        self.lock.release()


class Pottery:
    """`pottery.Redlock`: the key is `redlock:NAME`."""

    package = "pottery"

    def __init__(self, clients, name, milliseconds):
        from pottery import Redlock

        lease = milliseconds / 1000
        self.lock = Redlock(key=name, masters=set(clients), auto_release_time=lease, num_extensions=99)

    def acquire(self, wait):
        return self.lock.acquire(blocking=wait)

    def value(self):
        return self.lock._uuid.encode()

    def extend(self, milliseconds):
        self.lock.auto_release_time = milliseconds / 1000
        self.lock.extend()

    def release(self):
        self.lock.release()


PEERS = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "pottery": Pottery}


def seconds(milliseconds):
    """This peer counts whole seconds."""
    if milliseconds % 1000:
        raise ValueError(f"{milliseconds} ms are no whole seconds")
    return milliseconds // 1000


def is_lost(error):
    """Whether an error says that the lock is not ours any more."""
    names = {"LockError", "LockNotOwnedError", "NotAcquired", "ReleaseUnlockedLock"}
    return type(error).__name__ in names | {"ExtendUnlockedLock"}


class Observer:
    """The connection of one contender to the observer, which counts who is inside."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.reader = self.socket.makefile("r")

    def report(self, word):
        self.socket.sendall(f"{word}\n".encode())
        answer = self.reader.readline()
        if answer != "ok\n":
            raise RuntimeError(f"the observer answered {answer!r}")


class Driver:
    def __init__(self, peer, *urls):
        self.peer = PEERS[peer]
        # Waiting on a list may take longer than the client's own limit for an answer.
        self.clients = [redis.Redis.from_url(url, socket_timeout=None) for url in urls]
        self.held = {}

    def acquire(self, name, milliseconds, wait=False):
        lock = self.peer(self.clients, name, int(milliseconds))
        if not lock.acquire(wait):
            return "busy"
        self.held[name] = lock
        return f"held {lock.value().hex()}"

    def wait(self, name, milliseconds):
        return self.acquire(name, milliseconds, wait=True)

    def extend(self, name, milliseconds):
        return self.unless_lost(lambda: self.held[name].extend(int(milliseconds)), "extended")

    def release(self, name):
        return self.unless_lost(self.held.pop(name).release, "released")

    def unless_lost(self, act, word):
        try:
            act()
        except Exception as error:
            if is_lost(error):
                return "lost"
            raise
        return word

    def contend(self, name, milliseconds, contenders, rounds, port):
        failures = []

        def contender():
            try:
                observer = Observer(int(port))
                for _ in range(int(rounds)):
                    lock = self.peer(self.clients, name, int(milliseconds))
                    if not lock.acquire(True):
                        raise RuntimeError("a wait without an end ended")
                    observer.report("enter")
                    observer.report("leave")
                    lock.release()
            except Exception as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=contender) for _ in range(int(contenders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"{len(failures)} contenders failed: {failures[0]}")
        return f"done {int(contenders) * int(rounds)}"


def main():
    # Being refused is nothing to warn of here.
    logging.disable(logging.WARNING)
    driver = Driver(*sys.argv[1:])
    print(f"ready {version(driver.peer.package)}", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "quit":
            return
        try:
            verbs = ("acquire", "wait", "extend", "release", "contend")
            answer = getattr(driver, verb)(*words) if verb in verbs else f"error no verb {verb}"
        except Exception as error:
            answer = f"error {error!r}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main()
