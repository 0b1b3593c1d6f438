"""A certificate authority of a test's own, a server certificate for 127.0.0.1 and a client certificate."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates(NamedTuple):
    """PEM files."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def certificates(folder: Path) -> Certificates:
    """Make the files in `folder`."""
    ca_key, ca_name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
    found = Certificates(*(folder / f"{name}.pem" for name in Certificates._fields))
    authority = _builder(ca_name, ca_name, ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    _write(found.authority, authority.sign(ca_key, hashes.SHA256()))
    for name, path, key_path in (
        ("server", found.server, found.server_key),
        ("client", found.client, found.client_key),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("collector.example")]
        address = x509.SubjectAlternativeName(names)
        certificate = _builder(_name(name), ca_name, key).add_extension(address, False).sign(ca_key, hashes.SHA256())
        _write(path, certificate)
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    return found


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"otel_ml test {name}")])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - datetime.timedelta(hours=1),
        now + datetime.timedelta(hours=1),
    )  # fmt: skip


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
