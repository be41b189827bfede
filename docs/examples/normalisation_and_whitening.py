"""Condition number before and after whitening and BatchNorm

The same network on raw images, on whitened images, and with BatchNorm behind its hidden layer.
Every bar has an interval, which is too narrow to be seen. With whitened inputs BatchNorm does not
help here.
"""

import jax
import matplotlib.pyplot as plt

import gnjax

gnjax.enable_x64()
images = gnjax.data.load("fashion_mnist_5000", samples=60)
raw = gnjax.data.downsample(images.inputs, images.shape, (4, 4))
white = gnjax.data.whiten(raw).inputs


def kappa(inputs, **options):
    model = gnjax.models.MLP((16, 64, 3), activation="tanh", key=jax.random.key(0), **options)
    return gnjax.condition_number(gnjax.gauss_newton(model, inputs))


answers = {
    "raw": kappa(raw),
    "raw,\nBatchNorm": kappa(raw, norm="batch"),
    "whitened": kappa(white),
    "whitened,\nBatchNorm": kappa(white, norm="batch"),
}
for name, answer in answers.items():
    print(f"{name}: {answer}".replace("\n", " "))

figure, axes = plt.subplots()
axes.bar(answers.keys(), [answer.value for answer in answers.values()], width=0.6)
axes.set(yscale="log", ylabel="condition number")
