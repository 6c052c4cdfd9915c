"""A machine of IBM as a backend: packs rows on its chip, submits, waits, collects, and loses nothing."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qiskit.providers import BackendV2

from qboltz.backends.program import Backend, Program, SampleRequest, check_num_spins
from qboltz.backends.readout import measured_lines, reported_readout
from qboltz.circuits import AnnealingCircuit
from qboltz.errors import DryRunError, JobPendingError
from qboltz.machine.account import find_machine
from qboltz.machine.compile import check_isa, pack
from qboltz.machine.execute import Compiled, Execution
from qboltz.machine.limits import Chunker, Plan
from qboltz.machine.options import MachineOptions
from qboltz.machine.price import Tariff
from qboltz.machine.rebuild import rebuild
from qboltz.machine.records import JobRecord
from qboltz.machine.runtime import Runtime
from qboltz.machine.store import JobStore
from qboltz.readout import ReadoutErrors
from qboltz.schedule import AnnealingSchedule
from qboltz.spins import num_pairs

__all__ = ["Machine", "MachineOptions"]

#: Compiled circuits that a machine keeps in memory; an adaptive schedule makes a new one at every refit.
MAX_COMPILED = 16


class Machine(Backend):
    """A machine of the IBM Quantum Platform, or any that the runtime client has an object for.

    Rows of a request share the chip, each on a line of qubits of its own. Every job is in the store before it is
    submitted; a run that is resumed from its checkpoint collects what was paid for.

    Args:
        machine: a name, or a backend object of the runtime client.
        options: how it is used.

    Attributes:
        run: name of the run, in ``state_dict`` and so in checkpoints.
    """

    ideal = False
    billed = True

    def __init__(self, machine: str | BackendV2, options: MachineOptions | None = None) -> None:
        super().__init__(machine if isinstance(machine, str) else str(machine.name))
        self.options = options or MachineOptions()
        self.run = self.options.run or uuid.uuid4().hex[:12]
        self.store = JobStore(self.options.store)
        self._machine = machine
        self._runtime: Runtime | None = None
        self._compiled: dict[Any, Compiled] = {}

    def runtime(self, num_spins: int = 1) -> Runtime:
        """The connection, made on first use.

        Raises:
            BackendNotFoundError: there is no such machine, or no account for it.
        """
        if self._runtime is None:
            device = self._machine
            if isinstance(device, str):
                device = find_machine(device, num_spins, self.options.account)
            token = (device.service.active_account() or {}).get("token")
            secrets = (token,) if token else ()
            self._runtime = Runtime(device, self.options.settings, self.options.patience, secrets)
        return self._runtime

    def compile(self, anneal: AnnealingCircuit) -> Program:
        compiled = self.compiled(anneal.num_spins, anneal.schedule)
        return Program(compiled.packed.circuit, lambda seed: self.runtime().sampler({}))

    def compiled(
        self, num_spins: int, schedule: AnnealingSchedule, pairs: tuple[tuple[int, int], ...] | None = None
    ) -> Compiled:
        """The packed circuit for so many spins, made once.

        Raises:
            TooManySpinsError: the chip has too few qubits.
        """
        key = num_spins, schedule, pairs
        if key not in self._compiled:
            device, options = self.runtime(num_spins).device, self.options
            check_num_spins(num_spins, device.num_qubits, device.name)
            packed = pack(
                device,
                num_spins,
                schedule,
                pairs=pairs,
                guard=options.guard,
                max_error=options.max_line_error,
                lines=options.lines,
            )
            while len(self._compiled) >= MAX_COMPILED:
                del self._compiled[next(iter(self._compiled))]
            tariff = Tariff.of(packed.circuit, device, options.limits.repetition_seconds)
            self._compiled[key] = Compiled.of(packed, tariff)
        return self._compiled[key]

    def plan(self, request: SampleRequest) -> Plan:
        """Jobs, circuits, executions and QPU seconds that a request takes; compiles, submits nothing."""
        compiled = self.compiled(request.num_spins, request.schedule, _pairs(request))
        return Chunker(compiled.packed, compiled.tariff, self.options.limits).plan(request)

    def sample(self, request: SampleRequest) -> NDArray[np.int8]:
        options, runtime = self.options, self.runtime(request.num_spins)
        compiled = self.compiled(request.num_spins, request.schedule, _pairs(request))
        packed = compiled.packed
        check_isa(packed.circuit, packed.bindings(request.fields, request.couplings), runtime.device.target)
        if options.dry_run:
            plan = self.plan(request)
            raise DryRunError(
                f"dry run on {runtime.name}: {plan.rows} rows on {packed.num_lines} lines are {plan.circuits} "
                f"circuits, {plan.executions} executions, {plan.jobs} jobs, about {plan.seconds:.1f} s of QPU. "
                "Compiled and checked; nothing was submitted."
            )
        execution = Execution(
            self.store,
            runtime,
            self.run,
            rebuild,
            options={"mode": options.mode, "sampler": options.sampler},
            limits=options.limits,
            max_seconds=options.max_qpu_seconds,
            timeout=options.timeout,
        )
        if not options.wait:
            jobs = execution.submit(request, compiled)
            if any(job.state != "done" for job in jobs):
                raise _pending(jobs, runtime.name)
        return execution.collect(request, compiled)

    def places(self, request: SampleRequest) -> NDArray[np.int64]:
        """Every line has its own."""
        packed = self.compiled(request.num_spins, request.schedule, _pairs(request)).packed
        return measured_lines(packed, request.num_rows)

    def readout(self, request: SampleRequest) -> ReadoutErrors:
        """From the calibration that was in force when the machine was looked up."""
        return reported_readout(self.runtime(request.num_spins).device, self.places(request))

    def close(self) -> None:
        """Close an open session; it would be billed until it times out."""
        if self._runtime is not None:
            self._runtime.close()

    def state_dict(self) -> dict[str, Any]:
        """The name of the run: jobs are found by it."""
        return {"run": self.run}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue that run."""
        self.run = str(state.get("run", self.run))

    def __deepcopy__(self, memo: dict[int, Any]) -> Machine:
        """Another object of the same run on the same connection."""
        other = type(self).__new__(type(self))
        other.__dict__ |= {**self.__dict__, "_programs": {}, "store": JobStore(self.store.path)}
        return other

    def __getstate__(self) -> dict[str, Any]:
        device = self._machine if isinstance(self._machine, str) else self.label  # a live object has the token in it
        return {**super().__getstate__(), "_machine": device, "_runtime": None, "_compiled": {}}


def _pairs(request: SampleRequest) -> tuple[tuple[int, int], ...] | None:
    """The pairs that are coupled in some row; ``None`` where the others are too few for a circuit of its own."""
    n = request.num_spins
    coupled = np.triu(np.any(request.couplings != 0, axis=0), 1)
    if 2 * int(coupled.sum()) > num_pairs(n):
        return None
    first, second = np.nonzero(coupled)
    return tuple(zip(first.tolist(), second.tolist(), strict=True))


def _pending(jobs: list[JobRecord], machine: str) -> JobPendingError:
    ids = [job.job_id for job in jobs if job.job_id is not None]
    later = len(jobs) - len(ids)
    more = f"; {later} more follow when there is room, whoever collects them submits them" if later else ""
    return JobPendingError(f"{len(ids)} jobs are submitted to {machine}: {', '.join(ids)}{more}.", ids)
