"""The broker configs of listeners that encrypt or authenticate: TLS and SASL. Each can be set for one listener.

`duralog.config.listener_config` gives the values of one listener.
"""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config.definitions import (
    CLASS,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Allowed,
    Password,
    at_least,
    config,
    each_of,
    one_of,
    optional_config,
)
from duralog.config.log_settings import LogSettings
from duralog.config.topic import HOUR_MS

_STORE_TYPES = one_of("PEM", "PKCS12", "JKS")
_TLS_VERSIONS = Allowed("TLSv1.2, TLSv1.3 or both", lambda value: bool(value) and set(value) <= {"TLSv1.2", "TLSv1.3"})
_MECHANISMS = each_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, kw_only=True)
class SecuritySettings(LogSettings):
    """Kafka's configs of TLS and SASL."""

    ssl_keystore_type: str = config(
        STRING, "JKS", _STORE_TYPES, doc="The format of the keystore. PEM and PKCS12 are supported."
    )
    ssl_keystore_location: str | None = optional_config(
        STRING, doc="The file with the broker's certificate and key. It is read again when it changes."
    )
    ssl_keystore_password: Password | None = optional_config(PASSWORD, doc="The password of a PKCS12 keystore.")
    ssl_keystore_certificate_chain: Password | None = optional_config(
        PASSWORD, doc="The certificate chain as PEM text, in place of a file."
    )
    ssl_keystore_key: Password | None = optional_config(PASSWORD, doc="The private key as PEM text (PKCS8).")
    ssl_key_password: Password | None = optional_config(PASSWORD, doc="The password of an encrypted private key.")
    ssl_truststore_type: str = config(
        STRING, "JKS", _STORE_TYPES, doc="The format of the truststore. PEM and PKCS12 are supported."
    )
    ssl_truststore_location: str | None = optional_config(
        STRING, doc="The file with the certificates that client certificates must be signed by."
    )
    ssl_truststore_password: Password | None = optional_config(PASSWORD, doc="The password of a PKCS12 truststore.")
    ssl_truststore_certificates: Password | None = optional_config(
        PASSWORD, doc="The trusted certificates as PEM text, in place of a file."
    )
    ssl_client_auth: str = config(
        STRING,
        "none",
        one_of("none", "requested", "required"),
        doc="Whether clients show a certificate, and whether they must.",
    )
    ssl_enabled_protocols: tuple[str, ...] = config(
        LIST, ("TLSv1.2", "TLSv1.3"), _TLS_VERSIONS, doc="The versions of TLS that clients may use."
    )
    ssl_cipher_suites: tuple[str, ...] = config(
        LIST, (), doc="The cipher suites of TLS 1.2 that clients may use. Empty: those that OpenSSL considers safe."
    )
    ssl_principal_mapping_rules: str = config(
        STRING, "DEFAULT", doc="How the distinguished name of a client certificate becomes the name of a user."
    )

    sasl_enabled_mechanisms: tuple[str, ...] = config(
        LIST, ("GSSAPI",), _MECHANISMS, doc="How clients may log in. GSSAPI (Kerberos) is not supported."
    )
    sasl_jaas_config: Password | None = optional_config(
        PASSWORD, doc="The users of PLAIN. Only as `listener.name.NAME.plain.sasl.jaas.config`."
    )
    sasl_server_callback_handler_class: str | None = optional_config(
        CLASS, doc="Kafka's validator of OAUTHBEARER tokens, signed or unsecured."
    )
    sasl_server_max_receive_size: int = config(
        INT, 512 << 10, doc="The largest request before a client has logged in, in bytes."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = optional_config(
        STRING, doc="Where the keys of signed tokens are: an https or file URL."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = config(LONG, HOUR_MS, doc="How often the keys are fetched again.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = config(
        LIST, (), doc="The audiences of which a token must name one."
    )
    sasl_oauthbearer_expected_issuer: str | None = optional_config(STRING, doc="The issuer that a token must name.")
    sasl_oauthbearer_clock_skew_seconds: int = config(
        INT, 30, doc="How far the clock of the issuer may differ from this machine's."
    )
    sasl_oauthbearer_scope_claim_name: str = config(STRING, "scope", doc="The claim with the scope of a token.")
    sasl_oauthbearer_sub_claim_name: str = config(STRING, "sub", doc="The claim with the name of the user.")
    connections_max_reauth_ms: int = config(
        LONG, 0, doc="How long a log-in lasts before the client must log in again. 0: as long as the connection."
    )
    connection_failed_authentication_delay_ms: int = config(
        INT, 100, at_least(0), doc="How long the answer to a failed log-in waits."
    )
