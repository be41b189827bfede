"""What TensorBoard reads back is what a monitor measured."""

import jax
import numpy as np
import pytest

import gnjax

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="tensorboard comes with `make test-torch`",
)
tensorboard = pytest.importorskip("torch.utils.tensorboard")


def test_events_of_tensorboard_are_the_history(tmp_path):
    writer = tensorboard.SummaryWriter(str(tmp_path))

    def log(row):
        for name, value in row.numbers().items():
            writer.add_scalar(f"curvature/{name}", value, row.step)

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    monitor = gnjax.Monitor(x, y, every=2, probes=3, on_row=log)
    for step in range(5):
        model = gnjax.models.MLP((4, 8, 2), activation="tanh", key=jax.random.key(step))
        monitor(step, model, rate=0.1)
    writer.close()
    events = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
    tags = [tag.removeprefix("curvature/") for tag in events.Tags()["scalars"]]
    assert sorted(tags) == sorted(monitor.history[0].numbers())
    for name in tags:
        read = {event.step: event.value for event in events.Scalars(f"curvature/{name}")}
        assert read == {row.step: float(np.float32(row[name])) for row in monitor.history}
