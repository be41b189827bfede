"""Each layer's share of both ends of the spectrum

`diagnose` splits lambda_max and lambda_min into one share for each layer. A layer with a larger
share of lambda_max than of lambda_min makes the condition number large.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import gnjax

gnjax.enable_x64()
model = gnjax.models.MLP((8, 16, 16, 16, 3), activation="tanh", key=jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (20, 8))
diagnosis = gnjax.diagnose(model, x)

figure, axes = plt.subplots()
places = np.arange(len(diagnosis.layers))
axes.bar(places - 0.2, [layer.top for layer in diagnosis.layers], 0.4, label="of lambda_max")
axes.bar(places + 0.2, [layer.bottom for layer in diagnosis.layers], 0.4, label="of lambda_min")
axes.set(ylabel="share")
axes.set_xticks(places, [layer.name for layer in diagnosis.layers])
axes.legend()
