# SPDX-License-Identifier: Apache-2.0
"""Signer: an Ed25519 key in a file that its owner alone may read.

Whoever holds the key can sign, and everybody who knows the public half can tell. The library of
the field does both; this module only keeps the file, and says in words what is wrong with it.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

_PUBLIC = 64


class Signer:
    """Signs texts with a key.

    Attributes:
        public: The public half of the key, in hexadecimal.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw().hex()

    @classmethod
    def read(cls, path: Path) -> Signer:
        """The signer with the key in a file.

        Raises:
            ValueError: There is none, others may read it, or it holds something else.
        """
        try:
            mode, text = path.stat().st_mode, path.read_bytes()
        except FileNotFoundError:
            raise ValueError(
                f"signing key must be a file, got {str(path)!r}, which is not there; restore it "
                "from where keys are kept, or begin a new file of anchors with a new key"
            ) from None
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(
                f"signing key must be readable by its owner alone, got {str(path)!r} with mode "
                f"{stat.S_IMODE(mode):04o}; whoever read it can sign: make a new one, or chmod 600"
            )
        try:
            key = load_pem_private_key(text, password=None)
        except (TypeError, ValueError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"signing key must be an Ed25519 key in PEM, got {str(path)!r}")
        return cls(key)

    @classmethod
    def made(cls, path: Path) -> Signer:
        """The signer with the key in a file, which is made if it is not there."""
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, path)  # whole, and never over another one
            except FileExistsError:
                pass  # another server was first
            finally:
                part.unlink()
        return cls.read(path)

    def sign(self, text: str) -> str:
        """The signature of a text, in hexadecimal."""
        return self._key.sign(text.encode("utf-8", "surrogatepass")).hex()


def public_key(text: object) -> str:
    """A public key as people give it: 64 hexadecimal digits."""
    if not isinstance(text, str) or len(text) != _PUBLIC or set(text) - set("0123456789abcdef"):
        raise ValueError(
            f"public key must be {_PUBLIC} hexadecimal digits, as dosimeter budget anchor prints "
            f"them, got {text!r:.100}"
        )
    return text


def is_signed(text: str, signature: str, public: str) -> bool:
    """Whether a signature of a text is that of a key."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), text.encode("utf-8", "surrogatepass"))
    except (InvalidSignature, ValueError):
        return False
    return True
