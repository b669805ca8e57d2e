# SPDX-License-Identifier: Apache-2.0
"""Servers and clients are killed at any moment; what was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import dosimeter as dm
from dosimeter.ledger import Ledger
from dosimeter.service import Caller, Grant, Office
from ledger.conftest import postgres  # noqa: F401
from service.servers import Process, free_port

ENDED = {0, -signal.SIGTERM}
"""How a server ends that was told to: by itself, or handing the signal on once it has finished."""
CLIENT = Path(__file__).with_name("clients.py")


class Clients:
    """Processes that spend, each killed and begun anew at will."""

    def __init__(self, addresses, token, folder, number):
        self._folder = Path(folder)
        self._nursery = subprocess.Popen(
            [sys.executable, str(CLIENT), str(folder), str(number), *addresses],
            env={**os.environ, "DOSIMETER_TOKEN": token},
            stdin=subprocess.PIPE,
            text=True,
        )

    def kill(self, i):
        self._nursery.stdin.write(f"{i}\n")
        self._nursery.stdin.flush()

    def end(self):
        self._nursery.stdin.close()
        assert self._nursery.wait(60) == 0

    def acknowledged(self):
        logs = [log.read_text() for log in self._folder.glob("*.log")]
        # The last line of one that was killed may be half written.
        return [json.loads(line) for log in logs for line in log.split("\n")[:-1]]


def play(url, folder, *, servers, clients, kills, seed):
    """Kills servers and clients in turn while all spend; what was acknowledged and recorded."""
    with Office(url) as office, Ledger.open(url) as ledger:
        ledger.create("shared", 3.0, 1e-6)
        token = office.tokens.issue("load", [Grant.read("spender:*")], issued_by="test")
    ports = [free_port() for _ in range(servers)]
    running = [Process(url, port) for port in ports]
    spending = Clients([server.address for server in running], token, folder, clients)
    draw = random.Random(seed)
    try:
        for _ in range(kills):
            before = len(spending.acknowledged())
            end = time.monotonic() + 300
            while len(spending.acknowledged()) < before + 3 and time.monotonic() < end:
                time.sleep(0.02)
            assert len(spending.acknowledged()) > before, "nothing goes on after a kill"
            if draw.random() < 0.5:
                i = draw.randrange(servers)
                running[i].end(signal.SIGKILL)
                running[i] = Process(url, ports[i])
            else:
                spending.kill(draw.randrange(clients))
        assert httpx.get(f"{running[0].address}/health", timeout=30).status_code == 200
    finally:
        spending.end()
        codes = [server.end() for server in running]
    assert set(codes) <= ENDED, "told to end, a server ends"
    return spending.acknowledged()


def require_exactly_once(url, acknowledged):
    with Ledger.open(url) as ledger:
        assert ledger.verify("shared").ok
        statement = ledger["shared"].statement()
        entries = ledger["shared"].history(statement.entries)
        assert statement.epsilon <= statement.limit
    keys = [entry.key for entry in entries if entry.kind == "spend"]
    assert len(keys) == len(set(keys))
    recorded = {entry.key: entry.sequence for entry in entries}
    assert acknowledged
    for key, sequence, _ in acknowledged:
        assert recorded[f"load/{key}"] == sequence
    assert len({key for key, _, _ in acknowledged}) == len(acknowledged)


def test_two_servers_on_one_database_acknowledge_only_what_is_recorded(url):
    """Each knows where the budget stood when it last spent; the other has moved it since."""
    caller = Caller("t", "load", (Grant.read("owner:*"),))
    with Office(url) as one, Office(url) as other:
        one.create(caller, ["shared"], 3.0, delta=1e-6)
        costs = {"shared": dm.Gaussian(noise_multiplier=200.0)}
        for i in range(12):
            for office in (one, other) if i % 3 else (other, one, one):
                key = f"{i}-{id(office)}-{os.urandom(4).hex()}"
                receipt = office.spend(caller, costs, 1, key=key, purpose="")["shared"]
                assert other.has_entry(caller, "shared", receipt.sequence, receipt.hash)
        assert one.verify(caller, "shared").ok


def test_a_few_kills_lose_and_double_nothing(url, tmp_path):
    found = play(url, tmp_path, servers=1, clients=2, kills=2, seed=4)
    require_exactly_once(url, found)


@pytest.mark.slow
def test_a_hundred_kills_with_two_servers_on_postgresql(postgres, tmp_path):  # noqa: F811
    url = postgres.fresh_url()
    found = play(url, tmp_path, servers=2, clients=32, kills=100, seed=1)
    require_exactly_once(url, found)


def test_requests_under_way_are_finished_when_told_to_end(url):
    server = Process(url)
    token = server.first_token()
    with Ledger.open(server.address, token=token) as ledger:
        ledger.create("last", 3.0, 1e-6)
        assert ledger["last"].spend(dm.Gaussian(20.0)).sequence == 1
    assert server.end(signal.SIGTERM) in ENDED
