# SPDX-License-Identifier: Apache-2.0
"""Results as JSON for goldens, and what makes them repeatable: clock, identities, signing key."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import html
import os
import re
import secrets
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import dosimeter as dm

MOMENT = datetime.datetime(2026, 3, 5, 12, 30, 15, 250_000, datetime.UTC)
_HASHES = re.compile(r"\b(?:[0-9a-f]{128}|[0-9a-f]{64})\b")


def plain(value: Any) -> Any:
    """Return a result as JSON values: records by field, floats in hex, other objects by `repr`."""
    if isinstance(value, enum.Enum | datetime.date):
        return str(value)
    if isinstance(value, float):
        return value.hex()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, dm.Cost):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return repr(value)


def without_hashes(value: Any) -> Any:
    """Return a result with a word in place of each hash, key and signature."""
    if isinstance(value, dict):
        return {name: without_hashes(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_hashes(one) for one in value]
    return _HASHES.sub("(hash)", value) if isinstance(value, str) else value


class Masks:
    """Words in place of tokens, session secrets and identities, numbered as they are first met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        """Return a result with its tokens, identities and hashes masked."""
        if isinstance(value, dict):
            return {name: self(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self(one) for one in value]
        if not isinstance(value, str):
            return value
        value = re.sub(r"dsm_[0-9a-f]{12}_[\w-]{43}", "(token)", value)
        value = re.sub(r"(dosimeter=)[\w-]{20,}", r"\1(secret)", value)
        value = re.sub(r"\b(?:[0-9a-f]{12}|[0-9a-f]{24}|[0-9a-f]{32})\b", self._number, value)
        return without_hashes(value)

    def _number(self, found: re.Match[str]) -> str:
        return self._known.setdefault(found[0], f"(id {len(self._known) + 1})")


def visible(page: str) -> list[str]:
    """Return the words of an HTML page by line, with the forms and their fields in brackets."""
    page = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", " ", page)
    page = re.sub(r'<form [^>]*action="([^"]*)"[^>]*>', r"\n[form \1]\n", page)
    field = r'<(?:input|select)\b(?:(?!type="hidden")[^>])*?name="([^"]*)"[^>]*>'
    page = re.sub(field, r" [\1] ", page)
    page = re.sub(r"</(?:p|tr|h\d|li|form|nav|table|header|title|summary|div|dd)>", "\n", page)
    lines = html.unescape(re.sub(r"<[^>]*>", " ", page)).splitlines()
    return [words for line in lines if (words := " ".join(line.split()))]


def fix_identities(patch: pytest.MonkeyPatch) -> None:
    """Make the identities of ledgers, tokens and requests count up from 1."""
    drawn = iter(range(1, 1 << 16))
    patch.setattr(secrets, "token_bytes", lambda size=32: next(drawn).to_bytes(size, "big"))
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(drawn)))


def fix_clock(patch: pytest.MonkeyPatch, moment: datetime.datetime = MOMENT) -> None:
    """Make `datetime.now` return one moment in all modules of the package that are loaded."""

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return moment.astimezone(tz)

    for name, module in list(sys.modules.items()):
        if name.startswith("dosimeter.") and vars(module).get("datetime") is datetime.datetime:
            patch.setattr(module, "datetime", Fixed)


def write_key(path: Path) -> Path:
    """Write a signing key that is always the same."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    os.chmod(path, 0o600)
    return path
