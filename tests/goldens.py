"""Recorded results, which a redesign must not change by accident.

A golden is a JSON file in `tests/golden/data` with one line for each case. A test computes the same
cases again and calls `compare`. Results that a deliberate change alters are recorded again with
`RECORD_GOLDENS=1`, in the commit that alters them.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "golden" / "data"

RENAMES: dict[str, str] = {}
"""Names and formats that changed since the recording, old text to new.

The whole text of a case is searched, so that each entry must be long enough to hit nothing else.
"""

_SHOWN, _WIDEST = 5, 2000
"""How many differing cases a failure prints, and how many characters of each."""


_ARITHMETIC = "arithmetic of the recording"

_NUMBER = re.compile(r"-?(?:0x[01]\.[0-9a-f]+p[+-]\d+|\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)")


def compare(name: str, found: Mapping[str, Any], *, near: float | None = None) -> None:
    """Compare results with a golden, or record them if `RECORD_GOLDENS` is set.

    Args:
        name: The file's name, without `.json`.
        found: What JSON can hold, by the name of the case. Floats belong in `float.hex`.
        near: For results of numpy's exponentials and logarithms, whose last bits depend on the
            CPU: the relative difference that is allowed where `arithmetic` is not that of the
            recording. Whole numbers may then differ by one, and a string that begins with
            "bits " is not compared. On the arithmetic of the recording every bit counts.

    Raises:
        AssertionError: A case differs, is missing or is new; the message shows the first few.
    """
    path = DATA / f"{name}.json"
    now = {case: _plain(value) for case, value in found.items()}
    if near is not None:
        now = {_ARITHMETIC: arithmetic(), **now}
    if os.environ.get("RECORD_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(now), encoding="utf-8")
        return
    recorded = json.loads(renamed(path.read_text(encoding="utf-8")))
    if near is not None and recorded.get(_ARITHMETIC) != now[_ARITHMETIC]:
        recorded = _taken_for(recorded, now, near)
    odd = [case for case in {**recorded, **now} if _line(recorded, case) != _line(now, case)]
    lines = [
        f"{case}\n  {word} {_line(cases, case)[:_WIDEST]}"
        for case in odd[:_SHOWN]
        for word, cases in (("recorded", recorded), ("found   ", now))
    ]
    assert not odd, (
        f"{len(odd)} of {len(recorded)} cases of golden {name!r} differ; if that is intended, "
        "record them again with RECORD_GOLDENS=1 and say why in the commit\n" + "\n".join(lines)
    )


def arithmetic() -> str:
    """Return a digest of functions that processors and versions of numpy round differently."""
    at = np.linspace(1e-3, 20.0, 4001)
    values = [each(at) for each in (np.exp, np.log, np.expm1, np.log1p, np.sinh, np.log2)]
    values += [np.convolve(at, at[:99]), np.array([at @ at, at.sum()]), np.abs(np.fft.rfft(at))]
    values += [np.array([each(x) for x in at]) for each in (math.exp, math.log, math.erfc)]
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the kind and text of the exception it raises."""
    try:
        return call()
    except Exception as error:
        return {"raised": type(error).__name__, "says": str(error)}


def renamed(text: str) -> str:
    """Return recorded text in the names and formats of today."""
    for old, new in RENAMES.items():
        text = text.replace(old, new)
    return text


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


def _text(cases: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(case)}: {json.dumps(value)}" for case, value in cases.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _taken_for(recorded: dict[str, Any], now: dict[str, Any], near: float) -> dict[str, Any]:
    """Return what was recorded, with the results of today in place of those that are near."""
    same = {case for case in recorded if _alike(recorded[case], now.get(case), near)}
    return {case: now[case] if case in same else recorded[case] for case in recorded} | {
        _ARITHMETIC: now[_ARITHMETIC]
    }


def _alike(old: Any, new: Any, near: float) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_alike(old[key], new[key], near) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            _alike(*both, near) for both in zip(old, new, strict=True)
        )
    if isinstance(old, str) and isinstance(new, str):
        if old.startswith("bits ") and new.startswith("bits "):
            return True
        return _NUMBER.split(old) == _NUMBER.split(new) and all(
            _close(*both, near)
            for both in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
        )
    if type(old) is int and type(new) is int:
        return _close(str(old), str(new), near)
    return bool(old == new)


def _close(old: str, new: str, near: float) -> bool:
    old, new = old.replace(",", ""), new.replace(",", "")
    if old.isdigit() and new.isdigit() and abs(int(old) - int(new)) <= 1:
        return True
    a, b = (float.fromhex(one) if "x" in one else float(one) for one in (old, new))
    return math.isclose(a, b, rel_tol=near, abs_tol=1e-300)


def _line(cases: Mapping[str, Any], case: str) -> str:
    return json.dumps(cases[case]) if case in cases else "nothing"
