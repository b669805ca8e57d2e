# SPDX-License-Identifier: Apache-2.0
"""The process: an office, a first token if there is none, and a server until it is told to end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from dosimeter.ledger.signing import Signer
from dosimeter.service import logs
from dosimeter.service.app import RATE, make_app
from dosimeter.service.office import Office
from dosimeter.service.patience import Patience

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LAST_REQUESTS = 20
_CONNECTIONS = 1000


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a service listens, and how it is reached.

    Attributes:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        certificate: The file with the certificate, to speak TLS here.
        key: The file with its key.
        proxy: Whether a proxy stands before it, which speaks TLS and says who asks.
        rate: How many requests a second one token may make.
    """

    host: str = "127.0.0.1"
    port: int = 8421
    certificate: Path | None = None
    key: Path | None = None
    proxy: bool = False
    rate: float = RATE

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be given together, got one of them")
        for file in (self.certificate, self.key):
            if file is not None and not file.is_file():
                raise ValueError(f"certificate and key must be files, got {str(file)!r}")
        if self.host not in LOOPBACK and not self.https:
            raise ValueError(
                f"host must be this machine alone unless tokens travel by TLS, got {self.host!r}; "
                "give a certificate and its key, or say that a proxy that speaks TLS stands before"
            )

    @property
    def https(self) -> bool:
        """Whether browsers reach it by TLS."""
        return self.proxy or self.certificate is not None


def serve(
    url: str,
    listening: Listening,
    announce: Callable[[str | None, str], None],
    *,
    quiet: bool,
    signing_key: Path | None = None,
) -> None:
    """Serves the budgets at a URL until it is told to end; requests under way are finished.

    Args:
        url: The database.
        listening: Where to listen.
        announce: Called once it listens, with a first token if there was none, and its address.
        quiet: Whether only what went wrong is logged.
        signing_key: The file with the key that signs receipts and anchors, made if need be.
    """
    logs.begin(url, quiet=quiet)
    signer = None if signing_key is None else Signer.made(signing_key)
    with Office(url, signer=signer) as office:
        ends: list[uvicorn.Server] = []
        app = make_app(
            office,
            https=listening.https,
            rate=listening.rate,
            ending=lambda: any(server.should_exit for server in ends),
        )
        config = uvicorn.Config(
            app,
            host=listening.host,
            port=listening.port,
            http=Patience,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=listening.proxy,
            forwarded_allow_ips="*" if listening.proxy else None,
            ssl_certfile=listening.certificate,
            ssl_keyfile=listening.key,
            timeout_graceful_shutdown=_LAST_REQUESTS,
            limit_concurrency=_CONNECTIONS,
            lifespan="off",
        )
        ends.append(_Announcing(config, lambda at: announce(office.tokens.issue_first(), at)))
        keep_loaded()
        ends[0].run()


def keep_loaded() -> None:
    """Takes what is loaded by now out of the garbage collector's rounds.

    It would read all of it every few hundred requests, and everybody would wait for that.
    """
    gc.collect()
    gc.freeze()


class _Announcing(uvicorn.Server):
    """A server that says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Begins to listen."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.should_exit:
            return
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._announce(f"{'https' if self.config.is_ssl else 'http'}://{shown}:{port}")
