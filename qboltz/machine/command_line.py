"""Options that several commands have: whose account, and how models share a chip. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qboltz.machine.account import Account


def add_packing_options(add: Callable[..., Any]) -> None:
    """How models share a chip. ``add`` is the ``add_argument`` of a parser or a group."""
    add("--lines", type=int, metavar="K", help="models per circuit at most (as many lines as the chip has)")
    add("--guard", type=int, metavar="Q", help="unused qubits between lines, at least (0)")
    add("--max-line-error", type=float, metavar="E", help="leave out lines that fail with a larger probability")


def add_account_options(add: Callable[..., Any]) -> None:
    """Whose account. The token comes from the environment or a saved account, never from a command line."""
    add("--instance", metavar="CRN", help="CRN or name of the instance, which pays (that of the account)")
    add("--account", metavar="NAME", help="a saved account (QISKIT_IBM_TOKEN, else the default one)")
    add("--channel", help="ibm_quantum_platform or ibm_cloud (that of the account)")
    add("--url", help="of the service (that of the account)")


def account_from(arguments: argparse.Namespace) -> Account:
    """The account that the options name; what they leave open is the client's business."""
    from qboltz.machine.account import Account

    return Account(instance=arguments.instance, name=arguments.account, channel=arguments.channel, url=arguments.url)
