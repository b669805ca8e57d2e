# SPDX-License-Identifier: Apache-2.0
"""The budget office: a ledger behind tokens, roles and HTTP (extra: service)."""

from dosimeter.service.app import make_app
from dosimeter.service.office import Office
from dosimeter.service.roles import Caller, Grant, Role
from dosimeter.service.server import Listening, serve
from dosimeter.service.tokens import Tokens

__all__ = ["Caller", "Grant", "Listening", "Office", "Role", "Tokens", "make_app", "serve"]
