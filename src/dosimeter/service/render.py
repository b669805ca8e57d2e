# SPDX-License-Identifier: Apache-2.0
"""Templates and the files beside them; everything that is put in is escaped, but for pictures."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from dosimeter.rounding import at_least, at_most, exact, share_words, shortened
from dosimeter.service.views import short, when

_FILES = {
    "report.css": ("dosimeter.report", "page.css", "text/css"),
    "office.css": ("dosimeter.service", "static/office.css", "text/css"),
    "office.js": ("dosimeter.service", "static/office.js", "text/javascript"),
}


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("dosimeter.service"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "at_most": at_most,
        "at_least": at_least,
        "exact": exact,
        "when": when,
        "day": lambda seconds: datetime.fromtimestamp(seconds, UTC).date().isoformat(),
        "many": lambda number: f"{number:,}",
        "shortened": lambda promise: shortened(str(promise)),
        "share": share_words,
        "short": short,
    }
    return made


def render(request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """A page."""
    state = request.state
    known = {"caller": getattr(state, "caller", None), "word": getattr(state, "word", "")}
    text = _templates().get_template(template).render(**known, **{"problem": None, **values})
    return HTMLResponse(text, status_code=code)


def file(name: str) -> Response:
    """A style sheet or a script; 404 for anything else."""
    if name not in _FILES:
        return Response(status_code=404)
    package, path, kind = _FILES[name]
    content = resources.files(package).joinpath(path).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})
