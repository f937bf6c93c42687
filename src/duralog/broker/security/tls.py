"""The TLS of a listener: its context, made from its configs, and made again when a file or a config has changed.

New connections get the new context; those that are open keep theirs. If the new files cannot be loaded, the old context
stays, with an error in the log: a half-written certificate does not lock clients out.
"""

from __future__ import annotations

import logging
import ssl
from typing import NamedTuple

from duralog.broker.security.key_material import KeyMaterial, key_material, load_into
from duralog.broker.security.principal_mapping import PrincipalMapping
from duralog.config.listener_config import ListenerConfig
from duralog.errors import DuralogError, InvalidConfig

_logger = logging.getLogger("duralog.broker")

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SUITES_OF_TLS_1_3 = "TLS_AES_", "TLS_CHACHA20_"


class TlsSettings(NamedTuple):
    context: ssl.SSLContext
    mapping: PrincipalMapping


class ListenerTls:
    """Any thread may call `reload`, one at a time; `settings` is replaced at once."""

    def __init__(self, listener: str, config: ListenerConfig, *, has_sasl: bool = False) -> None:
        self._listener = listener
        self._has_sasl = has_sasl
        self._config = config
        self._material = key_material(config)
        self._last_error = ""
        self.settings = _settings(config, self._material, has_sasl=has_sasl)

    def reload(self, config: ListenerConfig) -> None:
        """Adopt changed configs, and changed files. It reads files: not on the loop."""
        try:
            material = key_material(config)
            if material == self._material and config == self._config:
                return
            self.settings = _settings(config, material, has_sasl=self._has_sasl)
        except (DuralogError, OSError) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _logger.error("the listener %s keeps its certificate: %s", self._listener, error)
            return
        self._last_error = ""
        self._material, self._config = material, config
        _logger.info("the listener %s has loaded its certificates again", self._listener)


def _settings(config: ListenerConfig, material: KeyMaterial, *, has_sasl: bool) -> TlsSettings:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.get("ssl.enabled.protocols")]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    suites = [_openssl_name(suite) for suite in config.get("ssl.cipher.suites")]
    try:
        if named := [suite for suite in suites if not suite.startswith(_SUITES_OF_TLS_1_3)]:
            context.set_ciphers(":".join(named))
        load_into(context, material)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise InvalidConfig(
            f"{config.prefix}ssl.*: OpenSSL refuses the certificate, its key or a cipher suite ({reason}): check"
            " ssl.key.password, and that the key belongs to the first certificate"
        ) from None
    # After the files: these log warnings, and a file that cannot be loaded is tried again and again.
    _restrict_tls_1_3(context, config, suites)
    client_auth = _client_auth(config, has_sasl=has_sasl)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        if not material.trusted:
            raise InvalidConfig(
                f"ssl.client.auth={client_auth} needs {config.prefix}ssl.truststore.location or"
                " ssl.truststore.certificates: the authorities that sign the certificates of clients"
            )
        # As in Java, each certificate of the truststore is trusted, not only roots.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would not check the certificate again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    # As in Kafka, the name of a client that logs in by SASL is not that of its certificate: no rule applies to it.
    rules = "" if has_sasl else config.get("ssl.principal.mapping.rules")
    return TlsSettings(context, PrincipalMapping(rules))


def _client_auth(config: ListenerConfig, *, has_sasl: bool) -> str:
    """As in Kafka, `ssl.client.auth` counts for a listener with SASL only with the listener's prefix."""
    value: str = config.get("ssl.client.auth")
    if not has_sasl:
        return value
    own: str = config.own("ssl.client.auth") or "none"
    if own != value:
        _logger.warning(
            "ssl.client.auth=%s counts for SSL listeners only, not for SASL_SSL: to ask for certificates here, set"
            " %sssl.client.auth",
            value,
            config.prefix,
        )
    return own


def _restrict_tls_1_3(context: ssl.SSLContext, config: ListenerConfig, suites: list[str]) -> None:
    """Python cannot choose among the suites of TLS 1.3. If only such are named, clients must speak TLS 1.3."""
    named = {suite for suite in suites if suite.startswith(_SUITES_OF_TLS_1_3)}
    if not named:
        return
    known = {str(each["name"]) for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"}
    is_all = len(named) == len(suites)
    has_tls_1_3 = context.maximum_version == ssl.TLSVersion.TLSv1_3
    if is_all and not (has_tls_1_3 and named & known):
        raise InvalidConfig(
            f"{config.prefix}ssl.cipher.suites: no client could connect: {', '.join(sorted(named))} need TLSv1.3 in"
            f" ssl.enabled.protocols, and OpenSSL has {', '.join(sorted(known))}"
        )
    if is_all:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if has_tls_1_3 and (others := known - named):
        _logger.warning(
            "%sssl.cipher.suites: the suites of TLS 1.3 cannot be chosen, clients may use %s too",
            config.prefix,
            ", ".join(sorted(others)),
        )


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is Java's."""
    if suite.startswith(_SUITES_OF_TLS_1_3):
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_AES")
    if suite.startswith("TLS_RSA_WITH_AES"):
        name = f"AES{name}"
    for bits in ("128", "256"):
        name = name.replace(f"AES_{bits}_CBC_", f"AES{bits}_").replace(f"AES_{bits}", f"AES{bits}")
    return name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")
