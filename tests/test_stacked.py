"""Seeds trained side by side are the models they would be alone."""

import pytest
import torch

from qboltz.experiments.evaluation import evaluate
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.side_by_side import batches, evaluate_each, train_side_by_side
from qboltz.experiments.side_by_side import stacked as stack
from qboltz.experiments.stacked import KINDS, RIVALS, StackedTransformer, clip_each_
from qboltz.tasks.brackets import BracketTask

SEEDS = [3, 8, 5]
MARKED, CAUSAL = BracketTask(6), BracketTask(6, form="causal")


def stacked(task, kind, seeds=SEEDS, **options):
    options = {"width": 16, "coupling_init": 0.0 if kind in RIVALS else 0.5} | options
    return StackedTransformer.for_task(task, kind, seeds, **options)


def singles(task, kind, seeds=SEEDS, **options):
    options = {"width": 16, "coupling_init": 0.5} | options
    return [OneLayerTransformer.for_task(task, seed=seed, variant=KINDS[kind], **options) for seed in seeds]


@pytest.mark.parametrize("task", [MARKED, CAUSAL], ids=["marked", "causal"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"ffn": False, "qk_norm": False}], ids=["full", "bare"])
def test_each_seed_computes_what_its_model_computes_alone(task, kind, options):
    together = stacked(task, kind, **options)
    batch = next(iter(batches([task] * len(SEEDS), TrainingConfig(steps=1, batch_size=4), SEEDS)))
    logits = together(batch.tokens, batch.rows)
    for seed, model in enumerate(singles(task, kind, **options)):
        alone = model(batch.tokens[seed], batch.rows[seed])
        torch.testing.assert_close(logits[seed], alone, rtol=1e-4, atol=1e-5)
    assert (logits[0] - logits[1]).abs().max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_do_not_feel_each_other(kind):
    """Training three seeds and training one of them end with the same weights (up to rounding)."""
    config = TrainingConfig(steps=5, batch_size=8, lr=1e-2, clip=0.5)
    test = CAUSAL.batch(data_generator(0, "test"), 32, "test")
    together, alone = stacked(CAUSAL, kind), stacked(CAUSAL, kind, SEEDS[1:2])
    before = [parameter.detach().clone() for parameter in together.parameters()]
    curves = train_side_by_side(together, CAUSAL, config, SEEDS, test, evaluate_every=5)
    train_side_by_side(alone, CAUSAL, config, SEEDS[1:2], test, evaluate_every=5)
    for one, three, start in zip(alone.parameters(), together.parameters(), before, strict=True):
        torch.testing.assert_close(one[0], three[1], rtol=1e-3, atol=1e-4)
        unused = kind == "J-only" and (three.dim() < 3 or three.shape[1] == 48)  # there q and k have no effect
        assert unused or not torch.equal(three, start)
    assert min(curves.grad_norm[0]) > 0.5  # so that the clipping was at work


def test_one_step_is_that_of_the_training_loop():
    """Against autograd and AdamW on one ordinary model, with its own clipping."""
    config = TrainingConfig(steps=1, batch_size=8, lr=1e-2, clip=0.1, warmup=0)
    test = MARKED.batch(data_generator(0, "test"), 32, "test")
    together = stacked(MARKED, "h+J")
    batch = next(iter(batches([MARKED] * len(SEEDS), config, SEEDS)))
    train_side_by_side(together, MARKED, config, SEEDS, test, evaluate_every=1)
    loss, accuracy = evaluate_each(together, test)
    from qboltz.experiments.optimization import lr_factor, make_optimizer

    for seed, model in enumerate(singles(MARKED, "h+J")):
        optimizer = make_optimizer(model, config)
        for group in optimizer.param_groups:
            group["lr"] = lr_factor(0, config) * group["peak_lr"]
        logits = model(batch.tokens[seed], batch.rows[seed])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets[seed].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        quality = evaluate(model, test)
        assert loss[seed] == pytest.approx(quality.loss, abs=2e-4)
        assert accuracy[seed] == pytest.approx(quality.accuracy, abs=1 / 32)


def test_data_of_a_seed_depend_on_it_alone():
    config = TrainingConfig(steps=70, batch_size=2)
    three = [batch.tokens[1] for batch in batches([MARKED] * len(SEEDS), config, SEEDS)]
    one = [batch.tokens[0] for batch in batches([MARKED], config, SEEDS[1:2])]
    assert len(three) == 70
    assert all(map(torch.equal, three, one))
    assert not torch.equal(three[0], three[64])


def test_each_seed_can_have_its_own_task_and_test():
    """Folds of the words: what a seed learns from and is measured on is that of its own task."""
    tasks = [BracketTask(6, kinds=1, fold=fold) for fold in (0, 4, 9)]
    config = TrainingConfig(steps=3, batch_size=8)
    tests = [task.batch(data_generator(0, "test"), 16, "test") for task in tasks]
    assert not torch.equal(tests[0].tokens, tests[1].tokens)
    model = stacked(tasks[0], "h+J")
    curves = train_side_by_side(model, tasks, config, SEEDS, stack(tests), evaluate_every=3)
    loss, _ = evaluate_each(model, tests[1])
    assert curves.loss[-1][1] == pytest.approx(loss[1], rel=1e-5)
    assert curves.loss[-1][0] != pytest.approx(loss[0], rel=1e-3)
    with pytest.raises(ValueError, match="task must be one, or one for each of 3 seeds, got 2"):
        train_side_by_side(model, tasks[:2], config, SEEDS, stack(tests), evaluate_every=3)


def test_clipping_is_seed_by_seed():
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.tensor([[3.0, 0, 4], [0.3, 0, 0.4]])
    norms = clip_each_([parameter], 1.0)
    torch.testing.assert_close(norms, torch.tensor([5.0, 0.5]))
    torch.testing.assert_close(parameter.grad, torch.tensor([[0.6, 0, 0.8], [0.3, 0, 0.4]]))


def test_rivals_have_as_many_numbers_as_couplings_and_learn_them():
    counts = {kind: stacked(CAUSAL, kind).num_parameters for kind in KINDS}
    assert counts["softmax+bias"] == counts["softmax+mixing"] == counts["h+bias"] == counts["h+J"]
    assert counts["softmax"] == counts["h-only"] == counts["h+J"] - 15
    for kind in ("softmax+bias", "softmax+mixing", "h+bias"):
        model = stacked(CAUSAL, kind)
        batch = next(iter(batches([CAUSAL] * len(SEEDS), TrainingConfig(steps=1, batch_size=8), SEEDS)))
        model(batch.tokens, batch.rows).square().sum().backward()
        assert (model.pairs.grad != 0).all()


@pytest.mark.parametrize("kind", ["softmax+mixing", "softmax+bias", "h+J"])
def test_keys_behind_a_row_change_nothing(kind):
    model = stacked(CAUSAL, kind, coupling_init=0.5)
    if model.pairs is not None:
        torch.nn.init.normal_(model.pairs)
    batch = next(iter(batches([CAUSAL] * len(SEEDS), TrainingConfig(steps=1, batch_size=8), SEEDS)))
    rows = torch.full_like(batch.rows, 2)
    changed = batch.tokens.clone()
    changed[..., 3:] = (changed[..., 3:] + 1) % 4
    torch.testing.assert_close(model(batch.tokens, rows), model(changed, rows))


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="kind must be one of .*got 'softmx'. Did you mean 'softmax'"):
        stacked(MARKED, "softmx")


@pytest.mark.parametrize("kind", RIVALS)
def test_a_rival_starts_where_couplings_would(kind):
    start = torch.triu(torch.arange(36.0).view(6, 6), 1)
    start = start + start.mT
    model = stacked(MARKED, kind, coupling_init=start)
    assert torch.equal(model.couplings, stacked(MARKED, "h+J", coupling_init=start).couplings)
    assert torch.equal(model.couplings, start.expand(len(SEEDS), -1, -1))
