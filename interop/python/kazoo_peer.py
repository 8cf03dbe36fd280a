"""A driver of kazoo's locks, for the tests of the ZooKeeper engine.

One request a line, answered when it is done: `lock|read|write|election ID PATH` with `held ID`,
`unlock ID` with `unlocked ID`. Each contender is a thread of its own, all of one session. A
candidate of an election holds while it leads.
"""

import sys
import threading

from kazoo.client import KazooClient

SAYING = threading.Lock()


def say(line):
    with SAYING:
        print(line, flush=True)


def contend(client, kind, name, path, unlocked):
    kinds = {"lock": client.Lock, "read": client.ReadLock, "write": client.WriteLock}

    def lead():
        say(f"held {name}")
        unlocked.wait()

    try:
        if kind == "election":
            client.Election(path).run(lead)
            say(f"unlocked {name}")
            return
        lock = kinds[kind](path)
        lock.acquire()
        say(f"held {name}")
        unlocked.wait()
        lock.release()
        say(f"unlocked {name}")
    except Exception as failure:
        say(f"failed {name} {failure!r}")


def main():
    client = KazooClient(hosts=sys.argv[1], timeout=30.0)
    client.start(timeout=60)
    held = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "unlock":
            held.pop(words[1]).set()
            continue
        unlocked = held[words[1]] = threading.Event()
        threading.Thread(target=contend, args=(client, *words, unlocked), daemon=True).start()
    client.stop()


if __name__ == "__main__":
    main()
