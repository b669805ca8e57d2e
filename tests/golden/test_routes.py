# SPDX-License-Identifier: Apache-2.0
"""Every route of the server: status, headers, JSON or visible text, and what each role is refused.

The same script through a local ledger and through a server gives equal receipts.
"""

from __future__ import annotations

import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dosimeter as dm
import goldens
from dosimeter.ledger import Ledger
from dosimeter.ledger.signing import Signer
from dosimeter.service import Grant, Office, make_app
from golden.plain import (
    MOMENT,
    Masks,
    fix_clock,
    fix_identities,
    plain,
    visible,
    without_hashes,
    write_key,
)
from service.servers import running

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

G20, G40 = ({"kind": "gaussian", "noise_multiplier": noise} for noise in (20.0, 40.0))
LIMITS = {"epsilon": 3.0, "delta": 1e-6}
HTML = {"Accept": "text/html"}
GRANTS = {
    "stranger": "owner:visits/*",
    "reader": "reader:patients*",
    "spender": "spender:patients*",
    "owner": "owner:*",
    "admin": "admin:*",
}
PEOPLE = {"nobody": "", "wrong": "dsm_000000000000_wrong", **{role: role for role in GRANTS}}
"""Whoever asks a route, and the token or role sent."""

HEADERS = (
    *("allow", "cache-control", "content-disposition", "content-type", "location", "retry-after"),
    *("set-cookie", "www-authenticate"),
)
RUN = {
    "id": "0123456789abcdef01234567",
    "name": "night run",
    "budget": "patients",
    "limit": 3.0,
    "epochs": 3,
    "done": 10,
    "left": 60.0,
    "state": "running",
    "history": [
        {
            "epoch": 1,
            "epsilon": 0.5,
            "spent_share": 0.25,
            "noise_multiplier": 1.0,
            "batch_size": 8,
            "loss": 0.25,
        }
    ],
}


class Asker:
    """A server in this process, asked by people with different roles."""

    def __init__(
        self, office: Office, tokens: dict[str, str] | None = None, **options: Any
    ) -> None:
        self.office, self.found, self.masked = office, {}, Masks()
        # Pages that watch are let go at once.
        app = make_app(office, ending=lambda: True, **options)
        base = "https://testserver" if options.get("https") else "http://testserver"
        self.client = TestClient(
            app, base_url=base, raise_server_exceptions=False, follow_redirects=False
        )
        self.tokens = tokens or {role: self.token(role, grant) for role, grant in GRANTS.items()}

    def token(self, owner: str, *grants: str) -> str:
        """A new token of an owner's."""
        given = [Grant.read(text) for text in grants]
        return self.office.tokens.issue(owner, given, days=90, issued_by="test")

    def prepare(
        self, who: str, path: str, key: str = "k", *, waits: bool = False, **body: Any
    ) -> Any:
        """Return the JSON of a command, unrecorded, that must succeed or wait for approval."""
        heads = {"Authorization": f"Bearer {self.tokens[who]}", "Idempotency-Key": key}
        answer = self.client.post(f"/v1/{path}", json=body, headers=heads)
        assert answer.status_code in ((409,) if waits else (200, 201)), answer.text
        return answer.json()

    def __call__(self, case: str, who: str, method: str, path: str, **sent: Any) -> Any:
        """The answer, which is recorded too; `key` is the header that commands need."""
        heads = {**sent.pop("headers", {})}
        if "key" in sent:
            heads["Idempotency-Key"] = sent.pop("key")
        if who:
            heads["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        answer = self.client.request(method, path, headers=heads, **sent)
        self.note(case, answer)
        return answer

    def note(self, case: str, answer: Any) -> None:
        """Record an answer."""
        assert case not in self.found, case
        kind = answer.headers.get("content-type", "")
        if kind == "application/json":
            said = plain(answer.json())
        elif kind.startswith("text/html"):
            said = visible(answer.text)
        elif "dosimeter_spends_total" in answer.text:  # times are left out
            timed = re.compile(r"_created|seconds(_bucket|_sum|_count|\{| hist)")
            said = [line for line in answer.text.splitlines() if not timed.search(line)]
        else:
            said = answer.text
        heads = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
        self.found[case] = self.masked([answer.status_code, heads, said])


@pytest.fixture
def asker(tmp_path, monkeypatch) -> Iterator[Callable[..., Asker]]:
    """Makes servers over new ledgers, with a clock that stands and identities that count."""
    opened: list[Office] = []
    fix_clock(monkeypatch)
    monkeypatch.setattr(time, "time", MOMENT.timestamp)
    fix_identities(monkeypatch)

    def make(copy_of: Asker | None = None, **options: Any) -> Asker:
        file = tmp_path / f"{len(opened)}.db"
        if copy_of is not None:
            source = tmp_path / f"{opened.index(copy_of.office)}.db"
            assert not source.with_name(f"{source.name}-wal").exists(), "office must be closed"
            shutil.copyfile(source, file)
        signer = Signer.read(write_key(tmp_path / "key.pem"))
        opened.append(Office(f"sqlite:///{file}", signer=signer, clock=time.time))
        if copy_of is not None:
            return Asker(opened[-1], copy_of.tokens, **options)
        made = Asker(opened[-1], **options)
        owner = opened[-1].tokens.caller(made.tokens["owner"])
        for name in ("patients", "patients2", "visits/2026-01"):
            opened[-1].create(owner, [name], 3.0, delta=1e-6)
        return made

    yield make
    for office in opened:
        office.close()


API: dict[str, dict[str, Any]] = {
    "GET /v1/budgets": {},
    "POST /v1/budgets": {"names": ["patients-{who}"], **LIMITS, "purpose": "new"},
    "POST /v1/spend": {"costs": {"patients": G20}, "count": 2, "purpose": "mean age"},
    "POST /v1/price": {"name": "patients", "cost": G20, "count": 3},
    "POST /v1/reserve": {"name": "patients", "cost": G40, "count": 2, "purpose": "loop"},
    "POST /v1/settle": {"id": "{reservation}", "drawn": 1},
    "GET /v1/statement": {"name": "patients"},
    "GET /v1/share": {"name": "patients"},
    "GET /v1/guarantee": {"name": "patients"},
    "GET /v1/history": {"name": "patients", "last": 1},
    "GET /v1/opening": {"name": "patients2"},
    "GET /v1/holds": {"name": "patients", "sequence": 1, "hash": "0" * 64},
    "POST /v1/verify": {"name": "patients"},
    "GET /v1/key": {},
    "POST /v1/anchor": {"names": ["patients"], "number": 0, "previous": "0" * 64},
    "GET /v1/export": {"name": "patients2"},
    "POST /v1/allowances": {
        **{"name": "patients", "label": "{who}-new", "holders": ["spender"], "epsilon": 1.0}
    },
    "GET /v1/allowances": {"name": "patients"},
    "POST /v1/allowances/end": {"name": "patients", "label": "{who}"},
    "POST /v1/approval-line": {"name": "patients2", "above": 0.1},
    "GET /v1/requests": {},
    "POST /v1/requests/decide": {"id": "{request}", "approve": True},
    "GET /v1/tokens": {},
    "POST /v1/tokens": {"owner": "new", "grants": ["reader:*"], "days": 7},
    "POST /v1/tokens/revoke": {"id": "{token}"},
    "POST /v1/streams": {"name": "patients-{who}", "every": "day", **LIMITS, "since": "2026-03-03"},
    "GET /v1/stream": {"name": "patients-days"},
    "POST /v1/stream/blocks": {"name": "patients-days", "last": 2},
    "POST /v1/stream/offered": {"name": "patients-days", "cost": G20, "last": 2},
    "POST /v1/stream/add": {"name": "patients-shards", "label": "{who}"},
    "POST /v1/runs": {**RUN, "id": "{new_run}"},
    "GET /v1/runs": {},
    "POST /v1/runs/stop": {"id": "{run}"},
    "POST /v1/close": {"name": "patients/{who}", "purpose": "over"},
    "GET /metrics": {},
    "GET /health": {},
}
"""A good request of each route; `{...}` is what `furnish` makes for whoever asks."""


def filled(value: Any, **known: str) -> Any:
    """A request with what is known of this caller."""
    if isinstance(value, dict):
        return {name: filled(one, **known) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, **known) for one in value]
    return re.sub(r"\{(\w+)\}", lambda m: known[m[1]], value) if isinstance(value, str) else value


def furnish(ask: Asker) -> dict[str, dict[str, str]]:
    """Make all that the requests name, one of each for everybody, and return the identities."""
    ask.prepare("owner", "streams", name="patients-days", every="day", **LIMITS, since="2026-03-03")
    ask.prepare("owner", "streams", name="patients-shards", every="shard", **LIMITS)
    ask.prepare("owner", "approval-line", name="patients2", above=0.05)
    large = {"costs": {"patients2": G20}, "count": 5}
    ask.prepare("owner", "spend", "large", waits=True, **large, purpose="of the owner")
    known: dict[str, dict[str, str]] = {}
    for number, who in enumerate(PEOPLE):
        spends = who if who in ("owner", "admin") else "spender"
        held = {"name": "patients", "cost": G40, "count": 2, "purpose": "held"}
        reservation = ask.prepare(spends, "reserve", f"held for {who}", **held)["id"]
        run, new_run = f"{number:024x}", f"{number + 100:024x}"
        ask.prepare("owner" if who == "spender" else "spender", "runs", **{**RUN, "id": run})
        ask.prepare("owner", "budgets", names=[f"patients/{who}"], **LIMITS)
        part = {"name": "patients", "label": who, "holders": ["ada"], "epsilon": 0.1}
        ask.prepare("owner", "allowances", **part)
        ask.prepare("spender", "spend", f"large for {who}", waits=True, **large, purpose=who)
        issued = ask.prepare("admin", "tokens", owner=f"old-{who}", grants=["reader:*"])["token"]
        mine = {"who": who, "run": run, "new_run": new_run, "reservation": reservation}
        known[who] = {**mine, "token": issued.split("_")[1]}
    for one in ask.office.requests(ask.office.tokens.caller(ask.tokens["admin"])):
        known.get(one.purpose, {})["request"] = one.id
    ask.office.close()
    return known


def test_every_route_for_every_role(asker):
    """Each route has a server and a copy of the ledger to itself, so that none disturbs another."""
    furnished = asker()
    known = furnish(furnished)
    found: dict[str, Any] = {}
    for route, request in API.items():
        ask = asker(copy_of=furnished)
        method, path = route.split(" ")
        for who, token in PEOPLE.items():
            sent = {"params" if method == "GET" else "json": filled(request, **known[who])}
            if path in ("/v1/spend", "/v1/reserve"):
                sent["key"] = "k"
            ask(f"{route} as {who}", token, method, path, **sent)
        statuses = [status for status, _, _ in ask.found.values()]
        assert 429 not in statuses, route
        assert any(status < 300 for status in statuses[-len(GRANTS) :]), (route, statuses)
        found |= ask.found
    described = ask.client.get("/openapi.json").json()
    told = {f"{m.upper()} {path}" for path, ways in described["paths"].items() for m in ways}
    assert told == {route for route in API if " /v1/" in route}
    goldens.compare("routes_roles", found)


def test_the_openapi_document(asker):
    document = asker().client.get("/openapi.json").json()
    document["info"].pop("version")
    found = {
        f"{part} {name}": one
        for part in ("paths", "components")
        for name, one in document.pop(part).items()
    }
    schemas = found.pop("components schemas")
    found |= {f"schema {name}": one for name, one in schemas.items()}
    goldens.compare("routes_openapi", {"document": document, **found})


def test_commands_one_after_another(asker):
    """Keys, refusals, reservations, approvals, allowances, streams and wrong values."""
    ask = asker()

    def tell(case: str, path: str, who: str = "spender", **sent: Any) -> Any:
        return ask(case, who, "POST", f"/v1/{path}", **sent)

    def spend(case: str, key: str | None = "k", who: str = "spender", **changed: Any) -> Any:
        body = {"costs": {"patients": G20}, "count": 2, **changed}
        return tell(case, "spend", who, json=body, **({} if key is None else {"key": key}))

    spend("spend", purpose="mean age")
    spend("spend again")
    spend("spend another with the key", count=3)
    spend("spend with the key of another owner", who="owner")
    spend("spend too much", "k2", count=100_000)
    spend("spend in two", "k3", costs={"patients": G20, "patients2": G40})
    spend("spend in two, too much", "k4", costs={"patients": G20, "patients2": G40}, count=9999)
    spend("spend in one that is unknown", "k5", costs={"patients": G20, "patients9": G20})
    spend("spend in one of others", "k5", costs={"patients": G20, "visits/2026-01": G20})
    spend("no key", None)
    spend("empty key", "")
    spend("long key", "k" * 301)
    spend("key that cannot be printed", "a\tb")
    for case, changed in {
        "count of 0": {"count": 0},
        "count in words": {"count": "2"},
        "count of a half": {"count": 1.5},
        "no costs": {"costs": {}},
        "unknown cost": {"costs": {"patients": {"kind": "magic"}}},
        "cost with another field": {"costs": {"patients": {**G20, "free": True}}},
        "cost without noise": {"costs": {"patients": {"kind": "gaussian"}}},
        "noise below 0": {"costs": {"patients": {**G20, "noise_multiplier": -1.0}}},
        "cost for others": {"costs": {"patients": {**G20, "neighbours": "add/remove one user"}}},
        "no such neighbours": {"costs": {"patients": {**G20, "neighbours": "nobody"}}},
        "another actor": {"actor": "root"},
        "purpose too long": {"purpose": "x" * 10_001},
    }.items():
        spend(case, "w", **changed)
    tell("no JSON", "spend", content=b"{", headers={"Content-Type": "application/json"}, key="k")
    tell("body too large", "spend", content=b" " * (1 << 21), key="k")
    ask("no route", "spender", "GET", "/v1/nothing")
    ask("wrong method", "spender", "DELETE", "/v1/spend")
    ask("too few bytes of a token", "dsm_1", "GET", "/v1/budgets")
    ask("no budgets of that name", "spender", "GET", "/v1/budgets?containing=zzz")
    ask("first page", "spender", "GET", "/v1/budgets?size=1")
    ask("next page", "spender", "GET", "/v1/budgets?size=1&after=patients")
    ask("page of 0", "spender", "GET", "/v1/budgets?size=0")
    ask("history of 0", "spender", "GET", "/v1/history?name=patients&last=0")
    ask("no name", "spender", "GET", "/v1/statement")

    menu = {"names": ["patients-m"], **LIMITS, "menu": [G20, G40]}
    tell("create with a menu", "budgets", "owner", json=menu)
    tell("create again", "budgets", "owner", json=menu)
    tell("create again with exist_ok", "budgets", "owner", json={**menu, "exist_ok": True})
    made = {"names": ["patients-o"], "epsilon": None, "delta": 1e-6, "orders": [2.0, 8.0]}
    tell("create an odometer", "budgets", "owner", json=made)
    tell("create blocks", "budgets", "owner", json={"names": ["p/1", "p/2"], **LIMITS})
    tell("create blocks of two", "budgets", "owner", json={"names": ["p/3", "q/4"], **LIMITS})
    tell("create without delta", "budgets", "owner", json={"names": ["x"], "epsilon": 1})
    plan = {"plan": [G20, 50], "neighbours": "add/remove one record"}
    tell("create with a plan", "budgets", "owner", json={"names": ["x"], **LIMITS, **plan})

    held = tell("reserve", "reserve", json={"name": "patients", "cost": G40, "count": 4}, key="r")
    again = {"name": "patients", "cost": G40, "count": 4}
    tell("reserve again", "reserve", json=again, key="r")
    tell("reserve another with the key", "reserve", json={**again, "count": 5}, key="r")
    tell("reserve for a year", "reserve", json={**again, "lifetime": 4e7}, key="r2")
    tell("reserve too much", "reserve", json={**again, "count": 99_999}, key="r3")
    id = held.json()["id"]
    tell("settle too many", "settle", json={"id": id, "drawn": 5})
    tell("settle another's", "settle", "owner", json={"id": id, "drawn": 3})
    tell("settle", "settle", json={"id": id, "drawn": 3})
    tell("settle again", "settle", json={"id": id, "drawn": 3})
    tell("settle otherwise", "settle", json={"id": id, "drawn": 2})
    tell("reserve after the end", "reserve", json=again, key="r")
    free = tell("reserve to free", "reserve", json=again, key="free").json()["id"]
    tell("free", "settle", json={"id": free, "drawn": 0})

    part = {"name": "patients", "label": "team", "holders": ["spender"], "epsilon": 0.8}
    tell("give an allowance", "allowances", "owner", json=part)
    tell("give it again", "allowances", "owner", json=part)
    tell("price with it", "price", json={"name": "patients", "cost": G20, "count": 5})
    spend("spend with it", "a1")
    spend("spend over it", "a2", count=20)
    ask("allowances", "reader", "GET", "/v1/allowances?name=patients")
    tell("end it", "allowances/end", "owner", json={"name": "patients", "label": "team"})
    tell("end none", "allowances/end", "owner", json={"name": "patients", "label": "none"})

    line = {"name": "patients2", "above": 0.05}
    tell("draw a line", "approval-line", "owner", json=line)
    tell("draw a line below 0", "approval-line", "owner", json={**line, "above": -1.0})
    big = {"costs": {"patients2": G20}, "count": 5}
    for key in ("big", "bad", "own"):
        who = "owner" if key == "own" else "spender"
        spend(f"wait for approval: {key}", key, who, **big, purpose=key)
    spend("wait again", "big", **big)
    tell(
        "reserve over the line",
        "reserve",
        json={**again, "name": "patients2", "count": 50},
        key="r4",
    )
    waiting = ask("requests", "owner", "GET", "/v1/requests").json()
    ids = {one["purpose"]: one["id"] for one in waiting}
    ask("requests of the spender", "spender", "GET", "/v1/requests")
    for case, who, key, approve in (
        ("approve as the spender", "spender", "big", True),
        ("approve one's own", "owner", "own", True),
        ("approve", "owner", "big", True),
        ("approve again", "owner", "big", True),
        ("deny after it", "owner", "big", False),
        ("deny", "owner", "bad", False),
        ("approve the owner's", "admin", "own", True),
    ):
        tell(case, "requests/decide", who, json={"id": ids[key], "approve": approve})
    spend("spend what was approved", "big", **big)
    spend("spend what was approved again", "big", **big)
    spend("spend what was denied", "bad", **big)
    ask("requests after all", "owner", "GET", "/v1/requests")
    tell("draw no line", "approval-line", "owner", json={**line, "above": None})

    shard = {"name": "shards", "every": "shard", **LIMITS}
    tell("stream by shards", "streams", "owner", json=shard)
    tell("stream again", "streams", "owner", json={**shard, "exist_ok": True})
    tell("stream by the hour", "streams", "owner", json={**shard, "name": "h", "every": "hour"})
    tell("add a shard", "stream/add", "owner", json={"name": "shards", "label": "eu"})
    tell("add it again", "stream/add", "owner", json={"name": "shards", "label": "eu"})
    offer = {"name": "shards", "cost": G20, "count": 1}
    tell("offered", "stream/offered", "owner", json=offer)
    tell("offered too many", "stream/offered", "owner", json={**offer, "count": 9999})

    receipt = spend("spend for a receipt", "last").json()["patients"]
    kept = {"name": "patients", "sequence": receipt["sequence"], "hash": receipt["hash"]}
    ask("holds it", "reader", "GET", "/v1/holds", params=kept)
    tell("verify it", "verify", "reader", json={"name": "patients", "receipt": receipt})
    lost = {**receipt, "hash": "0" * 64}
    tell("verify another", "verify", "reader", json={"name": "patients", "receipt": lost})
    tell("verify no receipt", "verify", "reader", json={"name": "patients", "receipt": {"a": 1}})
    tell("verify a head", "verify", "reader", json={"name": "patients", "head": "0" * 64})
    anchor = tell(
        "anchor",
        "anchor",
        "reader",
        json={"names": ["patients"], "number": 1, "previous": "1" * 64},
    )
    tell(
        "anchor of others",
        "anchor",
        "reader",
        json={"names": ["p/1"], "number": 1, "previous": "1" * 64},
    )
    ask("export", "reader", "GET", "/v1/export?name=patients")
    tell("close", "close", "owner", json={"name": "patients", "purpose": "over"})
    tell("close again", "close", "owner", json={"name": "patients"})
    spend("spend from a closed one", "late")
    ask("metrics after all this", "owner", "GET", "/metrics")

    tell("run", "runs", json=RUN)
    tell("run of another", "runs", "owner", json=RUN)
    tell("run without end", "runs", json={**RUN, "done": 101})
    tell("stop a run", "runs/stop", "owner", json={"id": RUN["id"]})
    tell("stop a run of one's own", "runs/stop", json={"id": RUN["id"]})
    tell("run that is to stop", "runs", json=RUN)
    ask("runs", "reader", "GET", "/v1/runs")

    tell(
        "token for more than a year",
        "tokens",
        "admin",
        json={"owner": "a", "grants": ["reader:*"], "days": 4000},
    )
    tell("token for no one", "tokens", "admin", json={"owner": "", "grants": ["reader:*"]})
    tell("token without a role", "tokens", "admin", json={"owner": "a", "grants": ["king:*"]})
    tell(
        "token for an admin of a part",
        "tokens",
        "admin",
        json={"owner": "a", "grants": ["admin:p"]},
    )
    tokens = ask("tokens", "admin", "GET", "/v1/tokens").json()
    (spender,) = (one["id"] for one in tokens if one["owner"] == "spender")
    tell("revoke", "tokens/revoke", "admin", json={"id": spender})
    spend("spend with a revoked token", "x")
    goldens.compare("routes_commands", ask.found)
    goldens.compare("routes_bytes", {"receipt": plain(receipt), "anchor": anchor.json()["line"]})


def test_limits_of_the_server(asker):
    ask = asker(rate=1e-3)
    ask("too many requests", "reader", "GET", "/v1/budgets")
    for _ in range(20):
        ask.client.get("/v1/budgets", headers={"Authorization": "Bearer dsm_0_0"})
    ask("too many wrong tokens", "wrong", "GET", "/v1/budgets")
    small = asker(largest=10)
    small("body over a limit of its own", "owner", "POST", "/v1/close", json={"name": "patients"})
    safe = asker(https=True)
    sent = {"data": {"token": safe.tokens["reader"]}, "headers": HTML}
    signed = safe("sign in by TLS", "", "POST", "/login", **sent)
    found = ask.found | small.found | safe.found
    found["every header"] = sorted(
        [name, safe.masked(value)]
        for name, value in signed.headers.items()
        if name not in ("date", "content-length")
    )
    goldens.compare("routes_limits", found)


def test_pages(asker):
    ask = asker()
    bearer = {"Authorization": f"Bearer {ask.tokens['spender']}"}
    for number in range(3):
        sent = {"costs": {"patients": G20}, "count": 1 + number, "purpose": "mean <age>"}
        headers = {**bearer, "Idempotency-Key": str(number)}
        assert ask.client.post("/v1/spend", json=sent, headers=headers).is_success
    ask.client.post("/v1/runs", json=RUN, headers=bearer)
    owner = {"Authorization": f"Bearer {ask.tokens['owner']}"}
    stream = {"name": "days", "every": "day", **LIMITS, "since": "2026-03-03"}
    assert ask.client.post("/v1/streams", json=stream, headers=owner).is_success

    pages = (
        *("/", "/?containing=visits", "/?after=patients", "/budget?name=patients"),
        *("/budget?name=nothing", "/budget", "/stream?name=days", "/stream?name=patients"),
        "/stream?name=days&mechanism=gaussian&numbers=20&last=2",
        "/budget?name=patients&mechanism=gaussian&numbers=20&count=3",
        "/budget?name=patients&mechanism=gaussian&numbers=x",
        *("/requests", "/runs", f"/run?id={RUN['id']}", "/run?id=none", "/tokens", "/nothing"),
        *("/download?name=patients2", "/events?name=patients", "/events?name=nothing", "/login"),
    )

    def get(who: str, path: str, **heads: str) -> Any:
        return ask(f"GET {path} as {who}", "", "GET", path, headers=heads or HTML)

    def sign_in(who: str) -> str:
        ask.client.cookies.clear()
        sent = {"token": ask.tokens.get(who, who)}
        answer = ask.client.post("/login", data=sent, headers=HTML)
        ask.note(f"POST /login as {who}", answer)
        page = ask.client.get("/", headers=HTML).text
        return (re.findall(r'name="word" value="(\w+)"', page) or [""])[0]

    def post(case: str, path: str, word: str, headers: dict[str, str] = HTML, **fields: str) -> Any:
        fields |= {"word": word} if word else {}
        return ask(f"POST {path}: {case}", "", "POST", path, data=fields, headers=headers)

    for path in pages:
        get("nobody", path)
    get("nobody without HTML", "/", Accept="application/json")
    for name in ("office.css", "report.css", "office.js", "nothing.css"):
        answer = ask.client.get(f"/static/{name}")
        ask.found[f"GET /static/{name}"] = [answer.status_code, answer.headers.get("content-type")]
    sign_in("dsm_000000000000_wrong")
    word = sign_in("reader")
    for path in pages:
        get("reader", path)
    post("by a reader", "/create", word, name="x", epsilon="1", delta="1e-6")
    post("by a reader", "/tokens", word, owner="x", grants="reader:*")
    post("by a reader", "/approval-line", word, name="patients", above="1")
    word = sign_in("owner")
    post("without the word", "/create", "", name="x", epsilon="1", delta="1e-6")
    post("with another word", "/create", "0" * 64, name="x", epsilon="1", delta="1e-6")
    far = {**HTML, "Origin": "https://elsewhere.example"}
    post("from elsewhere", "/create", word, far, name="x", epsilon="1", delta="1e-6")
    post("of no number", "/create", word, name="x", epsilon="much", delta="1e-6")
    post("of a budget", "/create", word, name="x y", epsilon="1", delta="1e-6", purpose="new")
    post("again", "/create", word, name="x y", epsilon="1", delta="1e-6")
    post("of a budget", "/verify", word, name="patients")
    give = {"name": "patients", "label": "team", "holders": "ada bob", "epsilon": "1"}
    post("of an allowance", "/allowances", word, **give)
    post("of no number", "/allowances", word, **{**give, "epsilon": "x"})
    post("above", "/approval-line", word, name="patients", above="0.05")
    post("of no number", "/approval-line", word, name="patients", above="x")
    costs = {"costs": {"patients": G20}, "count": 5, "purpose": "big"}
    ask.client.post("/v1/spend", json=costs, headers={**bearer, "Idempotency-Key": "big"})
    (waiting,) = ask.client.get("/v1/requests", headers=owner).json()
    for path in ("/", "/budget?name=patients", "/stream?name=days", "/requests"):
        get("owner", path)
    get("owner", f"/run?id={RUN['id']}")
    post("approved", "/requests/decide", word, id=waiting["id"], decision="approve")
    post("of none", "/requests/decide", word, id="none", decision="approve")
    post("of an allowance", "/allowances/end", word, name="patients", label="team")
    post("of a run", "/runs/stop", word, id=RUN["id"])
    ask("GET /requests after the decision", "", "GET", "/requests", headers=HTML)
    ask("GET /run after it was stopped", "", "GET", f"/run?id={RUN['id']}", headers=HTML)
    word = sign_in("admin")
    get("admin", "/tokens")
    post("of a token", "/tokens", word, owner="new", grants="reader:* spender:x", days="7")
    post("of no days", "/tokens", word, owner="new", grants="reader:*", days="x")
    post("of none", "/tokens/revoke", word, id="none")
    post("at the end", "/logout", word)
    get("nobody after the end", "/")
    goldens.compare("routes_pages", ask.found)


def both(ledger: Ledger, mark: str, **who: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A script of spends; `mark` is what a server puts before keys."""
    cost, smaller = dm.Gaussian(20.0), dm.Gaussian(40.0)
    budget = ledger.create("patients", 3.0, 1e-6, **who)
    yield "menu", lambda: ledger.create("menu", 3.0, 1e-6, menu=[cost, smaller], **who).statement()
    yield "odometer", lambda: ledger.create_odometer("o", 1e-6, **who).statement()
    yield (
        "blocks",
        lambda: [b.name for b in ledger.create_blocks("v", ["1", "2"], 1.0, 1e-6, **who)],
    )
    yield "taken", lambda: ledger.create("patients", 3.0, 1e-6, **who)
    yield "spend", lambda: budget.spend(cost, 2, key=f"{mark}1", purpose="mean age", **who)
    yield "again", lambda: budget.spend(cost, 2, key=f"{mark}1", **who)
    yield "another", lambda: budget.spend(cost, 3, key=f"{mark}1", **who)
    yield "over", lambda: budget.spend(cost, 9999, key=f"{mark}2", **who)
    yield "off-menu", lambda: ledger["menu"].spend(dm.Laplace(30.0), key=f"{mark}3", **who)
    costs = {"patients": cost, "menu": smaller, "v/1": cost}
    yield "several", lambda: ledger.spend_all(costs, 2, key=f"{mark}4", **who)
    yield "several over", lambda: ledger.spend_all(costs, 999, key=f"{mark}5", **who)
    yield "in blocks", lambda: ledger.blocks("v").spend(cost, key=f"{mark}6", **who)
    yield "reserve", lambda: reserved(budget, cost, **who)
    yield "after it", lambda: budget.spend(smaller, key=f"{mark}7", **who)
    yield "price", lambda: budget.price(cost, 3)
    yield "affordable", lambda: budget.affordable(cost)
    yield "admits", lambda: [budget.admits(cost), budget.admits(cost, 9999)]
    for name in ("epsilon", "limit", "remaining", "spent_share", "closed"):
        yield name, lambda name=name: getattr(budget, name)
    yield "guarantee", budget.guarantee
    yield "statement", budget.statement
    yield "statements", ledger.statements
    yield "history", lambda: budget.history(4)
    yield "verify", lambda: ledger.verify("patients")
    yield "export", lambda: list(ledger.export("patients"))
    yield "names", lambda: list(ledger)
    yield "none", lambda: ledger["patient"]
    yield "no count", lambda: budget.spend(cost, 0, key=f"{mark}8", **who)
    yield (
        "for users",
        lambda: budget.spend(
            dm.Gaussian(20.0, neighbours=dm.Neighbours.ADD_REMOVE_USER), key=f"{mark}9", **who
        ),
    )
    yield (
        "long purpose",
        lambda: budget.spend(cost, key=f"{mark}10", purpose="x" * 20_000, **who)._replace(hash=""),
    )
    yield "close", lambda: budget.close(**who)
    yield "late", lambda: budget.spend(cost, key=f"{mark}11", **who)


def reserved(budget: Any, cost: dm.Cost, **who: str) -> list[Any]:
    with budget.reserve(cost, 3, purpose="loop", **who) as made:
        made.draw(2)
    return [made.receipt, made.drawn]


def test_both_back_ends_give_equal_receipts(tmp_path, monkeypatch):
    fix_clock(monkeypatch)
    with Ledger.open(f"{tmp_path}/local.db", clock=lambda: MOMENT) as ledger:
        script = both(ledger, "ada/", actor="ada")
        local = {name: plain(goldens.outcome(call)) for name, call in script}
    with running(f"sqlite:///{tmp_path}/remote.db") as server:
        with Ledger.open(server.address, token=server.token("owner:*")) as ledger:
            remote = {name: plain(goldens.outcome(call)) for name, call in both(ledger, "")}
    for name in ("spend", "again", "several", "in blocks", "reserve", "after it", "off-menu"):
        assert local[name] == remote[name], name
    found = {
        name: {"both": local[name]}
        if local[name] == remote[name]
        else {"local": local[name], "remote": remote[name]}
        for name in local
    }
    goldens.compare("routes_both", without_hashes(found))
