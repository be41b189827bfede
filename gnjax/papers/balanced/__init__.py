"""Paper B: the Hessian spectrum of linear networks f(x) = W_L .. W_1 x under the squared error.

P_l = W_{l-1} .. W_1 is the product of the layers before the l-th, and S_l = W_L .. W_{l+1} that of
the layers after it. P_l does not contain the data; the paper's Eq 4 includes them in P_l and then
multiplies by them again. Samples are rows of x (n, d_0) and y (n, d_L), and the loss is
|f(x) - y|^2 / (2 n). Inputs are whitened, x^T x / n = sigma_x^2 I, unless a covariance is given.
Layers are balanced if W_{l+1}^T W_{l+1} = W_l W_l^T; they then have the same singular values
sigma_i.
"""

from gnjax.models.initializers import balanced as sample
from gnjax.papers.balanced.balanced_spectrum import bound, eigenvalues, trace
from gnjax.papers.balanced.minima import (
    layer_singular_values,
    least_sharpness,
    minimiser,
    printed_sharpness,
    sharpness,
)
from gnjax.papers.balanced.two_layers import Shallow, shallow, shallow_gap

__all__ = [
    "Shallow",
    "bound",
    "eigenvalues",
    "layer_singular_values",
    "least_sharpness",
    "minimiser",
    "printed_sharpness",
    "sample",
    "shallow",
    "shallow_gap",
    "sharpness",
    "trace",
]
