# SPDX-License-Identifier: Apache-2.0
"""A service with two budgets in it, spoken to without a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dosimeter.service import Grant, Office, make_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have a successor of httpx
    from starlette.testclient import TestClient

Clock = list[float]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a new database."""
    return f"sqlite:///{tmp_path}/budgets.db"


@pytest.fixture
def clock() -> Clock:
    """The time that the office goes by, in a list that tests may change."""
    return [1_000_000.0]


@pytest.fixture
def office(url: str, clock: Clock) -> Iterator[Office]:
    """An office with the budgets `patients` and `visits/2026-01`."""
    with Office(url, clock=lambda: clock[0]) as made:
        owner = made.tokens.caller(
            made.tokens.issue("root", [Grant.read("owner:*")], issued_by="test")
        )
        for name in ("patients", "visits/2026-01"):
            made.create(owner, [name], 3.0, delta=1e-6)
        yield made


@pytest.fixture
def client(office: Office) -> TestClient:
    """A browser or program without a token."""
    return TestClient(make_app(office), raise_server_exceptions=False)


@pytest.fixture
def bearer(office: Office) -> Callable[..., dict[str, str]]:
    """Headers with a new token for some grants."""

    def issue(*grants: str, owner: str = "ada", days: float = 1) -> dict[str, str]:
        given = [Grant.read(text) for text in grants]
        token = office.tokens.issue(owner, given, days=days, issued_by="test")
        return {"Authorization": f"Bearer {token}"}

    return issue


@pytest.fixture
def page(client: TestClient, bearer: Callable[..., dict[str, str]]) -> Callable[..., TestClient]:
    """A browser that has signed in with some grants."""

    def sign_in(*grants: str, owner: str = "ada") -> TestClient:
        token = bearer(*grants, owner=owner)["Authorization"].removeprefix("Bearer ")
        client.cookies.clear()
        done = client.post("/login", data={"token": token}, headers={"Accept": "text/html"})
        assert done.status_code == 200
        assert done.url.path == "/"
        return client

    return sign_in
