// chain_n3_p2: a chain of three spins, two layers: the field of spin 0 reaches spin 2 through the couplings.
// Spin i is qubit i and classical bit i; spin +1 is bit 0, spin -1 is bit 1.
// Written by circuits/regenerate.py.
OPENQASM 3.0;
include "stdgates.inc";
gate rzz(p0) _gate_q_0, _gate_q_1 {
  cx _gate_q_0, _gate_q_1;
  rz(p0) _gate_q_1;
  cx _gate_q_0, _gate_q_1;
}
bit[3] spins;
qubit[3] q;
h q[0];
h q[1];
h q[2];
rz(-0.5571200000000001) q[0];
rz(-0.06964000000000001) q[1];
rz(0.20892) q[2];
rzz(-0.12459999999999999) q[0], q[1];
rzz(0) q[0], q[2];
rzz(-0.089) q[1], q[2];
rx(-1.377) q[0];
rx(-1.377) q[1];
rx(-1.377) q[2];
rz(-0.39968000000000004) q[0];
rz(-0.049960000000000004) q[1];
rz(0.14987999999999999) q[2];
rzz(-0.4272099999999999) q[0], q[1];
rzz(0) q[0], q[2];
rzz(-0.30515) q[1], q[2];
rx(-0.7698) q[0];
rx(-0.7698) q[1];
rx(-0.7698) q[2];
spins[0] = measure q[0];
spins[1] = measure q[1];
spins[2] = measure q[2];

