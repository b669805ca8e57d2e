"""Two processes train one model: spent once, stopped together, with the noise of one release."""

import datetime
import json
import math
import os
import pathlib

import pytest
import torch
from scipy import stats
from torch import distributed, multiprocessing, nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import AdaptNoise, CorrectCount, PrivateEngine

ALARM = 1e-6
SIZE, RECORDS, STEPS = 2000, 60, 40


class Counting:
    """A gate that counts how often it is asked to spend."""

    def __init__(self, gate):
        self.gate, self.calls = gate, 0

    def admits(self, cost, count=1):
        return self.gate.admits(cost, count)

    def spend(self, cost, count=1):
        self.gate.spend(cost, count)
        self.calls += count

    @property
    def epsilon(self):
        return self.gate.epsilon


def worker(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    try:
        results = {job.__name__: job() for job in JOBS}
        (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What every job gave on both ranks; they are started once, for starting takes seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    # What both import, one process imports for them.
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["dosimeter.training", "scipy.stats", "torch.distributed.fsdp"]
    )
    multiprocessing.start_processes(
        worker, args=(str(folder),), nprocs=2, start_method="forkserver"
    )
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return lambda job: [result[job.__name__] for result in results]


def made(gate, *, batch_size=12, noise_multiplier=1.5, seed=None, **options):
    # A model with as many parameters as features, and records that can be told apart.
    torch.manual_seed(distributed.get_rank())  # ranks start apart, and must not stay so
    ids = torch.arange(RECORDS, dtype=torch.float32)
    x = torch.zeros(RECORDS, SIZE)
    x[:, 0] = ids
    model = nn.Linear(SIZE, 1, bias=False)
    engine = PrivateEngine(gate, seed=seed)
    wrapped, optimizer, loader = engine.make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.01), TensorDataset(x, ids),
        noise_multiplier=noise_multiplier, max_grad_norm=2.0, batch_size=batch_size,
        physical_batch_size=3, **options)  # fmt: skip
    return engine, model, wrapped, optimizer, loader


def loop(model, optimizer, loader, seen=None):
    for x, _ in loader:
        if seen is not None:
            seen.extend(x[:, 0].int().tolist())
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


def noise_job():
    gate = Counting(dm.Odometer(delta=1e-6))
    engine, model, wrapped, optimizer, loader = made(gate)
    grads, seen = [], []
    # All gradients lie along the first feature; the others carry the noise alone.
    engine.after_step(lambda: grads.append(model.weight.grad[0, 1:].double() * engine.batch_size))
    while engine.steps < STEPS:
        loop(wrapped, optimizer, loader, seen)
    noise = torch.stack(grads) / (1.5 * 2.0)
    return {
        "calls": gate.calls,
        "steps": engine.steps,
        "spends": engine.spends,
        "epsilon": engine.epsilon,
        "square": (noise**2).mean().item(),
        "values": noise.numel(),
        "parameters": model.weight.flatten().tolist(),
        "seen": seen,
    }


def test_one_spend_one_noise_one_sample(together):
    first, second = together(noise_job)
    assert first["steps"] == second["steps"] == first["calls"] == STEPS
    assert second["calls"] == 0  # only rank 0 has the gate charged
    assert first["spends"] == second["spends"] == STEPS
    assert first["epsilon"] == second["epsilon"] > 0
    assert first["parameters"] == second["parameters"]

    # The sum over ranks has the variance of one release; two would give 2, none 0.
    low, high = stats.chi2.ppf([ALARM / 4, 1 - ALARM / 4], first["values"]) / first["values"]
    assert low < first["square"] < high
    assert second["square"] == first["square"]

    # Shares are apart, and together they are one Poisson sample of all records.
    assert {record % 2 for record in first["seen"]} == {0}
    assert {record % 2 for record in second["seen"]} == {1}
    drawn = len(first["seen"]) + len(second["seen"])
    low, high = stats.binom.ppf([ALARM / 4, 1 - ALARM / 4], RECORDS * STEPS, 12 / RECORDS)
    assert low <= drawn <= high


def stopping_job():
    gate = Counting(dm.Filter(epsilon=3.0, delta=1e-6))
    engine, model, wrapped, optimizer, loader = made(gate, noise_multiplier=3.0)
    for _ in range(1000):
        loop(wrapped, optimizer, loader)
        if engine.exhausted:
            break
    return [engine.steps, engine.exhausted, gate.calls, engine.epsilon, model.weight.sum().item()]


def test_all_ranks_stop_at_the_same_step(together):
    first, second = together(stopping_job)
    assert first[0] == second[0] == first[2] > 0
    assert first[1] is second[1] is True
    assert second[2] == 0
    assert first[3] == second[3] <= 3.0
    assert first[4] == second[4]


def policy_job():
    gate = Counting(dm.Odometer(delta=1e-6))
    engine, _, wrapped, optimizer, loader = made(gate, noise_multiplier=3.0)
    labels = TensorDataset(torch.zeros(RECORDS, SIZE), torch.zeros(RECORDS, dtype=torch.long))
    policy, signal = AdaptNoise(every=1), CorrectCount(noise_multiplier=2.0)
    noises, values = [], []
    for _ in range(3):
        loop(wrapped, optimizer, loader)
        reading = signal.read(wrapped, labels, gate=engine)
        values.append(reading.value)
        policy.update(engine, reading)
        noises.append(engine.noise_multiplier)
    state = engine.state_dict()
    engine.load_state_dict(state)
    return {"noises": noises, "values": values, "calls": gate.calls, "spends": engine.spends}


def test_signals_and_policies_are_the_same_on_all_ranks(together):
    first, second = together(policy_job)
    assert first["noises"] == second["noises"]
    assert first["values"] == second["values"]
    # One output, so argmax is always right: 60 of them, counted once over both ranks.
    assert abs(first["values"][0] - RECORDS) < 2.0 * math.sqrt(2 * math.log(2 / ALARM)) + 1
    assert first["calls"] == first["spends"] == second["spends"] == 3 * 5 + 3
    assert second["calls"] == 0


def told_to_stop_job():
    """Rank 0 alone is told to stop; the others must not wait for it."""
    engine, _, wrapped, optimizer, loader = made(dm.Odometer(delta=1e-6))
    if distributed.get_rank() == 0:
        engine.after_step(lambda: engine.steps == 3 and engine.stop("enough"))
    for _ in range(3):
        loop(wrapped, optimizer, loader)
    return [engine.steps, engine.stopped, str(engine.guarantee())]


def test_rank_0_stops_them_all(together):
    first, second = together(told_to_stop_job)
    assert first[:2] == second[:2] == [3, "enough"]
    assert "odometer" in first[2]
    assert "epsilon 0.0" not in second[2]


def failing_job():
    class Broken(Counting):
        def spend(self, cost, count=1):
            raise ConnectionError("database away")

    engine, _, wrapped, optimizer, loader = made(Broken(dm.Odometer(delta=1e-6)))
    try:
        loop(wrapped, optimizer, loader)
    except Exception as error:
        return [type(error).__name__, engine.steps]
    return ["nothing", engine.steps]


def test_no_rank_waits_for_a_gate_that_failed(together):
    first, second = together(failing_job)
    assert first == ["ConnectionError", 0]
    assert second == ["DosimeterError", 0]


def refused_job():
    """Try what is refused among several ranks: some shards, and an engine from before."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    def sharded(**options):
        model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
        mesh = distributed.init_device_mesh("cpu", (2,))
        fully_shard(model[0] if options.pop("part", False) else model, mesh=mesh, **options)
        return model

    def parallel():
        mesh = distributed.init_device_mesh("cpu", (2,))
        return parallelize_module(nn.Linear(4, 2), mesh, ColwiseParallel())

    data = TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    early = PrivateEngine(dm.Odometer(delta=1e-6))
    early._group = type(early.group).alone()
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    told = []
    for engine, made in (
        (PrivateEngine(dm.Odometer(delta=1e-6)), sharded(part=True)),
        (PrivateEngine(dm.Odometer(delta=1e-6)), sharded(mp_policy=half)),
        (PrivateEngine(dm.Odometer(delta=1e-6)), parallel()),
        (early, nn.Linear(4, 2)),
    ):
        try:
            engine.make_private(
                made, torch.optim.SGD(made.parameters(), lr=0.1), data,
                noise_multiplier=1.0, max_grad_norm=1.0, batch_size=4)  # fmt: skip
        except ValueError as error:
            told.append(str(error))
    return told


def test_shards_and_engines_from_before_are_refused(together):
    for told in together(refused_job):
        assert "on the whole model" in told[0]
        assert "mp_policy" in told[1]
        assert "tensor parallelism" in told[2]
        assert "Make the engine anew" in told[3]


def sharded_job():
    """The same run whole and sharded, with pieces of three records and batches of none."""
    from torch.distributed.fsdp import fully_shard

    data = TensorDataset(
        torch.randn(60, 6, generator=torch.Generator().manual_seed(1)),
        torch.randint(0, 3, (60,), generator=torch.Generator().manual_seed(2)),
    )
    found, passes, local = {}, [], 0
    for sharded in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))
        if sharded:
            mesh = distributed.init_device_mesh("cpu", (2,))
            for part in (model[0], model):
                fully_shard(part, mesh=mesh)
        base = torch.optim.Adam(model.parameters(), lr=0.05)
        engine = PrivateEngine(dm.Odometer(delta=1e-6), seed=3)
        private, optimizer, loader = engine.make_private(
            model, base, data, noise_multiplier=0.5, max_grad_norm=1.0, batch_size=4,
            physical_batch_size=3)  # fmt: skip
        count = 0
        for epoch in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(private(x), y).backward()
                optimizer.step()
                count += 1
            for _ in range(1 + distributed.get_rank()):  # ranks may run the model at will
                private(data.tensors[0])
            engine.load_state_dict(engine.state_dict())
            if epoch == 0:
                optimizer.begin(engine._draw())  # a step that is begun and left
                if distributed.get_rank() == 0:
                    model.state_dict()  # cuts the model again, on this rank alone
        passes.append(count)
        if sharded:
            local = sum(p.to_local().numel() for p in model.parameters())
        whole = [p.full_tensor() if sharded else p for p in model.parameters()]
        found[sharded] = torch.cat([p.detach().flatten() for p in whole]).tolist()
    return {"whole": found[False], "sharded": found[True], "passes": passes, "local": local}


def test_shards_give_the_same_model(together):
    """Sums are whole numbers, so it is equal bit by bit; ranks run the model at will."""
    first, second = together(sharded_job)
    assert first["sharded"] == first["whole"] == second["sharded"] == second["whole"]
    # Frameworks let ranks meet at every batch, so there are equally many.
    assert first["passes"] == second["passes"]
    assert first["local"] + second["local"] == len(first["whole"])


JOBS = (
    refused_job,
    sharded_job,
    noise_job,
    stopping_job,
    policy_job,
    told_to_stop_job,
    failing_job,
)
