"""A program with metrics of its locks for Prometheus, and a log of what they lost.

    HOLDLINE_URL=redis://localhost PORT=9464 python instrumented.py

Prometheus scrapes it at `/metrics`. With `ops/alerts.yml` among its `rule_files`, the alert
`HoldlineWaitSlow` fires while one of 100 attempts waits longer than 1 s.
"""

import logging
import os
import threading
import time

import prometheus_client

import holdline
from holdline.prometheus import LockCollector


class Log(holdline.Observer):
    """Called on a thread of its own: nothing here delays a lock."""

    def on_lost(self, lock: holdline.Subject, reason: str) -> None:
        logging.error("%s was lost: %s", lock.name, reason)

    def on_failed(self, lock: holdline.Subject, error: holdline.LockError) -> None:
        logging.warning("%s was not acquired: %s", lock.name, error)


def work(client: holdline.Client, seconds: float) -> None:
    while True:
        with client.lock("order/17"):
            time.sleep(seconds)  # the work


def main() -> None:
    prometheus_client.REGISTRY.register(LockCollector())
    server, _ = prometheus_client.start_http_server(int(os.environ.get("PORT", "9464")))
    print("serves metrics at port", server.server_port, flush=True)
    client = holdline.Client(metrics=True, classes={"order/": "order/{id}"}, observers=[Log()])
    seconds = float(os.environ.get("WORK", "0.1"))
    for _ in range(2):  # of two, one waits for the other
        threading.Thread(target=work, args=(client, seconds), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
