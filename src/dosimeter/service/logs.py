# SPDX-License-Identifier: Apache-2.0
"""Logs as lines of JSON, in which tokens and passwords cannot stand.

Whatever a line would say is searched for tokens, for the password of the database and for
passwords in URLs, and they are struck out: of our own words and of those that drivers say.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

from sqlalchemy.engine import make_url

_TOKEN = re.compile(r"dsm_[0-9a-f]+_[A-Za-z0-9_-]+")
_IN_URL = re.compile(r"(\w+://[^\s:/@]*):[^\s@/]+@")
_STRUCK = "[struck out]"


class Lines(logging.Formatter):
    """One line of JSON for each record."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secret for secret in secrets if secret)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "says": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return self.strike(json.dumps(line, default=str))

    def strike(self, text: str) -> str:
        """The text without secrets."""
        text = _IN_URL.sub(rf"\1:{_STRUCK}@", _TOKEN.sub(_STRUCK, text))
        for secret in self._secrets:
            for form in {secret, json.dumps(secret)[1:-1]}:
                text = text.replace(form, _STRUCK)
        return text


def begin(url: str, *, quiet: bool = False) -> None:
    """Sends the logs of the service and of its server to the standard error."""
    password = make_url(url).password if "://" in url else None
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines((str(password),) if password else ()))
    for name in ("dosimeter.service", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [] if name == "uvicorn.error" else [handler]
        logger.propagate = name == "uvicorn.error"
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("uvicorn.access").disabled = True
