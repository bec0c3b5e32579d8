"""The certificates of a cluster, created with the openssl command (3.0 or later)."""

import base64
import json
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

_CONFIG = "[req]\ndistinguished_name = dn\n[dn]\n"  # instead of the system's defaults
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DAYS = "3650"
_LOOPBACK = IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate authority of a cluster, and the folder of its certificates."""

    folder: Path

    @property
    def ca(self) -> Certificate:
        """The certificate that all components trust."""
        return self._files("ca")

    def issue(
        self, name: str, *, user: str, group: str = "", address: IPv4Address = _LOOPBACK
    ) -> Certificate:
        """Returns a certificate for a user and group that is also valid for a server on loopback.

        `address` is another address of the server. Later calls return the existing certificate.
        """
        files = self._files(name)
        if not files.certificate.exists():
            _openssl(
                self.folder,
                *("-CA", self.ca.certificate, "-CAkey", self.ca.key),
                *("-subj", f"/O={group}/CN={user}" if group else f"/CN={user}"),
                *("-addext", "basicConstraints=critical,CA:FALSE"),
                *("-addext", "keyUsage=critical,digitalSignature"),
                *("-addext", "extendedKeyUsage=clientAuth,serverAuth"),
                *(
                    "-addext",
                    f"subjectAltName=IP:{_LOOPBACK},IP:{address},DNS:localhost,DNS:kubernetes",
                ),
                *("-keyout", files.key, "-out", files.certificate),
            )
        return files

    def _files(self, name: str) -> Certificate:
        return Certificate(self.folder / f"{name}.crt", self.folder / f"{name}.key")


def create_authority(folder: Path) -> Authority:
    """Creates a certificate authority in a new folder."""
    folder.mkdir()
    (folder / "openssl.cnf").write_text(_CONFIG)
    authority = Authority(folder)
    _openssl(
        folder,
        *("-subj", "/CN=carina-tests"),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        *("-keyout", authority.ca.key, "-out", authority.ca.certificate),
    )
    return authority


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: dict[str, str]) -> Path:
    """Writes a kubeconfig; `user` is its user entry, with a token file or certificates."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode(),
    }
    context = {"cluster": "carina", "user": "user"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "carina", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "carina", "context": context}],
        "current-context": "carina",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return path


def client_certificate(certificate: Certificate) -> dict[str, str]:
    """Returns the user entry of a kubeconfig with an embedded certificate."""
    return {
        "client-certificate-data": base64.b64encode(certificate.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(certificate.key.read_bytes()).decode(),
    }


def _openssl(folder: Path, *arguments: str | Path) -> None:
    config = folder / "openssl.cnf"
    command = ["openssl", "req", "-x509", "-config", config, "-days", _DAYS, *_CURVE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl (3.0 or later is needed) failed: {done.stderr}")
