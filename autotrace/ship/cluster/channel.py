"""Connect a relay and the collector of its run through frames that only the two ends can have written.

Each end sends a nonce, and proves with it that the end knows the run's secret. The secret never goes over the wire. A
relay sends no records before the other end has given the proof. A frame (two lengths, a head, a body) ends with a
digest under a key of this connection, so an attacker in between can drop the connection and change nothing. The
attacker can read the frames unless the collector has a certificate (``AUTOTRACE_TLS``): a relay accepts only the
certificate whose digest the run carries.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import socket
import ssl
import struct
from collections.abc import Mapping

from autotrace.config import environment as env

MAX_HEAD = 8 << 10
MAX_BODY = 16 << 20
"""Limit the bytes in one frame."""
_LENGTHS = struct.Struct(">II")
_DIGEST = 32


class Channel:
    """Hold one proved end of ``connection``. Raises ``ConnectionError`` if the other end does not know ``secret``,
    ``OSError`` if the other end is silent. The connection is then closed."""

    def __init__(self, connection: socket.socket, secret: str, *, collector: bool) -> None:
        self._connection = connection
        self._numbers = [0, 0]
        try:
            mine = secrets.token_bytes(_DIGEST)
            if collector:
                connection.sendall(mine)
                theirs, proof = self._exactly(_DIGEST), self._exactly(_DIGEST)
                nonces = mine + theirs
            else:
                theirs = self._exactly(_DIGEST)
                nonces = theirs + mine
                connection.sendall(mine + _signed(secret.encode(), b"relay", nonces))
                proof = self._exactly(_DIGEST)
            if not hmac.compare_digest(
                proof, _signed(secret.encode(), b"relay" if collector else b"collector", nonces)
            ):
                raise ConnectionError("the other end does not know this run")
            if collector:
                connection.sendall(_signed(secret.encode(), b"collector", nonces))
        except BaseException:
            self.close()
            raise
        self._keys = [_signed(secret.encode(), way, nonces) for way in (b"to relay", b"to collector")]
        if not collector:
            self._keys.reverse()

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Send a frame. Raises ``OSError``."""
        lengths = _LENGTHS.pack(len(head), len(body))
        self._connection.sendall(b"".join((lengths, head, body, self._digest(0, lengths, head, body))))

    def begun(self) -> tuple[int, int]:
        """Wait until a frame begins; return the lengths of head and body. Raises ``OSError``."""
        lengths = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        if lengths[0] > MAX_HEAD or lengths[1] > MAX_BODY:
            raise ConnectionError("the other end sends too much")
        return lengths

    def rest(self, lengths: tuple[int, int]) -> tuple[bytes, bytes]:
        """Receive head and body of the frame that has begun. Raises ``OSError``, also if another party wrote the
        frame."""
        head, body = (self._exactly(length) for length in lengths)
        if not hmac.compare_digest(self._exactly(_DIGEST), self._digest(1, _LENGTHS.pack(*lengths), head, body)):
            raise ConnectionError("somebody in between has changed what was sent")
        return head, body

    def close(self) -> None:
        """Drop the connection."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _digest(self, way: int, *parts: bytes) -> bytes:
        self._numbers[way] += 1
        digest = hmac.new(self._keys[way], self._numbers[way].to_bytes(8, "big"), "sha256")
        for part in parts:
            digest.update(part)
        return digest.digest()

    def _exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._connection.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the other end hung up")
            parts += part
        return bytes(parts)


def _signed(key: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key, role + nonces, "sha256")


def certificate(environ: Mapping[str, str]) -> tuple[ssl.SSLContext | None, str]:
    """Load the TLS context of a collector and the digest of its certificate; None and "" without a certificate.
    ``AUTOTRACE_TLS`` names certificate and key; otherwise Ray's are used if Ray speaks TLS. Raises ``OSError`` and
    ``ValueError``."""
    paths = [path for path in environ.get(env.TLS, "").split(os.pathsep) if path]
    if not paths and environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        paths = [environ["RAY_TLS_SERVER_CERT"], environ["RAY_TLS_SERVER_KEY"]]
    if not paths:
        return None, ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    with open(paths[0], encoding="ascii") as file:
        first = re.search("-+BEGIN CERTIFICATE-+.*?-+END CERTIFICATE-+", file.read(), re.S)
    if first is None:
        raise ValueError(f"{paths[0]} holds no certificate")
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0])).hexdigest()


def encrypted(connection: socket.socket, digest: str) -> socket.socket:
    """Wrap ``connection`` to a collector in TLS. Raises ``OSError``, also if the certificate has another digest."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the digest says more than a name
    secured = context.wrap_socket(connection)
    shown = secured.getpeercert(binary_form=True) or b""
    if not hmac.compare_digest(hashlib.sha256(shown).hexdigest(), digest):
        secured.close()
        raise ConnectionError("the collector shows another certificate than that of this run")
    return secured
