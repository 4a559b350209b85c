"""Certificates for tests, made by the `openssl` command: a CA, and brokers and clients that it vouches for."""

import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

NAMES = "DNS:localhost,IP:127.0.0.1,IP:::1"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Identity(NamedTuple):
    """`store` holds the private key and the certificate."""

    store: Path
    key: Path
    certificate: Path


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl command to make certificates with")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = folder / f"{name}.key"
        self.certificate = folder / f"{name}.pem"
        _openssl(
            "req", "-x509", *_KEY, "-nodes", "-keyout", self._key, "-out", self.certificate, "-days", "30",
            "-subj", f"/CN={name}",
        )  # fmt: skip

    @cached_property
    def broker(self) -> Identity:
        return self.issue("broker")

    @cached_property
    def client(self) -> Identity:
        return self.issue("client")

    @cached_property
    def stranger(self) -> "Authority":
        """Another CA, which nobody believes."""
        return Authority(self._folder / "stranger", "stranger")

    def issue(self, name: str, *, names: str = NAMES, days: int = 30, password: str | None = None) -> Identity:
        """`days` below 0: one that has expired. With a password its key is encrypted."""
        key, request, certificate, store, more = (
            self._folder / f"{name}.{end}" for end in ("key", "csr", "crt", "pem", "ext")
        )
        secrecy = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _openssl("req", "-new", *_KEY, *secrecy, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        more.write_text(f"subjectAltName={names}\n")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
            "-out", certificate, "-days", str(days), "-extfile", more,
        )  # fmt: skip
        store.write_text(key.read_text() + certificate.read_text())
        return Identity(store, key, certificate)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
