"""Metrics, for Prometheus and OpenTelemetry: names and buckets of docs/metrics.md, and numbers that
are exact."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ROOT, SOON, Services, eventually
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

import holdline
import holdline.opentelemetry
from holdline import _holdline
from holdline.fence import SqlFence, Stale
from holdline.prometheus import LockCollector

PAGE = (ROOT / "docs/metrics.md").read_text()


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(LockCollector())
    return registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_names_and_buckets_are_those_of_the_page() -> None:
    _holdline.start_metrics()
    sections = PAGE.split("\n## A cron job")[0]
    rows = [row.split("|") for row in sections.splitlines() if row.startswith("| `holdline_")]
    named = {(name, row[2].strip()) for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert {(name, kind) for name, kind, _, _ in _holdline.read_metrics()} == named
    written = re.search(r"set_buckets\(&\[([^]]*)\]\)", PAGE)
    assert written is not None
    assert _holdline.metric_buckets() == [float(one) for one in written[1].split(",")]


def test_numbers_are_exact_and_have_the_class(registry: CollectorRegistry) -> None:
    classes = {"": "all", "exact/": "exact/{id}", "exact/own/": "longer"}
    with holdline.Client("memory:metrics", metrics=True, classes=classes) as client:

        def work() -> None:
            for number in range(50):
                with client.lock(f"exact/{number % 3}"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        labels = {"engine": "memory", "class": "exact/{id}"}
        got = {**labels, "outcome": "acquired"}
        assert value(registry, "holdline_acquire_total", **got) == 200
        assert value(registry, "holdline_wait_seconds_count", **got) == 200
        assert value(registry, "holdline_wait_seconds_bucket", le="+Inf", **got) == 200
        released = {**labels, "end": "released"}
        assert value(registry, "holdline_hold_seconds_count", **released) == 200
        assert value(registry, "holdline_hold_seconds_sum", **released) > 0
        assert value(registry, "holdline_held", **labels) == 0
        with client.lock("exact/own/1"):
            assert value(registry, "holdline_held", **{**labels, "class": "longer"}) == 1
        with client.lock("another", lock_class="given"), pytest.raises(holdline.Busy):
            client.lock("another", lock_class="given").try_acquire()
        busy = {**labels, "class": "given", "outcome": "busy"}
        assert value(registry, "holdline_acquire_total", **busy) == 1
        lost = client.lock("lost", lock_class="given", max_hold=0.05).acquire()
        assert lost.lost.wait(SOON)
        loss = {**labels, "class": "given", "reason": "max_hold"}
        eventually(lambda: value(registry, "holdline_lost_total", **loss) == 1)


def test_a_client_without_metrics_records_nothing(registry: CollectorRegistry) -> None:
    with holdline.Client("memory:silent") as client, client.lock("a", lock_class="silent"):
        pass
    assert b"silent" not in generate_latest(registry)


def test_a_second_collector_of_a_registry_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(LockCollector())


def test_what_a_fence_refuses_is_counted(registry: CollectorRegistry) -> None:
    before = value(registry, "holdline_fenced_rejects_total", reason="stale")
    # The decision of every fence.
    with pytest.raises(Stale):
        SqlFence("a")._rules.check(2, ("exclusive", 1, None))
    assert value(registry, "holdline_fenced_rejects_total", reason="stale") == before + 1


def points(reader: InMemoryMetricReader) -> dict[tuple[str, frozenset[Any]], Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, frozenset((point.attributes or {}).items())): point
        for of_resource in data.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_opentelemetry_has_the_same_numbers(registry: CollectorRegistry) -> None:
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    provider = MeterProvider(metric_readers=readers)
    holdline.opentelemetry.instrument(provider)
    with holdline.Client("memory:otel", metrics=True) as client:
        for _ in range(20):
            with client.lock("a", lock_class="otel"):
                pass
        points(readers[0])
        for _ in range(5):
            with client.lock("a", lock_class="otel"):
                pass
        for reader in readers:
            found = points(reader)
            labels = {"engine": "memory", "class": "otel", "outcome": "acquired"}
            assert found["holdline_acquire_total", frozenset(labels.items())].value == 25
            waits = found["holdline_wait_seconds", frozenset(labels.items())]
            assert waits.count == 25
            assert list(waits.explicit_bounds) == _holdline.metric_buckets()
            of_prometheus = [
                value(registry, "holdline_wait_seconds_bucket", le=le, **labels)
                for le in [str(bound) for bound in waits.explicit_bounds] + ["+Inf"]
            ]
            counts = [sum(waits.bucket_counts[: at + 1]) for at in range(len(of_prometheus))]
            assert counts == of_prometheus
            total = value(registry, "holdline_wait_seconds_sum", **labels)
            assert waits.sum == pytest.approx(total)
    provider.shutdown()


def test_the_mean_stays_in_its_bucket() -> None:
    replay = holdline.opentelemetry._Replay()
    buckets = [(0, 0.0)] * 11
    buckets[1] = (3, 0.03 + 1e-17)
    assert replay._new(("a", ()), buckets) == [(0.01, 3)]
    # A forked child begins anew.
    buckets = [(1, 0.0005)] + [(0, 0.0)] * 10
    assert replay._new(("a", ()), buckets) == [(0.0005, 1)]


FORKS = """
import os, holdline
from prometheus_client import CollectorRegistry, generate_latest
from holdline.prometheus import LockCollector

registry = CollectorRegistry()
registry.register(LockCollector())
client = holdline.Client("memory:parent", metrics=True)
with client.lock("a"):
    child = os.fork()
    if child == 0:
        labels = {"engine": "memory", "class": "default"}
        assert registry.get_sample_value("holdline_held", labels) is None
        with holdline.Client("memory:child", metrics=True).lock("a"):
            assert registry.get_sample_value("holdline_held", labels) == 1
        assert b"# HELP holdline_hold_seconds How long" in generate_latest(registry)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_forked_child_begins_anew() -> None:
    # Newer interpreters warn of a fork beside threads.
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert ran.returncode == 0, ran.stderr


def test_the_example_alerts_a_real_prometheus(
    services: Services, url_of: Callable[[str], str]
) -> None:
    example = subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "bindings/python/examples/instrumented.py")],
        env=os.environ | {"HOLDLINE_URL": url_of("redis"), "PORT": "0", "WORK": "2"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert example.stdout is not None
        port = example.stdout.readline().split()[-1]
        prometheus = services.prometheus(ROOT / "ops/alerts.yml", f"127.0.0.1:{port}")

        def slow() -> bool:
            with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=SOON) as answer:
                groups = json.load(answer)["data"]["groups"]
            rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
            alerts = rules["HoldlineWaitSlow"]["alerts"]
            return [alert["labels"]["class"] for alert in alerts] == ["order/{id}"]

        # It becomes pending: it fires after ten minutes of this.
        eventually(slow)
    finally:
        example.terminate()
        example.communicate(timeout=SOON)


@pytest.mark.parametrize(
    ("module", "package"),
    [("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")],
)
def test_a_module_names_the_extra_that_it_needs(module: str, package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None; import holdline.{module}"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert f"pip install 'holdline-lock[{module}]'" in ran.stderr, ran.stderr
