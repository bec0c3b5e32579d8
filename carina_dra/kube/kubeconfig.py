"""Kubeconfig files, read by the official client, which agrees with kubectl on every detail.

No other module imports `kubernetes`; `configuration` imports this one only when it is needed.
"""

import os
import threading
from pathlib import Path
from typing import Final

import kubernetes.client
import kubernetes.config
import yaml
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config.config_exception import ConfigException

from carina_dra.kube.connection import (
    ClientCertificate,
    ConfigurationError,
    Connection,
    Credentials,
    NoCredentials,
    SystemTrust,
    Tls,
    Trust,
    TrustAnyone,
    TrustFile,
)

_DEFAULT_FILE: Final = "~/.kube/config"


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Connection:
    """The connection that a kubeconfig file describes, exec plugins included.

    path: by default the files that KUBECONFIG names, or ~/.kube/config.
    context: by default the file's current one.

    Raises:
        ConfigurationError: no file, or one that cannot be used.
    """
    loaded = _load(path, context)
    certificate = None
    if loaded.cert_file and loaded.key_file:
        certificate = ClientCertificate(Path(loaded.cert_file), Path(loaded.key_file))
    trust: Trust = SystemTrust()
    if not loaded.verify_ssl:
        trust = TrustAnyone()
    elif loaded.ssl_ca_cert:
        trust = TrustFile(Path(loaded.ssl_ca_cert))
    credentials: Credentials = NoCredentials()
    if _authorization(loaded):
        credentials = _KubeconfigCredentials(path, context, loaded)
    return Connection(
        server=loaded.host.rstrip("/"),
        tls=Tls(trust, certificate, loaded.tls_server_name),
        credentials=credentials,
        proxy=_proxy(loaded),
    )


class _KubeconfigCredentials:
    """The token of a kubeconfig user; the official client runs its exec plugin as it expires."""

    def __init__(
        self, path: Path | None, context: str | None, loaded: kubernetes.client.Configuration
    ) -> None:
        self._path = path
        self._context = context
        self._loaded = loaded
        self._lock = threading.Lock()

    def authorization(self) -> str | None:
        with self._lock:
            return _authorization(self._loaded)

    def renew(self) -> bool:
        with self._lock:
            refused = _authorization(self._loaded)
            self._loaded = _load(self._path, self._context)
            return _authorization(self._loaded) != refused


def _load(path: Path | None, context: str | None) -> kubernetes.client.Configuration:
    configuration = kubernetes.client.Configuration()
    # The official client reads the variable when it is imported, and takes an empty one for a file.
    named = str(path or os.environ.get("KUBECONFIG") or _DEFAULT_FILE)
    files = [Path(name).expanduser() for name in named.split(os.pathsep) if name]
    if not any(file.exists() for file in files):
        raise ConfigurationError(f"kubeconfig {named}: there is no such file; set KUBECONFIG")
    try:
        kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call] # ships no types
            config_file=named,
            context=context,
            client_configuration=configuration,
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError(f"kubeconfig {error.filename or named}: {problem}") from error
    except (ConfigException, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {named}: {' '.join(str(error).split())}") from error
    except (AttributeError, TypeError, KeyError, RecursionError) as error:  # of other YAML
        raise ConfigurationError(f"kubeconfig {named}: is not a kubeconfig file") from error
    return configuration


def _authorization(configuration: kubernetes.client.Configuration) -> str | None:
    value: str | None = configuration.get_api_key_with_prefix("BearerToken")
    return value


def _proxy(configuration: kubernetes.client.Configuration) -> str | None:
    if should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    proxy: str | None = configuration.proxy
    return proxy
