# SPDX-License-Identifier: Apache-2.0
"""Every operation of a ledger: results, journals, tables and signatures, on both databases.

SQLite and PostgreSQL are compared with the same goldens, because they store the same rows:
`ledger_results` holds what the operations return and what the entries say, without hashes, so that
it outlives a change of format; `ledger_bytes` holds rows, exports and anchors with every hash and
signature. Only the schemas differ, and each has a golden of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

import dosimeter as dm
import goldens
from dosimeter.ledger import Ledger
from dosimeter.ledger.anchors import AnchorLog, require_signed, sign_receipt
from dosimeter.ledger.signing import Signer
from dosimeter.ledger.usage import usage
from dosimeter.service import Office
from golden.plain import MOMENT, fix_identities, plain, without_hashes, write_key
from ledger import raw
from ledger.conftest import open_ledger, postgres, url  # noqa: F401

QUERY, SMALLER = dm.Gaussian(20.0), dm.Gaussian(40.0)
REPLACE, USER = dm.Neighbours.REPLACE_ONE_RECORD, dm.Neighbours.ADD_REMOVE_USER
LIMITS = {"epsilon": 3.0, "delta": 1e-6}

FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "planned": {"plan": (dm.SampledGaussian(sample_rate=0.01, noise_multiplier=1.0), 500)},
    "orders": {"orders": [2.0, 8.0, 32.0]},
    "weighted": {"orders": [2.0, 8.0, 32.0], "weights": [0.2, 0.5, 0.3]},
    "approximate": {"approx_delta": 1e-7},
    "menu": {"menu": [QUERY, SMALLER]},
    "replace": {"neighbours": REPLACE},
    "user": {"neighbours": USER},
}
ODOMETERS: dict[str, dict[str, Any]] = {
    "odometer": {},
    "planned odometer": {"menu": [QUERY, SMALLER], "plan": (QUERY, 50)},
    "weighted odometer": {"orders": [2.0, 8.0], "weights": [0.4, 0.6]},
    "approximate odometer": {"approx_delta": 1e-7},
    "menu odometer": {"menu": [QUERY, SMALLER]},
    "replace odometer": {"neighbours": REPLACE},
}
COSTS: dict[str, dm.Cost] = {
    "gaussian": QUERY,
    "laplace": dm.Laplace(30.0),
    "sampled gaussian": dm.SampledGaussian(sample_rate=0.01, noise_multiplier=2.0),
    "pure": dm.PureDp(0.01),
    "approximate": dm.ApproxDp(0.01, 1e-8),
    "zcdp": dm.Zcdp(0.0001),
    "approximate zcdp": dm.ApproxZcdp(0.0001, 1e-8),
    "curve": dm.Curve([2.0, 8.0, 32.0], [1e-4, 4e-4, 2e-3]),
    "event": dm.Event(dp_accounting.GaussianDpEvent(20.0)),
    "together": dm.Together([QUERY, dm.Laplace(50.0)]),
    "best of": dm.BestOf(dm.Gaussian(60.0), steps=1, mean=4.0),
}
TEXTS = {"purpose": 'mean "age"\n\u00e4\u2028', "actor": "Zo\u00eb \\"}


class Clock:
    """A clock that the script moves."""

    def __init__(self) -> None:
        self.now = MOMENT

    def __call__(self) -> datetime.datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += datetime.timedelta(**by)


class Script:
    """Results by the name of the operation."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def __call__(self, case: str, call: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        assert case not in self.found, case
        made = goldens.outcome(lambda: call(*given, **named))
        self.found[case] = plain(made)
        return made


def create(do: Script, ledger: Ledger, clock: Clock) -> None:
    for name, terms in FILTERS.items():
        do(f"create {name}", ledger.create, name, **LIMITS, **terms, **TEXTS)
    for name, terms in ODOMETERS.items():
        do(f"create {name}", ledger.create_odometer, name, 1e-6, **terms, **TEXTS)
    labels = ["2026-01", "2026-02", "2026-03"]
    do("create blocks", ledger.create_blocks, "visits", labels, **LIMITS, **TEXTS)
    do("create again", ledger.create, "plain", **LIMITS, exist_ok=True)
    do("create blocks again", ledger.create_blocks, "visits", labels, **LIMITS, exist_ok=True)
    since = datetime.date(2026, 2, 27)
    for every in ("day", "week", "month"):
        stream = do(
            f"create stream by {every}",
            ledger.create_stream,
            every,
            every,
            **LIMITS,
            since=since,
            **TEXTS,
        )
        do(f"blocks by {every}", stream.blocks)
        do(f"spend by {every}", stream.spend, QUERY, last=2, **TEXTS)
    day, shard = ledger.stream("day"), ledger.create_stream("shard", "shard", 0.3, 1e-6)
    do("stream again", ledger.create_stream, "day", "day", **LIMITS, exist_ok=True)
    clock.move(days=2)
    do("last blocks of days", day.blocks, 3)
    do("window of days", day.spend, QUERY, 2, last=3, key="window", purpose="report")
    do("window of days again", day.spend, QUERY, 2, last=3, key="window", purpose="report")
    do("add shard", lambda: [shard.add("eu"), shard.add("us"), shard.add("eu")])
    do("use up a shard", ledger["shard/eu"].spend, QUERY)
    do("offered shards", shard.offered, QUERY)
    do("spend in shards offered", shard.spend, QUERY, blocks=shard.offered(QUERY))
    do("spend in all shards", shard.spend, QUERY, last=2)
    do("statements of days", day.statements)
    do("add to days", day.add, "2026-03-08")
    do("spend in the rule", ledger["day/*"].spend, QUERY)
    do("no stream", ledger.stream, "plain")


def spend(do: Script, ledger: Ledger, clock: Clock) -> None:
    clock.move(seconds=1)
    for name in FILTERS | ODOMETERS:
        cost = dm.Gaussian(20.0, neighbours=ledger[name].guarantee().neighbours)
        do(f"spend from {name}", ledger[name].spend, cost, 3, **TEXTS)
        do(f"price in {name}", ledger[name].price, cost, 5)
        do(f"affordable in {name}", ledger[name].affordable, cost)
    for name, cost in COSTS.items():
        do(f"spend {name}", ledger["approximate"].spend, cost, 2, purpose=name)
        do(f"spend {name} beside a menu", ledger["menu"].spend, cost, purpose=name)
    clock.move(seconds=1)
    plain_one, menu = ledger["plain"], ledger["menu"]
    do("spend with a key", plain_one.spend, QUERY, 2, key="k1", purpose="once")
    do("spend with the key again", plain_one.spend, QUERY, 2, key="k1", purpose="twice")
    do("spend another with the key", plain_one.spend, SMALLER, 2, key="k1")
    do("spend too much", plain_one.spend, QUERY, 10_000, key="k2", **TEXTS)
    do("spend too much of a menu", menu.spend, SMALLER, 10_000, purpose="all")
    do("spend after a refusal", plain_one.spend, SMALLER, key="k2")
    do("spend a cost for others", plain_one.spend, dm.Gaussian(20.0, neighbours=USER))
    do("spend no cost", plain_one.spend, 20.0)
    do("spend no runs", plain_one.spend, QUERY, 0)
    do("spend infinitely much", ledger["odometer"].spend, dm.PureDp(1e300))
    do("spend from none", lambda: ledger["plane"].spend(QUERY))
    several = {"visits/2026-02": QUERY, "plain": SMALLER, "odometer": QUERY}
    do("spend in several", ledger.spend_all, several, 2, key="all", **TEXTS)
    do("spend in several again", ledger.spend_all, several, 2, key="all")
    do("spend too much in several", ledger.spend_all, several, 5000)
    do("spend in none", ledger.spend_all, {})
    visits = ledger.blocks("visits")
    do("spend in blocks", visits.spend, QUERY, 2, key="b", **TEXTS)
    do("spend in some blocks", lambda: ledger.blocks("visits", "2026-01..2026-02").spend(QUERY))
    do("spend noted", lambda: visits.noted("noted", actor="ada").spend(QUERY))
    for name in ("epsilon", "limit", "remaining", "closed", "spent_share"):
        do(f"{name} of blocks", getattr, visits, name)
    do("guarantee of blocks", visits.guarantee)
    do("no blocks", ledger.blocks, "visit")


def reserve(do: Script, ledger: Ledger, clock: Clock) -> None:
    clock.move(seconds=1)
    budget = ledger["plain"]
    drawn = budget.reserve(QUERY, 4, **TEXTS)
    do("reserve", lambda: drawn.receipt)
    do("draw", lambda: [drawn.draw(), drawn.draw(2), drawn.drawn, drawn.remaining])
    do("draw too many", lambda: drawn.draw(2))
    do("settle", drawn.commit)
    do("draw after the end", drawn.draw)
    with budget.reserve(SMALLER, 3, purpose="free"):
        pass
    expired = budget.reserve(SMALLER, 2, lifetime=1e-9)
    do("draw from one that expired", expired.draw)
    other = budget.reserve(SMALLER, 5, actor="ada").receipt
    do("settle too many", budget.settle, other, 6)
    do("settle by receipt", budget.settle, other, 2, actor="bob")
    do("settle again", budget.settle, other, 2)
    do("settle elsewhere", ledger["user"].settle, other, 2)
    do("reserve too many", budget.reserve, QUERY, 10_000, purpose="too many")
    do("reserve for ever", budget.reserve, QUERY, 1, lifetime=float("inf"))
    with budget.buffered(3, actor="loop") as gate:
        for _ in range(4):
            gate.spend(SMALLER)
        gate.spend(QUERY)
    kept = ledger["menu"].reserve(SMALLER, 3)
    do("reserve from a menu", lambda: kept.receipt)
    kept.commit()
    do("spend after reservations", budget.spend, SMALLER)


def end(do: Script, ledger: Ledger, other: Ledger, clock: Clock) -> None:
    clock.move(seconds=1)
    do("close", ledger["orders"].close, **TEXTS)
    do("close again", ledger["orders"].close)
    do("spend from a closed one", ledger["orders"].spend, QUERY, **TEXTS)
    do("price in a closed one", ledger["orders"].price, QUERY)
    copy = list(ledger.export("plain"))
    do("export", lambda: copy)
    do("import a copy", lambda: other.import_journal(copy).history())
    do("import again", other.import_journal, copy)
    do("import cut short", other.import_journal, copy[:-1])
    do("import changed", other.import_journal, [copy[0], copy[1].replace("3", "4"), *copy[2:]])
    moved = list(ledger.export("menu", to=other.identity))
    do("move", lambda: moved)
    do("move again", lambda: list(ledger.export("menu", to=other.identity)) == moved)
    do("move elsewhere", lambda: list(ledger.export("menu", to="f" * 32)))
    do("import a move elsewhere", ledger.import_journal, moved)
    do("import a move", lambda: other.import_journal(moved).spend(SMALLER, purpose="goes on"))
    do("spend from the moved", ledger["menu"].spend, SMALLER)
    do("import nothing", other.import_journal, [])
    # Refused last: PostgreSQL gives the number of a budget that was not made to none again.
    do("create a name that is taken", ledger.create, "plain", **LIMITS)
    do("create on other terms", ledger.create, "plain", 4.0, 1e-6, exist_ok=True)
    do("create a block that is taken", ledger.create_blocks, "visits", ["1", "2026-01"], **LIMITS)
    do("create a stream that is taken", ledger.create_stream, "day", "week", **LIMITS)
    do("create by no rule", ledger.create_stream, "hour", "hour", **LIMITS)
    do("create without a name", ledger.create, "", **LIMITS)


def read(do: Script, ledger: Ledger, other: Ledger) -> None:
    for name in ledger:
        do(f"statement of {name}", ledger[name].statement)
        do(f"guarantee of {name}", ledger[name].guarantee)
        do(f"share of {name}", getattr, ledger[name], "spent_share")
        do(f"verification of {name}", ledger.verify, name)
        do(f"entries of {name}", ledger[name].history, 1000)
    do("statements", ledger.statements, after="weighted", most=3)
    do("history", ledger["plain"].history, 5)
    do("opening", ledger["planned"].opening)
    do("identity", lambda: [ledger.identity, other.identity])
    budgets = [ledger[name] for name in ("plain", "odometer", "visits/2026-02", "menu")]
    for by in ("person", "purpose", "budget", "person,purpose"):
        do(f"usage by {by}", usage, budgets, by)
    do("usage by the hour", usage, budgets, "hour")


def sign(do: Script, ledger: Ledger, other: Ledger, folder: Path) -> None:
    key, file = write_key(folder / "key.pem"), folder / "anchors.jsonl"
    do("anchor", ledger.anchor, file, signing_key=key)
    do("anchor what did not move", ledger.anchor, file, signing_key=key)
    receipt = ledger["plain"].spend(SMALLER, purpose="after the anchor")
    do("anchor what moved", ledger.anchor, file, signing_key=key)
    do("file of anchors", lambda: file.read_text().splitlines())
    log = AnchorLog.read(file)
    do("verify with anchors", ledger.verify, "plain", anchors=log)
    do("verify another ledger", other.verify, "plain", anchors=log)
    do("verify a receipt", ledger.verify, "plain", receipt=receipt)
    do("verify another's receipt", ledger.verify, "user", receipt=receipt)
    do("verify a head", ledger.verify, "plain", head=receipt.hash)
    do("verify no head", ledger.verify, "plain", head="0" * 64)
    memory = ledger.verify("plain").memory
    ledger["plain"].spend(SMALLER)
    do("verify on", ledger.verify, "plain", since=memory)
    do("verify another on", ledger.verify, "user", since=memory)
    signer = Signer.read(key)
    signed = do("sign a receipt", sign_receipt, receipt, signer, ledger.identity)
    do("signed receipt", require_signed, signed, signer.public)
    do("receipt of another entry", require_signed, signed._replace(sequence=1), signer.public)
    do("receipt without signature", require_signed, receipt, signer.public)
    do("receipt by another key", require_signed, signed, "0" * 64)


JOURNAL, BUDGETS = "UPDATE dosimeter_journal SET ", "UPDATE dosimeter_budgets SET "
HERE, LAST = " WHERE place = {at} + 2", " WHERE place = {at} + 3"
DAMAGE = {
    "body": JOURNAL + "body = replace(body, '\"count\":2', '\"count\":1')" + HERE,
    "hash": JOURNAL + "hash = replace(hash, '0', '1')" + HERE,
    "key": JOURNAL + "key = 'other'" + HERE,
    "reference": JOURNAL + "reference = 7" + HERE,
    "missing": "DELETE FROM dosimeter_journal" + HERE,
    "missing last": "DELETE FROM dosimeter_journal" + LAST,
    "last": JOURNAL + "body = replace(body, 'last', 'lost')" + LAST,
    "epsilon": BUDGETS + "epsilon = 0.0 WHERE name = '{name}'",
    "sums": BUDGETS + "sums = replace(sums, '1', '2') WHERE name = '{name}'",
    "checksum": BUDGETS + "checksum = replace(checksum, '1', '2') WHERE name = '{name}'",
    "closed": BUDGETS + "closed = 1 WHERE name = '{name}'",
    "sequence": BUDGETS + "sequence = 2 WHERE name = '{name}'",
    "head": BUDGETS + "head = replace(head, '1', '2') WHERE name = '{name}'",
}


def damage(do: Script, ledger: Ledger, place: str) -> None:
    """Change rows behind the ledger's back, and see what it says of them."""
    budgets = {name: ledger.create(name, **LIMITS) for name in DAMAGE}
    for budget in budgets.values():
        for count, purpose in enumerate(("first", "second", "last"), 1):
            budget.spend(QUERY, count, purpose=purpose)
    raw.unprotect(place)
    with raw.tables(place) as tables:
        for name, sql in DAMAGE.items():
            at = f"(SELECT id FROM dosimeter_budgets WHERE name = '{name}') * {1 << 36}"
            tables.exec_driver_sql(sql.format(name=name, at=at))
    for name, budget in budgets.items():
        do(f"verify changed {name}", ledger.verify, name)
        do(f"spend after changed {name}", budget.spend, QUERY)
    do("statements of changed", ledger.statements)


def rows(place: str) -> dict[str, Any]:
    """Return the rows of all tables, but for the time at which the tables were made."""
    return {
        f"rows of {name}": plain([list(row) for row in raw.query(place, f"SELECT {what}")])
        for name, what in {
            "budgets": "* FROM dosimeter_budgets ORDER BY id",
            "journal": "* FROM dosimeter_journal ORDER BY place",
            "parameters": "* FROM dosimeter_parameters ORDER BY hash",
            "identity": "* FROM dosimeter_identity",
            "schema": "version FROM dosimeter_schema ORDER BY version",
        }.items()
    }


BYTES = ("export", "move", "file of anchors", "sign a receipt", "rows of ")


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers whose identities are numbers."""
    fix_identities(monkeypatch)
    monkeypatch.setenv("DOSIMETER_ACTOR", "root")


@pytest.mark.usefixtures("numbered")
def test_every_operation_gives_what_was_recorded(open_ledger, url, tmp_path):  # noqa: F811
    do, clock = Script(), Clock()
    ledger = open_ledger(clock=clock)
    with Ledger.open(f"{tmp_path}/other.db", clock=clock) as other:
        create(do, ledger, clock)
        spend(do, ledger, clock)
        reserve(do, ledger, clock)
        end(do, ledger, other, clock)
        read(do, ledger, other)
        sign(do, ledger, other, tmp_path)
    found = do.found | rows(url)
    damage(after := Script(), ledger, url)
    exact = {name: value for name, value in found.items() if name.startswith(BYTES)}
    rest = {name: value for name, value in found.items() if name not in exact}
    goldens.compare("ledger_bytes", exact)
    goldens.compare("ledger_results", without_hashes(rest | after.found))


SCHEMAS = {
    "sqlite": {
        "sqlite_master": "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        " ORDER BY name"
    },
    "postgresql": {
        "columns": "SELECT table_name, column_name, data_type, is_nullable, is_identity,"
        " column_default FROM information_schema.columns WHERE table_schema = current_schema()"
        " ORDER BY table_name, ordinal_position",
        "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)"
        " FROM pg_constraint WHERE connamespace = current_schema()::regnamespace"
        " AND contype <> 'n' ORDER BY 1, 2",
        "indexes": "SELECT indexname, replace(indexdef, current_schema() || '.', '')"
        " FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname",
        "options": "SELECT relname, reloptions::text FROM pg_class"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY relname",
        "triggers": "SELECT replace(pg_get_triggerdef(t.oid), current_schema() || '.', '')"
        " FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid"
        " WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal ORDER BY 1",
        "functions": "SELECT replace(pg_get_functiondef(oid), current_schema() || '.', '')"
        " FROM pg_proc WHERE pronamespace = current_schema()::regnamespace ORDER BY proname",
    },
}


def test_the_schema_is_what_was_recorded(url):  # noqa: F811
    """The tables of a ledger, and those that a server adds."""
    Ledger.open(url).disconnect()
    backend = url.partition(":")[0]

    def schema() -> dict[str, str]:
        return {
            f"{kind} {row[0]} {row[1] if len(row) > 1 else ''}": list(map(str, row))
            for kind, sql in SCHEMAS[backend].items()
            for row in raw.query(url, sql)
        }

    ledger = schema()
    with Office(url):
        server = schema()
    added = {f"server: {name}": row for name, row in server.items() if row != ledger.get(name)}
    goldens.compare(f"ledger_schema_{backend}", ledger | added)
