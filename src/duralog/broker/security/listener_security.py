"""Authentication of the clients of one listener, by its security protocol and configs.

The configs are followed: a change of the mechanisms, the users of PLAIN or the certificates counts for the next
connection. Configs that cannot be met are refused at the start, with their names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from duralog.broker.security import plain, scram
from duralog.broker.security.sasl import Login, SaslMechanism, SaslSettings
from duralog.broker.security.tls import ListenerTls, TlsSettings
from duralog.config import BrokerConfig
from duralog.config.jaas import jaas_options
from duralog.config.listener_config import ListenerConfig
from duralog.errors import DuralogError, InvalidConfig, MissingExtra
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism, ScramUser

_logger = logging.getLogger("duralog.broker")

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
OAUTHBEARER = "OAUTHBEARER"
_SIGNED_VALIDATOR = "OAuthBearerValidatorCallbackHandler"
_UNSECURED_VALIDATOR = "OAuthBearerUnsecuredValidatorCallbackHandler"

Credentials = Callable[[], Mapping[ScramUser, ScramCredential]]


class ListenerSecurity:
    """The security of one listener. `follow` may run on a worker thread; what it changes is replaced at once."""

    def __init__(
        self,
        name: str,
        protocol: str,
        config: BrokerConfig,
        *,
        is_loopback: bool,
        credentials: Credentials,
        salt_key: Callable[[], bytes],
    ) -> None:
        self.name = name
        self.protocol = protocol
        self._is_loopback = is_loopback
        self._credentials = credentials
        self._salt_key = salt_key
        self._config = ListenerConfig(config, name)
        has_tls = protocol in (SSL, SASL_SSL)
        self._tls = ListenerTls(name, self._config, has_sasl=protocol == SASL_SSL) if has_tls else None
        self._sasl = self._sasl_settings(self._config) if protocol in (SASL_PLAINTEXT, SASL_SSL) else None

    @property
    def tls(self) -> TlsSettings | None:
        return None if self._tls is None else self._tls.settings

    @property
    def has_sasl(self) -> bool:
        return self._sasl is not None

    def sasl(self) -> SaslSettings:
        """REQUIRES: `has_sasl`."""
        assert self._sasl is not None
        return self._sasl

    def follow(self, config: BrokerConfig) -> None:
        """Adopt changed configs and files. It may read files."""
        changed = ListenerConfig(config, self.name)
        if self._tls is not None:
            self._tls.reload(changed)
        if changed == self._config:
            return
        if self._sasl is not None:
            try:
                self._sasl = self._sasl_settings(changed)
            except DuralogError as error:
                _logger.error("the listener %s keeps its SASL configs: %s", self.name, error)
        self._config = changed

    def _sasl_settings(self, config: ListenerConfig) -> SaslSettings:
        names = config.get("sasl.enabled.mechanisms")
        if config.broker.sasl_jaas_config is not None:
            raise InvalidConfig(
                f"sasl.jaas.config has no effect without a prefix: use {config.prefix}plain.sasl.jaas.config"
            )
        mechanisms = {
            name: SaslMechanism(name, self._maker(name, config), config.get("connections.max.reauth.ms", name))
            for name in names
        }
        if not mechanisms:
            raise InvalidConfig(f"{config.prefix}sasl.enabled.mechanisms: there must be one")
        return SaslSettings(
            mechanisms,
            config.get("sasl.server.max.receive.size"),
            config.get("connection.failed.authentication.delay.ms"),
        )

    def _maker(self, mechanism: str, config: ListenerConfig) -> Callable[[], Login]:
        name = f"{config.prefix}{mechanism.lower()}.sasl.jaas.config"
        jaas = config.jaas(mechanism)
        handler = config.get("sasl.server.callback.handler.class", mechanism)
        if handler is not None and mechanism != OAUTHBEARER:
            raise InvalidConfig(f"sasl.server.callback.handler.class: {handler} is a Java class, which cannot run here")
        if mechanism == "PLAIN":
            users = plain.plain_users(jaas_options(name, jaas, plain.MODULE)) if jaas is not None else {}
            if not users:
                raise InvalidConfig(f'{name}: PLAIN needs users: {plain.MODULE} required user_NAME="PASSWORD";')
            return partial(plain.PlainLogin, users)
        if mechanism == OAUTHBEARER:
            return self._oauthbearer(config, handler)
        if not mechanism.startswith("SCRAM-"):
            raise InvalidConfig(
                f"sasl.enabled.mechanisms: {mechanism} is not supported: set"
                f" {config.prefix}sasl.enabled.mechanisms to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
            )
        if jaas is not None:
            jaas_options(name, jaas, scram.MODULE)
        chosen, credentials = ScramMechanism.of(mechanism), self._credentials
        made_up = scram.MadeUpCredentials(chosen, self._salt_key)
        return lambda: scram.ScramLogin(chosen, credentials(), made_up)

    def _oauthbearer(self, config: ListenerConfig, handler: str | None) -> Callable[[], Login]:
        try:
            from duralog.broker.security import oauthbearer
            from duralog.broker.security.token_keys import TokenKeys
        except ImportError as error:
            raise MissingExtra("for OAUTHBEARER", error.name or "pyjwt", extra="security") from None
        kind = (handler or "").rpartition(".")[2]
        validator: oauthbearer.TokenValidator
        if kind == _UNSECURED_VALIDATOR:
            if not self._is_loopback:
                raise InvalidConfig(
                    f"the listener {self.name} would accept tokens that anyone can write ({kind}): that is allowed on"
                    " loopback only"
                )
            validator = oauthbearer.UnsecuredTokens()
        elif kind in ("", _SIGNED_VALIDATOR):
            url = config.get("sasl.oauthbearer.jwks.endpoint.url")
            if url is None:
                raise InvalidConfig(
                    "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: where the keys of signed tokens are"
                )
            validator = oauthbearer.SignedTokens(
                TokenKeys(url, config.get("sasl.oauthbearer.jwks.endpoint.refresh.ms")),
                issuer=config.get("sasl.oauthbearer.expected.issuer"),
                audience=config.get("sasl.oauthbearer.expected.audience"),
                skew_seconds=config.get("sasl.oauthbearer.clock.skew.seconds"),
                user_claim=config.get("sasl.oauthbearer.sub.claim.name"),
                scope_claim=config.get("sasl.oauthbearer.scope.claim.name"),
            )
        else:
            raise InvalidConfig(f"sasl.server.callback.handler.class: {handler} is a Java class, which cannot run here")
        return partial(oauthbearer.OauthbearerLogin, validator)
