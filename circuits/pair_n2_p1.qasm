// pair_n2_p1: two spins, one layer: the smallest anneal. One layer gives the fields their temperature, but passes no coupling to the magnetizations at leading order (`k_hj` is 0).
// Spin i is qubit i and classical bit i; spin +1 is bit 0, spin -1 is bit 1.
// Written by circuits/regenerate.py.
OPENQASM 3.0;
include "stdgates.inc";
gate rzz(p0) _gate_q_0, _gate_q_1 {
  cx _gate_q_0, _gate_q_1;
  rz(p0) _gate_q_1;
  cx _gate_q_0, _gate_q_1;
}
bit[2] spins;
qubit[2] q;
h q[0];
h q[1];
rz(-0.848528137423857) q[0];
rz(0.28284271247461906) q[1];
rzz(-0.4) q[0], q[1];
rx(-pi/4) q[0];
rx(-pi/4) q[1];
spins[0] = measure q[0];
spins[1] = measure q[1];

