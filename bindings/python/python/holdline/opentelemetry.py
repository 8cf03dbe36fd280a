"""The metrics of locks for OpenTelemetry, with the names of the Rust library.

    import holdline
    import holdline.opentelemetry

    holdline.opentelemetry.instrument()
    client = holdline.Client("redis://localhost", metrics=True)

`docs/metrics.md` lists them. It needs the package ``opentelemetry-api``, which comes with
``holdline-lock[opentelemetry]``.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Histogram,
        MeterProvider,
        Observation,
        get_meter,
    )
except ImportError as error:
    raise ImportError(f"{error}: pip install 'holdline-lock[opentelemetry]'") from error

from holdline import _holdline

__all__ = ["instrument"]

#: The count and the sum of each bucket.
_Buckets = list[tuple[int, float]]


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Makes an instrument for each metric of locks, of the global provider unless one is given.
    Call it once for each provider, after the provider is made.

    They have the metrics of all clients of this process that are made with `metrics=True`, and of
    its fences. The library adds the numbers up, and each collection reads them: no event is left
    out, and no Python code runs for one. Of values in a bucket of docs/metrics.md, a histogram
    receives the mean, as often as there were values.
    """
    _holdline.start_metrics()
    meter = get_meter("holdline", meter_provider=meter_provider)
    replay = _Replay()
    for name, kind, text, _ in _holdline.read_metrics():
        if kind == "histogram":
            replay.histograms[name] = meter.create_histogram(
                name,
                unit="s",
                description=text,
                explicit_bucket_boundaries_advisory=_holdline.metric_buckets(),
            )
        else:
            create = {
                "counter": meter.create_observable_counter,
                "gauge": meter.create_observable_gauge,
            }[kind]
            read = functools.partial(_read, name, replay)
            create(name, callbacks=[read], description=text)


def _read(name: str, replay: _Replay, _: CallbackOptions) -> Iterator[Observation]:
    """Reads a counter or a gauge. A collection calls this before it reads histograms."""
    for found, _kind, _text, series in replay.read():
        if found == name:
            for labels, value, _buckets in series:
                yield Observation(value, dict(labels))


class _Replay:
    """Passes what histograms have received since the last time on to those of OpenTelemetry."""

    def __init__(self) -> None:
        self.histograms: dict[str, Histogram] = {}
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], _Buckets] = {}
        # Several readers may collect at once: what each reads is newer than what is known.
        self._lock = threading.Lock()
        self._bounds = [0.0, *_holdline.metric_buckets(), math.inf]

    def read(self) -> list[_holdline.Family]:
        """All metrics, once the new values of histograms are passed on."""
        with self._lock:
            families = _holdline.read_metrics()
            new = [
                (self.histograms[name], dict(labels), self._new((name, tuple(labels)), buckets))
                for name, kind, _text, series in families
                if kind == "histogram"
                for labels, _value, buckets in series
            ]
        for histogram, attributes, values in new:
            for value, count in values:
                for _ in range(count):
                    histogram.record(value, attributes)
        return families

    def _new(
        self, key: tuple[str, tuple[tuple[str, str], ...]], buckets: _Buckets
    ) -> list[tuple[float, int]]:
        """The mean of the new values in each bucket, and how many there are."""
        nothing = [(0, 0.0)] * len(buckets)
        known = self._known.get(key, nothing)
        if any(now[0] < then[0] for now, then in zip(buckets, known, strict=True)):
            # A forked child begins anew.
            known = nothing
        self._known[key] = buckets
        new = []
        for at, (now, then) in enumerate(zip(buckets, known, strict=True)):
            count = now[0] - then[0]
            if count:
                # Rounding must not move it to another bucket.
                least = math.nextafter(self._bounds[at], math.inf) if at else 0.0
                mean = (now[1] - then[1]) / count
                new.append((max(least, min(mean, self._bounds[at + 1])), count))
        return new
