# SPDX-License-Identifier: Apache-2.0
"""Archives: what a damaged one raises, and whether a tar was read to its end."""

from __future__ import annotations

import gzip
import lzma
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

# A link to nothing is a KeyError, a password or an unknown compression a RuntimeError.
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    KeyError,
    RuntimeError,
)
"""What the readers of archives raise where an archive is damaged or locked."""

_BLOCK = 512


@contextmanager
def undamaged(path: pathlib.Path) -> Iterator[None]:
    """Raises a ValueError that names the archive where reading it fails."""
    try:
        yield
    except _BROKEN as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise ValueError(f"data must be a whole archive, got {path.name}: {reason}") from error


def require_end(archive: tarfile.TarFile) -> None:
    """Raises unless a tar that was gone through ends as one does, in zeros.

    The iterator of tarfile takes a header that it cannot read for the end.
    """
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    length = 0
    while chunk := archive.fileobj.read(1 << 20):
        if chunk.strip(b"\0"):
            raise tarfile.ReadError(f"a header is damaged at byte {archive.offset}")
        length += len(chunk)
    if length < 2 * _BLOCK:
        raise tarfile.ReadError(f"it is cut off at byte {archive.offset}")
