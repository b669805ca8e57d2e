"""Recorded results, which a redesign must not change by accident.

A golden is a JSON file in `tests/golden/data` with one line for each case. A test computes the same
cases again and calls `compare`. Results that a deliberate change alters are recorded again with
`RECORD_GOLDENS=1`, in the commit that alters them.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "golden" / "data"

RENAMES: dict[str, str] = {}
"""Names and formats that changed since the recording, old text to new.

The whole text of a case is searched, so that each entry must be long enough to hit nothing else.
"""

_SHOWN, _WIDEST = 5, 2000
"""How many differing cases a failure prints, and how many characters of each."""


def compare(name: str, found: Mapping[str, Any]) -> None:
    """Compare results with a golden, or record them if `RECORD_GOLDENS` is set.

    Args:
        name: The file's name, without `.json`.
        found: What JSON can hold, by the name of the case. Floats belong in `float.hex`.

    Raises:
        AssertionError: A case differs, is missing or is new; the message shows the first few.
    """
    path = DATA / f"{name}.json"
    now = {case: _plain(value) for case, value in found.items()}
    if os.environ.get("RECORD_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(now), encoding="utf-8")
        return
    recorded = json.loads(renamed(path.read_text(encoding="utf-8")))
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


def _line(cases: Mapping[str, Any], case: str) -> str:
    return json.dumps(cases[case]) if case in cases else "nothing"
