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
rz(-0.28279768667985683) q[0];
rz(0.1696786120079141) q[1];
rz(-0.08483930600395705) q[2];
rz(-0.39591676135179954) q[3];
rzz(-0.04329318755646995) q[0], q[1];
rzz(0.028862125037646635) q[0], q[2];
rzz(-0.0757630782238224) q[0], q[3];
rzz(-0.0613320157049991) q[1], q[2];
rzz(0.05050871881588161) q[1], q[3];
rzz(-0.018038828148529147) q[2], q[3];
rx(-1.5766986019905125) q[0];
rx(-1.5766986019905125) q[1];
rx(-1.5766986019905125) q[2];
rx(-1.5766986019905125) q[3];
rz(-0.3870674103970345) q[0];
rz(0.2322404462382207) q[1];
rz(-0.11612022311911036) q[2];
rz(-0.5418943745558483) q[3];
rzz(-0.14543528346190107) q[0], q[1];
rzz(0.0969568556412674) q[0], q[2];
rzz(-0.2545117460583269) q[0], q[3];
rzz(-0.20603331823769322) q[1], q[2];
rzz(0.16967449737221796) q[1], q[3];
rzz(-0.06059803477579212) q[2], q[3];
rx(-0.8963954861993481) q[0];
rx(-0.8963954861993481) q[1];
rx(-0.8963954861993481) q[2];
rx(-0.8963954861993481) q[3];
spins[0] = measure q[0];
spins[1] = measure q[1];
spins[2] = measure q[2];
spins[3] = measure q[3];

