"""Whose account, and which machine: from a name to the runtime client's object, or to a message with advice."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qiskit.providers import BackendV2
from qiskit.providers.exceptions import QiskitBackendNotFoundError

from qboltz.backends import LEAST_BUSY
from qboltz.machine.diagnosis import no_account, no_machine, none_available, sign_in_failed
from qboltz.machine.patience import NoAnswerError, within

#: Environment variable with the token, read by the client.
TOKEN_VARIABLE = "QISKIT_IBM_TOKEN"
#: Seconds after which signing in, or looking a machine up, is given up.
CONNECT_SECONDS = 120.0


@dataclass(frozen=True)
class Account:
    """Arguments for ``QiskitRuntimeService``; none of them takes the environment or the saved account.

    The token is neither shown nor pickled: a copy in another process finds an account by itself.

    Attributes:
        token: API key.
        channel: ``ibm_quantum_platform`` or ``ibm_cloud``.
        instance: CRN or name; decides the plan that pays, the region, and the machines.
        url: of the service.
        name: of a saved account.
        filename: where it is saved, if not in the usual place.
        proxies: ``{"urls": {"https": ...}, "username_ntlm": ..., "password_ntlm": ...}``.
        verify: whether to check the certificate of the service.
        region: ``us-east`` or ``eu-de``, where no instance is named.
    """

    token: str | None = field(default=None, repr=False)
    channel: str | None = None
    instance: str | None = None
    url: str | None = None
    name: str | None = None
    filename: str | None = None
    proxies: Mapping[str, Any] | None = field(default=None, repr=False)
    verify: bool | None = None
    region: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def file(self) -> Path:
        """Where the client looks for saved accounts."""
        from qiskit_ibm_runtime.accounts import management

        return Path(self.filename or management._DEFAULT_ACCOUNT_CONFIG_JSON_FILE).expanduser()

    @property
    def source(self) -> str:
        """Where the token is from, for messages."""
        if self.name:
            return f"account {self.name!r} in {self.file}"
        if self.token:
            return "the token that was handed in"
        return TOKEN_VARIABLE if os.environ.get(TOKEN_VARIABLE) else f"the account saved in {self.file}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in messages, as far as they are known here."""
        return tuple(text for text in (self.token, os.environ.get(TOKEN_VARIABLE)) if text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _account, (vars(replace(self, token=None, proxies=None)),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Account:
        return self


def _account(values: dict[str, Any]) -> Account:
    return Account(**values)


def connect(account: Account | None = None) -> Any:
    """The client's ``QiskitRuntimeService`` for an account.

    Raises:
        AccountError: there is no account, or it is refused, or it has no such instance or region.
        ServiceUnreachableError: the sign-in service does not answer.
    """
    from qiskit_ibm_runtime import QiskitRuntimeService
    from qiskit_ibm_runtime.accounts import AccountNotFoundError, InvalidAccountError
    from qiskit_ibm_runtime.exceptions import IBMInputValueError

    account = account or Account()
    try:
        service = within(CONNECT_SECONDS, lambda: QiskitRuntimeService(**account.arguments()))
    except AccountNotFoundError as error:
        raise no_account(account.name, account.file) from error
    except (InvalidAccountError, IBMInputValueError, NoAnswerError) as error:
        check_file(account)
        raise sign_in_failed(error, account.source, account.secrets) from error
    check_file(account)
    return service


def find_machine(name: str, num_spins: int, account: Account | None = None) -> BackendV2:
    """A machine by name, or the least busy one with enough qubits.

    Raises:
        AccountError, ServiceUnreachableError: see ``connect``; also if the service itself refuses or does not answer.
        BackendNotFoundError: no machine of that name, or none that is large enough and takes jobs.
    """
    account = account or Account()
    service = connect(account)
    try:
        machine: BackendV2 = within(CONNECT_SECONDS, lambda: _look_up(service, name, num_spins))
    except (QiskitBackendNotFoundError, NoAnswerError) as error:
        if name == LEAST_BUSY:
            raise none_available(service, num_spins, account.secrets) from error
        raise no_machine(service, name, account.secrets) from error
    return machine


def _look_up(service: Any, name: str, num_spins: int) -> Any:
    if name == LEAST_BUSY:
        return service.least_busy(min_num_qubits=num_spins, operational=True, simulator=False)
    return service.backend(name)


def seconds_left(service: Any) -> float | None:
    """QPU seconds that the instance in use may still consume; ``None`` where it has no limit."""
    left = within(CONNECT_SECONDS, service.usage).get("usage_remaining_seconds")
    return None if left is None else float(left)


def check_file(account: Account) -> None:
    """Warn if the token comes from a file that others can read: the client writes it in plain text."""
    if not account.name and (account.token or os.environ.get(TOKEN_VARIABLE)):
        return
    try:
        mode = stat.S_IMODE(account.file.stat().st_mode)
    except OSError:  # no such file: the client will say so
        return
    if os.name == "posix" and mode & 0o044:
        warnings.warn(
            f"other users of this computer can read {account.file} (mode {mode:04o}), which has your token in plain "
            f"text. Close it: chmod 600 {account.file}",
            stacklevel=3,
        )
