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
rz(-0.45247629868777095) q[0];
rz(-0.05655953733597137) q[1];
rz(0.1696786120079141) q[2];
rzz(-0.126271797039704) q[0], q[1];
rzz(0) q[0], q[2];
rzz(-0.09019414074264573) q[1], q[2];
rx(-1.5766986019905125) q[0];
rx(-1.5766986019905125) q[1];
rx(-1.5766986019905125) q[2];
rz(-0.6193078566352552) q[0];
rz(-0.0774134820794069) q[1];
rz(0.2322404462382207) q[2];
rzz(-0.42418624343054484) q[0], q[1];
rzz(0) q[0], q[2];
rzz(-0.3029901738789606) q[1], q[2];
rx(-0.8963954861993481) q[0];
rx(-0.8963954861993481) q[1];
rx(-0.8963954861993481) q[2];
spins[0] = measure q[0];
spins[1] = measure q[1];
spins[2] = measure q[2];

