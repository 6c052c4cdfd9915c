"""How a machine is used: one object of plain settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from qboltz.errors import unknown_name
from qboltz.machine.account import Account
from qboltz.machine.limits import ServiceLimits
from qboltz.machine.patience import Patience
from qboltz.machine.settings import SamplerSettings


@dataclass(frozen=True)
class MachineOptions:
    """How a machine is used.

    Attributes:
        mode: ``job`` (the default), ``batch`` or ``session``; a session is billed while it is open, busy or not.
        sampler: ``executor``, the client's present sampler, or ``legacy``, the deprecated ``SamplerV2``.
        dynamical_decoupling: a sequence (``XX``, ``XpXm``, ``XY4``) on idle qubits.
        twirling: any of ``gates`` and ``measurements``.
        session_seconds: how long a batch or a session may stay open.
        guard: unused qubits between lines.
        max_line_error: lines with a larger error are left out.
        lines: lines per chip at most; ``None`` for as many as fit.
        max_qpu_seconds: of the whole run, over all its sessions; nothing is submitted beyond it.
        store: file of the store of jobs, see ``JobStore``.
        timeout: seconds to wait for the jobs of one request.
        dry_run: compile, check and price, then stop with a ``DryRunError``.
        wait: for jobs; without, a request stops with a ``JobPendingError`` once its jobs are submitted. Asked again
            with the same seed and run, by whichever process, it collects them.
        run: name of the run; ``None`` draws one. A run resumed from a checkpoint has its name from there.
        limits: of the service.
        patience: with requests that fail or take long.
        account: whose; ``None`` takes the environment or the saved account.
    """

    mode: Literal["job", "batch", "session"] = "job"
    sampler: Literal["executor", "legacy"] = "executor"
    dynamical_decoupling: Literal["XX", "XpXm", "XY4"] | None = None
    twirling: tuple[Literal["gates", "measurements"], ...] = ()
    session_seconds: int | None = None
    guard: int = 0
    max_line_error: float | None = None
    lines: int | None = None
    max_qpu_seconds: float | None = None
    store: str | Path | None = None
    timeout: float = 86_400.0
    dry_run: bool = False
    wait: bool = True
    run: str | None = None
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    patience: Patience = field(default_factory=Patience)
    account: Account | None = None

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, ("job", "batch", "session"))
        _check_choice("sampler", self.sampler, ("executor", "legacy"))
        if self.dynamical_decoupling is not None:
            _check_choice("dynamical_decoupling", self.dynamical_decoupling, ("XX", "XpXm", "XY4"))
        for kind in self.twirling:
            _check_choice("twirling", kind, ("gates", "measurements"))
        for name in ("max_qpu_seconds", "timeout", "session_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}.")

    @property
    def settings(self) -> SamplerSettings:
        """What concerns the sampler."""
        return SamplerSettings(
            self.sampler, self.mode, self.dynamical_decoupling, tuple(self.twirling), self.session_seconds
        )


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(unknown_name(name, value, known))
