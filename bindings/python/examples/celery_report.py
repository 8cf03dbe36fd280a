"""Celery: a task that runs once per hour, although beat runs on two machines.

    BROKER=redis://localhost HOLDLINE_URL=redis://localhost celery -A celery_report worker
"""

import os

from celery import Celery

import holdline
import holdline.celery

app = Celery("celery_report", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
# Workers that Celery forks connect again by themselves.
locks = holdline.Client()


@app.task
@holdline.celery.once(locks, "report/{0}", every=3600)
def report(department: str) -> int:
    print(f"writes the report of {department}")
    return os.getpid()
