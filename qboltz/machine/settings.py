"""What is submitted besides circuit and angles, as options of either sampler of the runtime client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["job", "batch", "session"]
SamplerKind = Literal["executor", "legacy"]
#: Randomizations that shots are divided among when circuits are twirled.
RANDOMIZATIONS = 32


@dataclass(frozen=True)
class SamplerSettings:
    """What is submitted besides circuit and angles.

    Attributes:
        sampler: ``executor``, the client's present sampler, or ``legacy``, the deprecated ``SamplerV2``.
        mode: ``job``; ``batch`` and ``session`` have to be paid for by plan, see docs/hardware.md.
        dynamical_decoupling: a sequence (``XX``, ``XpXm``, ``XY4``) on idle qubits, ``None`` for none.
        twirling: ``gates``, ``measurements``, both or none of them.
        session_seconds: how long a batch or a session may stay open.
    """

    sampler: SamplerKind = "executor"
    mode: Mode = "job"
    dynamical_decoupling: Literal["XX", "XpXm", "XY4"] | None = None
    twirling: tuple[Literal["gates", "measurements"], ...] = ()
    session_seconds: int | None = None

    def options(self, shots: int, tag: str, max_seconds: int | None) -> dict[str, Any]:
        """Options of either sampler. Twirled shots are divided evenly, so that their number is what was asked for."""
        options: dict[str, Any] = {"default_shots": shots, "environment": {"job_tags": [tag]}}
        if max_seconds is not None:
            options["max_execution_time"] = max_seconds
        if self.dynamical_decoupling:
            options["dynamical_decoupling"] = {"enable": True, "sequence_type": self.dynamical_decoupling}
        if self.twirling:
            parts = min((n for n in range(1, shots + 1) if shots % n == 0), key=lambda n: abs(n - RANDOMIZATIONS))
            options["twirling"] = {
                "enable_gates": "gates" in self.twirling,
                "enable_measure": "measurements" in self.twirling,
                "num_randomizations": parts,
                "shots_per_randomization": shots // parts,
            }
        return options
