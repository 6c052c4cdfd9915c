"""Why there is no account or no machine: the client reports several causes alike, a user has to do different things."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qboltz.errors import AccountError, BackendNotFoundError, ServiceUnreachableError
from qboltz.machine.patience import NoAnswerError, fault_of, redacted, within

#: Where tokens and instances are made.
PLATFORM = "https://quantum.cloud.ibm.com"
#: Seconds for a probe of the service.
PROBE_SECONDS = 10.0


def no_account(name: str | None, file: Path) -> AccountError:
    """Neither the environment nor the file has an account, or none of that name."""
    if name is not None:
        return AccountError(f"account {name!r} is not in {file}. Save it there, or leave the name out.")
    return AccountError(
        f"no IBM Quantum account was found, neither in the environment (QISKIT_IBM_TOKEN) nor in {file}. Make an API "
        f"key at {PLATFORM}, then save it once: QiskitRuntimeService.save_account(token=..., instance=..., "
        "set_as_default=True). A fake device such as 'fake_fez' needs no account."
    )


def sign_in_failed(error: Exception, source: str, secrets: tuple[str, ...]) -> BackendNotFoundError:
    """The client could not make its service object. Whether the key is wrong or there is no network, it says the same;
    the difference is in the chain of causes."""
    import requests

    if isinstance(error, NoAnswerError):
        return ServiceUnreachableError(f"IBM's sign-in service gave {error}. Check the network, or try again later.")
    for cause in _causes(error):
        code = getattr(cause, "status_code", None)
        if isinstance(code, int) and hasattr(cause, "message"):  # ApiException of IBM's SDK
            said = f"{code}, {redacted(str(cause.message), secrets)}"
            if code == 429 or code >= 500:
                return ServiceUnreachableError(f"IBM's sign-in service is in trouble ({said}). Try again later.")
            return AccountError(
                f"the IBM Quantum account was refused ({said}). The API key from {source} is wrong, or was deleted or "
                f"locked: make another one at {PLATFORM}."
            )
        if isinstance(cause, requests.RequestException):
            return _unreachable("IBM's sign-in service", cause, secrets)
    text = redacted(str(getattr(error, "message", error)), secrets)
    if "does not have access to the instance" in text or "not a valid instance name" in text:
        return AccountError(
            f"the account has no such instance: {text} Those it has are listed at {PLATFORM}/instances; an instance "
            "belongs to one region and one plan."
        )
    if "No matching instances" in text:
        return AccountError(
            f"the account has no instance for this: {text} Choose another region (us-east, eu-de), leave it out, or "
            f"make an instance there at {PLATFORM}/instances. A new account has none until you make one."
        )
    return AccountError(f"the IBM Quantum account from {source} cannot be used: {text}")


def no_machine(service: Any, name: str, secrets: tuple[str, ...]) -> BackendNotFoundError:
    """Why the service has no machine of that name. The client says the same when the service is down."""
    trouble = service_trouble(service, secrets)
    if trouble is not None:
        return trouble
    reachable = sorted(machine.name for machine in within(6 * PROBE_SECONDS, service.backends))
    instance = str(service.active_instance() or "")
    for other in within(PROBE_SECONDS, service.instances):
        if other["crn"] != instance and name in _names(service, other["crn"]):
            return BackendNotFoundError(
                f"backend {name!r} is not in the instance in use ({_place(instance)}) but in another one of this "
                f"account: {other['name']!r} ({_place(other['crn'])}). Name that one: instance={other['name']!r}, or "
                f"--instance {other['name']}."
            )
    close = difflib.get_close_matches(name, reachable, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return BackendNotFoundError(
        f"backend {name!r} is not among the machines of this IBM Quantum account ({_place(instance)}): "
        f"{', '.join(reachable) or 'none'}.{hint} Machines differ by plan and region, and are retired from time to "
        "time."
    )


def none_available(service: Any, num_spins: int, secrets: tuple[str, ...]) -> BackendNotFoundError:
    """Why no machine is the least busy one: too small, or none takes jobs, or the service is down."""
    trouble = service_trouble(service, secrets)
    if trouble is not None:
        return trouble
    machines = within(6 * PROBE_SECONDS, service.backends)
    large = [machine for machine in machines if machine.num_qubits >= num_spins]
    if not machines:
        return BackendNotFoundError("this IBM Quantum account lists no machine. Its instance may allow none.")
    if not large:
        largest = max(machine.num_qubits for machine in machines)
        return BackendNotFoundError(
            f"no machine of this IBM Quantum account has {num_spins} qubits; the largest has {largest}. Shorten the "
            "context."
        )
    states = ", ".join(f"{machine.name} ({machine.status().status_msg})" for machine in large)
    return BackendNotFoundError(
        f"no machine of this IBM Quantum account takes jobs now: {states}. Try again later, or name one to queue for "
        "it."
    )


def service_trouble(service: Any, secrets: tuple[str, ...]) -> BackendNotFoundError | None:
    """What is wrong with the service, after a short look; ``None`` if it answers this account."""
    import requests

    url = api_url(service)
    account = service.active_account() or {}
    settings = {"verify": account.get("verify", True), "proxies": (account.get("proxies") or {}).get("urls")}
    try:
        # Not through the client, which repeats what fails for half a minute. Without a token: 401 is an answer.
        status = requests.get(f"{url}/backends", timeout=PROBE_SECONDS, **settings).status_code
    except requests.RequestException as error:
        return _unreachable(f"the IBM Quantum service at {url}", error, secrets)
    if status >= 500 or status == 429:
        return ServiceUnreachableError(
            f"the IBM Quantum service at {url} is in trouble (status {status}). Try again later."
        )
    try:
        within(PROBE_SECONDS, service.usage)
    except Exception as error:
        fault = fault_of(error, secrets)
        if fault is None:
            raise
        if fault.status in (401, 403):
            return AccountError(
                f"the IBM Quantum service refuses this account for {_place(str(service.active_instance()))} "
                f"({fault.text}) Check that the API key belongs to the account of that instance."
            )
        return ServiceUnreachableError(
            f"the IBM Quantum service at {url} is in trouble ({fault.text}). Try again later."
        )
    return None


def api_url(service: Any) -> str:
    """Where requests of a service object go."""
    from qiskit_ibm_runtime.api.client_parameters import ClientParameters

    account = service.active_account() or {}
    parameters = ClientParameters(
        account.get("channel", "ibm_quantum_platform"),
        "",
        url=account.get("url"),
        instance=service.active_instance(),
        private_endpoint=account.get("private_endpoint", False),
    )
    return str(parameters.get_runtime_api_base_url()).rstrip("/")


def _unreachable(what: str, error: Exception, secrets: tuple[str, ...]) -> ServiceUnreachableError:
    import requests

    where = urlsplit(getattr(getattr(error, "request", None), "url", "") or "").netloc
    place = f"{what} ({where})" if where and where not in what else what
    text = redacted(str(error), secrets)
    if isinstance(error, requests.exceptions.ProxyError):
        why = "the proxy does not let it through. Check the proxies argument, HTTPS_PROXY and NO_PROXY."
    elif isinstance(error, requests.exceptions.SSLError):
        why = "its certificate is not trusted. Behind a proxy that opens TLS, REQUESTS_CA_BUNDLE must name its own."
    elif isinstance(error, requests.Timeout):
        why = "it does not answer. Check the network and the firewall, or try again later."
    elif "NameResolutionError" in text or "getaddrinfo" in text:
        why = "its name is not known here. There is no network, or the url is wrong."
    else:
        why = "the connection fails. Check the network, the url and the firewall, or try again later."
    return ServiceUnreachableError(f"{place} cannot be reached: {why}")


def _names(service: Any, crn: str) -> list[str]:
    return [machine.name for machine in within(6 * PROBE_SECONDS, lambda: service.backends(instance=crn))]


def _place(crn: str) -> str:
    """The region in a CRN (its sixth part)."""
    parts = crn.split(":")
    return f"region {parts[5]}" if len(parts) > 5 and parts[5] else "its region is not known"


def _causes(error: BaseException) -> Iterator[BaseException]:
    current = error.__cause__ or error.__context__
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
