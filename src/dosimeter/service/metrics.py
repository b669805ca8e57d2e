# SPDX-License-Identifier: Apache-2.0
"""Metrics: numbers for the monitoring that a team has, in the format of Prometheus.

Whoever reads them sends a token, and sees only the budgets that it may see.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from dosimeter.ledger import Statement
from dosimeter.service.api import At, Who

routes = APIRouter(include_in_schema=False)
MOST_BUDGETS = 1000
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """What this process has served since it began."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._latency = Histogram(
            "dosimeter_request_seconds",
            "Requests by route and status, and how long they took.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.spends = Counter(
            "dosimeter_spends", "Spends that were acknowledged.", registry=self.registry
        )
        self.refusals = Counter(
            "dosimeter_refusals", "Spends over a limit.", registry=self.registry
        )

    def seen(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request; one that leads nowhere counts under no route."""
        self._latency.labels(method, route or "none", str(status)).observe(seconds)


class Balances(Collector):
    """Where budgets stand at the moment of asking."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._statements = list(statements)

    def collect(self) -> Iterable[Metric]:
        """The gauges."""
        gauges = {
            "epsilon": "Epsilon spent, rounded up.",
            "limit": "The epsilon never to be passed.",
            "remaining": "What is left of it, rounded down.",
            "entries": "Entries of the journal.",
        }
        for name, about in gauges.items():
            gauge = GaugeMetricFamily(f"dosimeter_budget_{name}", about, labels=["budget"])
            for statement in self._statements:
                gauge.add_metric([statement.name], float(getattr(statement, name)))
            yield gauge


@routes.get("/metrics")
async def metrics(request: Request, who: Who, at: At) -> Response:
    """Counters of this process, and where budgets stand."""
    page = await at.do(at.office.page, who, size=MOST_BUDGETS)
    now = CollectorRegistry()
    now.register(Balances(page.budgets))
    kept: Metrics = request.app.state.metrics
    return Response(
        generate_latest(kept.registry) + generate_latest(now), media_type=CONTENT_TYPE_LATEST
    )
