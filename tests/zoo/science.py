"""Networks of the sciences: differential equations, densities, fields and counts."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.zoo import Case, initialised, made
from tests.zoo.language import squared_loss

RNG = np.random.default_rng(3)
N = 3


class Field(nnx.Module):
    """u(x, t), a small network of two coordinates."""

    def __init__(self, rngs):
        self.first = nnx.Linear(2, 4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))[..., 0]


def pinn():
    """A physics-informed network: the outputs are the residuals u_t - u_xx and the values u."""
    graph, params = nnx.split(made(Field, 0))

    def residuals(params, points):
        u = nnx.merge(graph, params)
        u_t = jax.vmap(lambda z: jax.grad(u)(z)[1])(points)
        u_xx = jax.vmap(lambda z: jax.hessian(u)(z)[0, 0])(points)
        return jnp.stack([u_t - u_xx, u(points)], axis=1)

    def plain(p, x):
        w, b = p["first"]["kernel"][...], p["first"]["bias"][...]
        v, c = p["last"]["kernel"][...][:, 0], p["last"]["bias"][...][0]
        h = jnp.tanh(x @ w + b)
        slope = 1 - h**2
        u_t, u_xx = (slope * w[1]) @ v, (-2 * h * slope * w[0] ** 2) @ v
        return jnp.stack([u_t - u_xx, h @ v + c], axis=1)

    points, y = RNG.standard_normal((N, 2)), RNG.standard_normal((N, 2))
    return Case((residuals, params), points, plain, squared_loss, {"y": y})


def neural_ode():
    """Four Runge-Kutta steps of a learnt vector field, in a scan."""
    x, y = RNG.standard_normal((N, 2)), RNG.standard_normal((N, 2))
    params = {"in": RNG.standard_normal((2, 3)), "out": RNG.standard_normal((3, 2))}
    size = 0.25

    def field(p, z):
        return jnp.tanh(z @ p["in"]) @ p["out"]

    def apply(p, x):
        def step(z, _):
            a = field(p, z)
            b = field(p, z + size / 2 * a)
            c = field(p, z + size / 2 * b)
            d = field(p, z + size * c)
            return z + size / 6 * (a + 2 * b + 2 * c + d), None

        return jax.lax.scan(step, x, None, length=4)[0]

    def plain(p, x):
        for _ in range(4):
            slopes = [field(p, x)]
            for share in (0.5, 0.5, 1.0):
                slopes.append(field(p, x + size * share * slopes[-1]))
            x = x + size * sum(w * s for w, s in zip((1, 2, 2, 1), slopes, strict=True)) / 6
        return x

    return Case((apply, params), x, plain, squared_loss, {"y": y})


class Siren(nn.Module):
    """Coordinates in, colours out, through sines."""

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = jnp.sin(3.0 * nn.Dense(4)(x))
        return nn.sigmoid(nn.Dense(3)(x))


def siren():
    x, y = RNG.uniform(-1, 1, (N, 2)), RNG.random((N, 3))
    module = Siren()

    def plain(p, x):
        for layer in ("Dense_0", "Dense_1"):
            x = jnp.sin(3 * (x @ p[layer]["kernel"] + p[layer]["bias"]))
        return 1 / (1 + jnp.exp(-(x @ p["Dense_2"]["kernel"] + p["Dense_2"]["bias"])))

    variables = initialised(module, 2, x)
    return Case((module, variables), x, plain, squared_loss, {"y": y})


class VAE(nnx.Module):
    """The noise is given, so that the same noise comes in every product."""

    def __init__(self, rngs):
        self.encoder = nnx.Linear(3, 4, rngs=rngs)
        self.decoder = nnx.Linear(2, 3, rngs=rngs)

    def __call__(self, batch):
        mean, log_variance = jnp.split(self.encoder(batch["x"]), 2, axis=-1)
        z = mean + jnp.exp(log_variance / 2) * batch["noise"]
        return {"mean": mean, "log_variance": log_variance, "image": self.decoder(z)}


def vae():
    x = {"x": RNG.standard_normal((N, 3)), "noise": RNG.standard_normal((N, 2))}

    def elbo(f, y):
        distance = jnp.exp(f["log_variance"]) + f["mean"] ** 2 - 1 - f["log_variance"]
        return ((f["image"] - y) ** 2).sum() / 2 + distance.sum() / 2

    def plain(p, x):
        code = x["x"] @ p["encoder"]["kernel"][...] + p["encoder"]["bias"][...]
        z = code[:, :2] + jnp.exp(code[:, 2:] / 2) * x["noise"]
        image = z @ p["decoder"]["kernel"][...] + p["decoder"]["bias"][...]
        return {"mean": code[:, :2], "log_variance": code[:, 2:], "image": image}

    def loss(f, y):
        return jax.vmap(elbo)(f, y).mean()

    return Case(made(VAE, 0), x, plain, loss, {"y": x["x"], "loss": elbo})


def flow():
    """One coupling layer of a normalising flow: what it makes of x, and the log of its volume."""
    x = RNG.standard_normal((N, 4))
    params = {name: 0.5 * RNG.standard_normal((2, 2)) for name in ("scale", "shift", "mix")}

    def apply(p, x):
        still, moved = x[:, :2], x[:, 2:]
        h = jnp.tanh(still @ p["mix"])
        scale = h @ p["scale"]
        z = jnp.concatenate([still, moved * jnp.exp(scale) + h @ p["shift"]], axis=1)
        return z, scale.sum(axis=1)

    def surprise(f, y):
        del y
        return (f[0] ** 2).sum() / 2 - f[1]

    def loss(f, y):
        del y
        return ((f[0] ** 2).sum() / 2 - f[1].sum()) / N

    return Case((apply, params), x, apply, loss, {"y": np.zeros(N), "loss": surprise})


class Denoiser(nnx.Module):
    """Predicts the noise in x from x and the time, as diffusion models do."""

    def __init__(self, rngs):
        self.time = nnx.Linear(4, 4, rngs=rngs)
        self.first = nnx.Linear(2, 4, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.last = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x, time):
        angles = time[:, None] * jnp.array([1.0, 10.0])
        waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        h = self.norm(self.first(x)) * (1 + self.time(waves))
        return self.last(nnx.silu(h))


def diffusion():
    x, time = RNG.standard_normal((N, 2)), RNG.random(N)
    y = RNG.standard_normal((N, 2))

    def plain(p, x):
        x, time = x
        waves = [f(time * rate) for f in (jnp.sin, jnp.cos) for rate in (1.0, 10.0)]
        shift = jnp.stack(waves, 1) @ p["time"]["kernel"][...] + p["time"]["bias"][...]
        h = x @ p["first"]["kernel"][...] + p["first"]["bias"][...]
        h = h - h.mean(1, keepdims=True)
        h = h / jnp.sqrt((h**2).mean(1, keepdims=True) + 1e-6)
        h = (h * p["norm"]["scale"][...] + p["norm"]["bias"][...]) * (1 + shift)
        h = h / (1 + jnp.exp(-h))
        return h @ p["last"]["kernel"][...] + p["last"]["bias"][...]

    return Case(made(Denoiser, 0), (x, time), plain, squared_loss, {"y": y})


def poisson():
    """A regression of counts, with a loss of one's own."""
    x, y = RNG.standard_normal((N, 3)), np.array([0, 2, 5])
    params = {"w": RNG.standard_normal((3, 3)), "v": RNG.standard_normal(3), "b": np.zeros(())}

    def apply(p, x):
        return jnp.logaddexp(x @ p["w"], 0.0) @ p["v"] + p["b"]

    def loss(f, y):
        return (jnp.exp(f) - y * f).mean()

    return Case((apply, params), x, apply, loss, {"y": y, "loss": lambda f, y: jnp.exp(f) - y * f})
