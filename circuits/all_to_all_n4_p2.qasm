// all_to_all_n4_p2: every pair coupled, values all different: exchanged qubits, bits or parameters cannot go unnoticed.
// Spin i is qubit i and classical bit i; spin +1 is bit 0, spin -1 is bit 1.
// Written by circuits/regenerate.py.
OPENQASM 3.0;
include "stdgates.inc";
gate rzz(p0) _gate_q_0, _gate_q_1 {
  cx _gate_q_0, _gate_q_1;
  rz(p0) _gate_q_1;
  cx _gate_q_0, _gate_q_1;
}
bit[4] spins;
qubit[4] q;
h q[0];
h q[1];
h q[2];
h q[3];
rz(-0.3482) q[0];
rz(0.20892) q[1];
rz(-0.10446) q[2];
rz(-0.48747999999999997) q[3];
rzz(-0.042719999999999994) q[0], q[1];
rzz(0.02848) q[0], q[2];
rzz(-0.07476) q[0], q[3];
rzz(-0.060520000000000004) q[1], q[2];
rzz(0.04984) q[1], q[3];
rzz(-0.0178) q[2], q[3];
rx(-1.377) q[0];
rx(-1.377) q[1];
rx(-1.377) q[2];
rx(-1.377) q[3];
rz(-0.2498) q[0];
rz(0.14987999999999999) q[1];
rz(-0.07493999999999999) q[2];
rz(-0.34972) q[3];
rzz(-0.146472) q[0], q[1];
rzz(0.097648) q[0], q[2];
rzz(-0.256326) q[0], q[3];
rzz(-0.207502) q[1], q[2];
rzz(0.170884) q[1], q[3];
rzz(-0.06103) q[2], q[3];
rx(-0.7698) q[0];
rx(-0.7698) q[1];
rx(-0.7698) q[2];
rx(-0.7698) q[3];
spins[0] = measure q[0];
spins[1] = measure q[1];
spins[2] = measure q[2];
spins[3] = measure q[3];

