# SPDX-License-Identifier: Apache-2.0
"""The pages: rendered here, without a build step, for whoever has signed in with a token.

A browser holds the secret of a session in a cookie that scripts and other sites cannot use. Every
form carries a word that only this session knows, and must come from a page of this service.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from dosimeter.ledger import AccessDenied
from dosimeter.service import shown
from dosimeter.service.api import Desk, address
from dosimeter.service.faults import said, status
from dosimeter.service.render import file, render
from dosimeter.service.roles import Caller, Grant
from dosimeter.service.tokens import SESSION

routes = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


class SignedOut(Exception):
    """The page is for those who have signed in."""


def cookie(request: Request) -> str:
    """The name of the session's cookie; browsers hold one with this prefix to TLS and one host."""
    return "__Host-dosimeter" if request.app.state.https else "dosimeter"


async def _caller(request: Request) -> Caller:
    desk: Desk = request.app.state.desk
    secret = request.cookies.get(cookie(request), "")
    found = await desk.do(desk.office.tokens.session, secret) if secret.isascii() else None
    if found is None:
        raise SignedOut
    desk.door.keep_pace(found)
    request.state.caller = found
    request.state.word = word(secret)
    return found


def word(secret: str) -> str:
    """What forms of a session carry, which other sites cannot know."""
    return hmac.new(secret.encode(), b"forms", hashlib.sha256).hexdigest()


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent from a page of this service.

    Raises:
        AccessDenied: It came from elsewhere.
    """
    origin = request.headers.get("origin")
    near = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not near or (origin is not None and urlsplit(origin).netloc != request.headers.get("host")):
        raise AccessDenied("form must be sent from a page of this service, got one from elsewhere")
    try:
        body = (await request.body()).decode("utf-8")
        fields = {name: found[-1] for name, found in parse_qs(body, max_num_fields=50).items()}
    except ValueError:
        raise ValueError("form must be text") from None
    return fields


Fields = Annotated[dict[str, str], Depends(_form)]


async def _own_form(request: Request, fields: Fields) -> dict[str, str]:
    await _caller(request)
    if not hmac.compare_digest(fields.pop("word", "").encode(), request.state.word.encode()):
        raise AccessDenied("form must be sent from this session; load the page again")
    return fields


Who = Annotated[Caller, Depends(_caller)]
Own = Annotated[dict[str, str], Depends(_own_form)]


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]


@routes.get("/login")
async def login(request: Request) -> Response:
    """Asks for a token."""
    return render(request, "login.html")


@routes.post("/login")
async def sign_in(request: Request, at: At, fields: Fields) -> Response:
    """Opens a session."""
    token = fields.get("token", "").strip()
    try:
        await at.do(at.door.caller, token, address(request))
    except AccessDenied as error:
        return render(request, "login.html", code=status(error), problem=str(error))
    secret = await at.write([""], at.office.tokens.open_session, token)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        cookie(request),
        secret,
        max_age=int(SESSION),
        httponly=True,
        samesite="strict",
        secure=request.app.state.https,
        path="/",
    )
    return answer


@routes.post("/logout")
async def sign_out(request: Request, at: At, fields: Own) -> Response:
    """Ends the session."""
    await at.write([""], at.office.tokens.close_session, request.cookies[cookie(request)])
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie(request), path="/", secure=request.app.state.https, httponly=True)
    return answer


@routes.get("/")
async def overview(
    request: Request,
    who: Who,
    at: At,
    containing: Annotated[str, Query(max_length=500)] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Where the budgets stand."""
    page = await at.do(shown.overview, at.office, who, containing, after)
    return render(request, "overview.html", containing=containing, **page)


@routes.post("/create")
async def create(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Makes a budget."""
    name = fields.get("name", "")
    try:
        terms = {name: float(fields.get(name, "")) for name in ("epsilon", "delta")}
    except ValueError:
        raise ValueError("epsilon and delta must be numbers") from None
    work = partial(at.office.create, who, [name], terms["epsilon"], delta=terms["delta"])
    await at.write([name], work, purpose=fields.get("purpose", ""))
    return RedirectResponse(f"/budget?name={quote(name, safe='')}", 303)


@routes.get("/budget")
async def budget(
    request: Request,
    who: Who,
    at: At,
    name: Annotated[str, Query(min_length=1, max_length=500)],
    mechanism: Annotated[str, Query(max_length=50)] = "",
    numbers: Annotated[str, Query(max_length=200)] = "",
    count: Annotated[str, Query(max_length=30)] = "1",
) -> Response:
    """One budget, and what a spend would do to it."""
    page = await at.do(shown.budget, at.office, who, name)
    if mechanism:
        page |= await at.do(shown.what_if, at.office, who, name, mechanism, numbers, count)
    return render(request, "budget.html", **page)


@routes.post("/verify")
async def verify(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Replays the journal of a budget now."""
    name = fields.get("name", "")
    found = await at.do(at.office.verify, who, name, long=True)
    page = await at.do(shown.budget, at.office, who, name)
    return render(request, "budget.html", verification=found, **page)


@routes.post("/allowances")
async def give(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Gives a part of a budget."""
    name, holders = fields.get("name", ""), fields.get("holders", "").split()
    try:
        epsilon = float(fields.get("epsilon", ""))
    except ValueError:
        raise ValueError("epsilon must be a number") from None
    label = fields.get("label", "")
    await at.write([name], at.office.give_allowance, who, name, label, holders, epsilon)
    return RedirectResponse(f"/budget?name={quote(name, safe='')}#allowances", 303)


@routes.post("/allowances/end")
async def end_allowance(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Ends an allowance."""
    name = fields.get("name", "")
    await at.write([name], at.office.end_allowance, who, name, fields.get("label", ""))
    return RedirectResponse(f"/budget?name={quote(name, safe='')}#allowances", 303)


@routes.post("/approval-line")
async def approval_line(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Lets large spends wait for approval, or none."""
    name, text = fields.get("name", ""), fields.get("above", "").strip()
    try:
        above = float(text) if text else None
    except ValueError:
        raise ValueError("above must be a number, or empty") from None
    await at.write([name], at.office.draw_line, who, name, above)
    return RedirectResponse(f"/budget?name={quote(name, safe='')}#approval", 303)


@routes.get("/requests")
async def requests(request: Request, who: Who, at: At) -> Response:
    """Spends that wait for approval, or were decided."""
    return render(request, "requests.html", **await at.do(shown.requests, at.office, who))


@routes.post("/requests/decide")
async def decide(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Approves or denies a spend."""
    approve = fields.get("decision") == "approve"
    await at.write([""], at.office.decide, who, fields.get("id", ""), approve=approve)
    return RedirectResponse("/requests", 303)


@routes.get("/download")
async def download(
    who: Who, at: At, name: Annotated[str, Query(min_length=1, max_length=500)]
) -> Response:
    """The whole journal as a file."""
    lines = await at.do(at.office.export, who, name)
    head = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl"}
    return StreamingResponse((f"{line}\n" for line in lines), headers=head)


@routes.get("/static/{name}")
async def static(name: str) -> Response:
    """A style sheet or a script."""
    return file(name)


@routes.get("/tokens")
async def tokens(request: Request, who: Who, at: At) -> Response:
    """Every token that was ever issued."""
    who.require_admin()
    return render(request, "tokens.html", **await at.do(shown.tokens, at.office))


@routes.post("/tokens")
async def issue(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Issues a token and shows it, once."""
    who.require_admin()
    try:
        days = float(fields.get("days", "90"))
    except ValueError:
        raise ValueError("days must be a number") from None
    grants = [Grant.read(text) for text in fields.get("grants", "").split()]
    work = partial(at.office.tokens.issue, fields.get("owner", ""), grants, days=days)
    made = await at.write([""], work, issued_by=who.owner)
    page = await at.do(shown.tokens, at.office)
    return render(request, "tokens.html", made=made, owner=fields["owner"], **page)


@routes.post("/tokens/revoke")
async def revoke(request: Request, who: Who, at: At, fields: Own) -> Response:
    """Ends a token."""
    who.require_admin()
    await at.write([""], at.office.tokens.revoke, fields.get("id", ""), by=who.owner)
    return RedirectResponse("/tokens", 303)


def problem(request: Request, error: Exception) -> Response | None:
    """An error as a page, for a browser that asked for one; None for a program."""
    if isinstance(error, SignedOut):
        return RedirectResponse("/login", 303)
    if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
        return None
    words: dict[str, Any] = said(error)
    return render(request, "problem.html", code=status(error), problem=words["message"])
