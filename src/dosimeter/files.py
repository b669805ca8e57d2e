# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all: written beside, then renamed."""

from __future__ import annotations

import pathlib
import secrets
from collections.abc import Callable


def replaced(path: pathlib.Path, write: Callable[[pathlib.Path], object]) -> None:
    """Writes a file beside its place and moves it there; a reader sees all of it or the old one.

    Args:
        path: Its place.
        write: Writes it at the path that it is given, which ends in ".part".
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        write(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
