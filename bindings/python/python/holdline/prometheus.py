"""The metrics of locks for `prometheus_client`, with the names of the Rust library.

    import prometheus_client
    import holdline
    from holdline.prometheus import LockCollector

    prometheus_client.REGISTRY.register(LockCollector())
    client = holdline.Client("redis://localhost", metrics=True)

`docs/metrics.md` lists them. It needs the package ``prometheus-client``, which comes with
``holdline-lock[prometheus]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(f"{error}: pip install 'holdline-lock[prometheus]'") from error

from holdline import _holdline

__all__ = ["LockCollector"]

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class LockCollector(Collector):
    """Reads the metrics of all clients of this process that are made with `metrics=True`, and of
    its fences, whenever Prometheus asks. One for each registry is enough.

    The library adds the numbers up: no event is left out, and no Python code runs for one.
    """

    def __init__(self) -> None:
        _holdline.start_metrics()

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        bounds = [str(bound) for bound in _holdline.metric_buckets()] + ["+Inf"]
        for name, kind, text, series in _holdline.read_metrics():
            family: Metric = _FAMILIES[kind](name, text)
            for pairs, value, buckets in series:
                labels = dict(pairs)
                if kind != "histogram":
                    family.add_sample(name, labels, value)
                    continue
                counts = list(accumulate(count for count, _ in buckets))
                for bound, count in zip(bounds, counts, strict=True):
                    family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
                family.add_sample(f"{name}_count", labels, counts[-1])
                family.add_sample(f"{name}_sum", labels, sum(part for _, part in buckets))
            yield family
