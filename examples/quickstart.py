"""One attention layer, its weights by exact enumeration and from annealing circuits on Aer."""

import torch

import qboltz

torch.manual_seed(0)
J = 0.3 * torch.randn(6, 6).triu(1)
attention = qboltz.BoltzmannAttention(embed_dim=16, num_heads=1, max_len=6, coupling_init=J + J.T)
tokens = torch.randn(1, 6, 16)
for solver in (qboltz.ExactSolver(), qboltz.AnnealingSolver("aer_simulator", shots=1024, seed=0)):
    attention.solver = solver
    output, weights = attention(tokens, tokens, tokens)
    output.square().sum().backward()  # gradients too come from the same spins
    print(f"{type(solver).__name__:16}", " ".join(f"{weight:.2f}" for weight in weights[0, 0]))
