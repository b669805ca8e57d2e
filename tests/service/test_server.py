# SPDX-License-Identifier: Apache-2.0
"""The process around the service."""

from __future__ import annotations

import gc

import pytest
import uvicorn

from dosimeter.ledger import SchemaMismatch
from dosimeter.service import Office, logs
from dosimeter.service.server import Listening, serve
from ledger import raw


def test_no_request_waits_while_all_that_is_loaded_is_searched_for_garbage(url, monkeypatch):
    """Which takes a tenth of a second, every few hundred requests."""
    monkeypatch.setattr(logs, "begin", lambda *_, **__: None)
    left = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _: left.append(len(gc.get_objects())))
    loaded = len(gc.get_objects())
    try:
        serve(url, Listening(port=0), lambda *_: None, quiet=True)
    finally:
        gc.unfreeze()
    assert left[0] < loaded / 10


@pytest.mark.parametrize("version", [0, 2, 99])
def test_tables_of_an_unknown_version_are_refused(url, version):
    Office(url).close()
    raw.query(url, "UPDATE dosimeter_office SET version = :version", version=version)
    with pytest.raises(
        SchemaMismatch, match=f"must be of version 1 for this release, got {version}"
    ):
        Office(url)
