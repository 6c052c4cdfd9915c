"""Train a Transformer whose attention weights are sampled from annealing circuits; compare it with its twins.

    python examples/train_dqa.py                                        recall on Aer, about a minute
    python examples/train_dqa.py --backend exact --length 9             four pairs, exact enumeration
    python examples/train_dqa.py --task brackets --length 8 --steps 600
    torchrun --nproc-per-node 2 examples/train_dqa.py                   two processes share every batch
    python examples/train_dqa.py --backend ibm_fez --max-qpu-seconds 300     a machine; --dry-run: its price

Ctrl-C stops it and says how to go on. The directory of the run gets summary.json, metrics.jsonl,
checkpoint.pt, learning_curves.png and couplings.png; its twins write to directories below.
"""

import sys

import torch

from qboltz.errors import BudgetError, ConvergenceError, JobError, SelfTestError
from qboltz.experiments.comparison import Comparison
from qboltz.experiments.options import make_parser, parse
from qboltz.experiments.processes import StopSignal, join_processes
from qboltz.experiments.progress import say


def run(job):
    own = job.train_own()
    quality = job.evaluate(own)
    exact_quality = job.evaluate(own, job.exact) if job.exact else None
    exact_twin = job.evaluate(job.train_exact_twin(own))
    softmax_twin = job.evaluate(job.train_softmax_twin(own))
    job.report(
        own,
        loss=quality and quality.loss,
        accuracy=quality and quality.accuracy,
        exact_eval_accuracy=exact_quality and exact_quality.accuracy,
        exact_twin_accuracy=exact_twin and exact_twin.accuracy,
        softmax_twin_accuracy=softmax_twin and softmax_twin.accuracy,
        magnetization_rmse=job.rmse,
    )


def main(argv=None):
    parser = make_parser(__doc__)
    with join_processes() as processes, StopSignal() as stop:
        try:
            args = parse(parser, argv)
            torch.set_num_threads(args.threads)
            job = Comparison(args, processes, stop)
        except (ValueError, OSError) as error:
            parser.error(str(error))
        try:
            if args.dry_run:
                job.dry_run()
                return 0
            run(job)
        except KeyboardInterrupt:
            if processes.first:
                launcher = "python" if processes.count == 1 else f"torchrun --nproc-per-node {processes.count}"
                say(f"Stopped. Continue with: {launcher} {sys.argv[0]} --resume --out {job.folder}")
            return 130
        except (ValueError, OSError, ConvergenceError, SelfTestError, BudgetError, JobError) as error:
            say(f"error: {error}\nWhat was done up to the last checkpoint is in {job.folder}; --resume continues it.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
