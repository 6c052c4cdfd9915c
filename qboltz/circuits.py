"""The circuit reader of the layer walk: one symbolic circuit per (spins, schedule), bound for many models at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import ClassicalRegister, ParameterVector, QuantumCircuit, QuantumRegister
from qiskit.primitives import BindingsArray

from qboltz.ising import IsingModel
from qboltz.schedule import AnnealingSchedule
from qboltz.spins import num_pairs, pair_indices, to_numpy

#: Name of the classical register: bit ``i`` is spin ``i``, whatever qubit a compiler moved the spin to.
SPIN_REGISTER = "spins"


@dataclass(frozen=True, eq=False)
class AnnealingCircuit:
    r"""The anneal of ``num_spins`` spins with its fields and couplings left open.

    From ``|+>^n``, layer ``k`` of the schedule is

    .. math:: RZ_j(a_{kj}), \; RZZ_{jl}(c_{kjl}), \; RX(-2 b_k), \qquad
        a_{kj} = -2 \gamma^h_k h_j, \quad c_{kjl} = -2 \gamma^J_k J_{jl},

    then qubit ``i`` is measured into classical bit ``i`` of the register ``spins``. The open angles ``a``,
    ``c`` are plain parameters that receive finished numbers (an expression such as ``-2 * gamma * h`` would
    be evaluated gate by gate at every binding), and they are bound by vector: ``circuit.parameters`` is
    sorted by name, and a positional array would swap fields and couplings.

    Attributes:
        circuit: the symbolic ``QuantumCircuit``. It is shared by all callers of ``annealing_circuit``; copy
            it before changing it.
        num_spins: ``n``.
        schedule: the angles.
        field_vectors: one ``ParameterVector`` per layer, ``a_k`` of length ``n``.
        coupling_vectors: one per layer, ``c_k`` over the pairs ``j < l`` in the order of ``qboltz.spins``;
            none for one spin.
    """

    circuit: QuantumCircuit
    num_spins: int
    schedule: AnnealingSchedule
    field_vectors: tuple[ParameterVector, ...] = field(repr=False)
    coupling_vectors: tuple[ParameterVector, ...] = field(repr=False)

    def bindings(self, fields: NDArray[np.floating], couplings: NDArray[np.floating]) -> BindingsArray:
        """Angles of ``N`` models with ``fields (N, n)`` and ``couplings (N, n, n)``, as bindings of shape ``(N,)``.

        Raises:
            ValueError: a shape differs from these.
        """
        n = self.num_spins
        if fields.ndim != 2 or fields.shape[1] != n:
            raise ValueError(f"fields must be (models, {n}), got {fields.shape}.")
        if couplings.shape != (len(fields), n, n):
            raise ValueError(f"couplings must be ({len(fields)}, {n}, {n}), got {couplings.shape}.")
        first, second = pair_indices(n)
        pairs = couplings[:, first, second]
        layers = list(self.schedule.layers())
        field_angles = np.concatenate([-2 * layer.field_angle * fields for layer in layers], axis=1)
        angles = {tuple(chain(*self.field_vectors)): field_angles}
        if self.coupling_vectors:
            pair_angles = np.concatenate([-2 * layer.coupling_angle * pairs for layer in layers], axis=1)
            angles[tuple(chain(*self.coupling_vectors))] = pair_angles
        return BindingsArray(angles, shape=(len(fields),))

    def bind(self, model: IsingModel) -> tuple[QuantumCircuit, BindingsArray]:
        """One pub for a whole batch of models; its row ``g * R + r`` is row ``(g, r)`` of ``model.groups``.

        Invisible spins are decoupled: their angles are zero, so that they stay uniform and independent.

        Raises:
            ValueError: the model has another number of spins than the circuit.
        """
        if model.num_spins != self.num_spins:
            raise ValueError(f"model must have {self.num_spins} spins, as the circuit has, got {model.num_spins}.")
        fields, couplings = decoupled_rows(model)
        return self.circuit, self.bindings(fields, couplings)


def decoupled_rows(
    model: IsingModel, rows: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fields ``(N, n)`` and couplings ``(N, n, n)`` of rows of ``model.groups``, invisible spins decoupled.

    Args:
        model: the batch.
        rows: numbers ``g * R + r``; ``None`` for all of them in order.
    """
    groups = model.groups
    if rows is None:
        rows = np.arange(groups.num_groups * groups.num_rows)
    fields = to_numpy(groups.fields).reshape(-1, groups.num_spins)[rows]
    couplings = to_numpy(groups.couplings)[rows // max(1, groups.num_rows)]
    if groups.visible is not None:
        visible = groups.visible.cpu().numpy().reshape(-1, groups.num_spins)[rows]
        fields = fields * visible
        couplings = couplings * (visible[:, :, None] & visible[:, None, :])
    return fields, couplings


@lru_cache(maxsize=64)
def annealing_circuit(num_spins: int, schedule: AnnealingSchedule) -> AnnealingCircuit:
    """The symbolic anneal, built once per ``(num_spins, schedule)``: only h, rz, rzz, rx and measurements.

    Raises:
        TypeError: ``num_spins`` is not an integer, or ``schedule`` not an ``AnnealingSchedule``.
        ValueError: ``num_spins < 1``.
    """
    if isinstance(num_spins, bool) or not isinstance(num_spins, (int, np.integer)):
        raise TypeError(f"num_spins must be an integer, got {num_spins!r}.")
    if num_spins < 1:
        raise ValueError(f"num_spins must be at least 1, got {num_spins}.")
    if not isinstance(schedule, AnnealingSchedule):
        raise TypeError(f"schedule must be an AnnealingSchedule, got {type(schedule).__name__}.")
    pairs = list(zip(*(index.tolist() for index in pair_indices(num_spins)), strict=True))
    numbers = range(schedule.num_layers)
    field_vectors = tuple(ParameterVector(f"h{k}", num_spins) for k in numbers)
    coupling_vectors = tuple(ParameterVector(f"J{k}", num_pairs(num_spins)) for k in numbers) if pairs else ()

    circuit = QuantumCircuit(
        QuantumRegister(num_spins, "q"), ClassicalRegister(num_spins, SPIN_REGISTER), name="anneal"
    )
    circuit.h(range(num_spins))
    for k, layer in enumerate(schedule.layers()):
        for qubit, angle in enumerate(field_vectors[k]):
            circuit.rz(angle, qubit)
        if pairs:
            for (first, second), angle in zip(pairs, coupling_vectors[k], strict=True):
                circuit.rzz(angle, first, second)
        circuit.rx(-2 * layer.mixer_angle, range(num_spins))
    circuit.measure(range(num_spins), range(num_spins))
    return AnnealingCircuit(circuit, num_spins, schedule, field_vectors, coupling_vectors)
