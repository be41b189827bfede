"""What tests of models share."""

from flax import nnx


@nnx.jit
def outputs(model, x):
    """What the model returns, by one program; called eagerly, it has one for every operation."""
    return model(x)
