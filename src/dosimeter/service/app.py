# SPDX-License-Identifier: Apache-2.0
"""The application: the office behind routes, and errors as answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from dosimeter import __version__
from dosimeter.errors import DosimeterError
from dosimeter.ledger import LedgerRefusal, LedgerUnavailable
from dosimeter.service import api, events, metrics, pages, streams, watched
from dosimeter.service.door import Door
from dosimeter.service.faults import FAILED, headers, said, status
from dosimeter.service.guard import Guard
from dosimeter.service.office import Office

log = logging.getLogger("dosimeter.service")
RATE = 1000.0
_ABOUT = """Privacy budgets for a team: sound under full adaptivity, never refunded.

Send a token as `Authorization: Bearer …`. A command that spends needs an `Idempotency-Key`: sent
again with the same key it is done once. A cost is an object such as
`{"kind": "gaussian", "noise_multiplier": 20.0}`; infinity is the text "inf"."""


def make_app(
    office: Office,
    *,
    https: bool = False,
    rate: float = RATE,
    ending: Callable[[], bool] = lambda: False,
    **limits: Any,
) -> ASGIApp:
    """The service over an office.

    Args:
        office: What it serves.
        https: Whether browsers reach it by TLS, here or at a proxy before it.
        rate: How many requests a second one token may make.
        ending: Says whether the server is about to end; pages that watch are then let go.
        limits: `largest` and `slowest` body, in bytes and seconds.
    """
    app = FastAPI(
        title="Dosimeter budget office",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
    )
    app.state.desk = api.Desk(office, Door(office.tokens, rate=rate))
    app.state.https = https
    app.state.watch = events.Watch(ending)
    app.state.metrics = metrics.Metrics()
    for part in (api, streams, watched, pages, events, metrics):
        app.include_router(part.routes)
    for part in (streams, watched):
        app.include_router(part.page_routes)
    app.add_api_route("/health", _health, include_in_schema=False)
    for kind in (DosimeterError, ValueError, TypeError):
        app.add_exception_handler(kind, _told)
    app.add_exception_handler(pages.SignedOut, _told)
    app.add_exception_handler(RequestValidationError, _wrong_values)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _failed)
    return Guard(app, https=https, seen=app.state.metrics.seen, **limits)


async def _health(request: Request) -> JSONResponse:
    """Whether the service can answer; says nothing else."""
    desk: api.Desk = request.app.state.desk
    try:
        await desk.do(desk.office.ready)
    except Exception:
        return JSONResponse({"status": "unavailable"}, status_code=503)
    return JSONResponse({"status": "ok"})


async def _told(request: Request, error: Exception) -> Response:
    if isinstance(error, LedgerUnavailable):
        log.error("unavailable", extra={"fields": {"error": str(error)}})
    if isinstance(error, LedgerRefusal):
        request.app.state.metrics.refusals.inc()
    page = pages.problem(request, error)
    if page is not None:
        return page
    return JSONResponse(said(error), status_code=status(error), headers=headers(error))


async def _wrong_values(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    message = f"{where or 'body'} must be as the API says: {first['msg']}"
    return await _told(request, ValueError(message))


async def _no_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = str(error.detail).lower()
    return JSONResponse(
        {"error": "LedgerError", "message": message}, error.status_code, headers=error.headers
    )


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": "LedgerError", "message": FAILED}, status_code=500)
