"""Django: a view that sells under a lock, and writes with the fencing token in Django's database.

    HOLDLINE_URL=redis://localhost python django_stock.py runserver
"""

import os
import sys

import django
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import path

import holdline
from holdline.fence import SqlFence, Stale

if not settings.configured:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "db")}
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="an example",
        DATABASES={"default": database},
    )
    django.setup()

# One client for the process. Workers that a server forks connect again by themselves.
locks = holdline.Client()


def prepare() -> None:
    """What a migration does."""
    SqlFence.create_table(connection)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS stock(item INTEGER PRIMARY KEY, left_ INTEGER)")


def sell(request: HttpRequest, item: int) -> JsonResponse:
    try:
        with locks.lock(f"stock/{item}", wait=0.5) as grant:
            # The token rejects this write if the lease is lost and another request was served.
            with SqlFence(f"stock/{item}").writing(connection, grant):
                return JsonResponse({"left": take_one(item), "fencing_token": grant.fencing_token})
    except (holdline.TimedOut, Stale):
        return JsonResponse({"detail": "busy, try again"}, status=423, headers={"Retry-After": "1"})


def take_one(item: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT left_ FROM stock WHERE item = %s", [item])
        row = cursor.fetchone()
        left = int(row[0] if row else 10) - 1
        cursor.execute(
            "INSERT INTO stock VALUES (%s, %s) ON CONFLICT (item) DO UPDATE SET left_ = excluded.left_",
            [item, left],
        )
    return left


urlpatterns = [path("stock/<int:item>/sell", sell)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    prepare()
    execute_from_command_line(sys.argv)
