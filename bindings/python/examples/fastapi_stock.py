"""FastAPI: a lock for each request, 423 when it is busy, and a table that rejects late writers.

    HOLDLINE_URL=redis://localhost DATABASE=sqlite:///stock.db fastapi run fastapi_stock.py
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy import create_engine, text

import holdline
from holdline.fence import SqlFence, Stale

engine = create_engine(os.environ.get("DATABASE", "sqlite:///stock.db"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with engine.begin() as db:
        SqlFence.create_table(db)
        db.execute(text("CREATE TABLE IF NOT EXISTS stock(item INTEGER PRIMARY KEY, left_ INTEGER)"))
    async with await holdline.Client.aconnect() as client:
        app.state.locks = client
        yield


app = FastAPI(lifespan=lifespan)


async def stock_lock(request: Request, item: int) -> AsyncIterator[holdline.Grant]:
    """Holds the lock of the item while the request is handled."""
    locks: holdline.Client = request.app.state.locks
    async with locks.alock(f"stock/{item}", wait=0.5) as grant:
        yield grant


@app.post("/stock/{item}/sell")
def sell(item: int, grant: Annotated[holdline.Grant, Depends(stock_lock)]) -> dict[str, int]:
    # The token rejects this write if the lease is lost meanwhile and another request was served.
    with engine.connect() as db, SqlFence(f"stock/{item}").writing(db, grant):
        row = db.execute(text("SELECT left_ FROM stock WHERE item = :i"), {"i": item}).first()
        left = (row[0] if row else 10) - 1
        statement = "INSERT INTO stock VALUES (:i, :n) ON CONFLICT (item) DO UPDATE SET left_ = :n"
        db.execute(text(statement), {"i": item, "n": left})
    return {"left": left, "fencing_token": grant.fencing_token}


@app.exception_handler(holdline.TimedOut)
@app.exception_handler(Stale)
async def busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "busy, try again"}, 423, {"Retry-After": "1"})
