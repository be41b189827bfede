"""The classes of answers, which nobody constructs: for annotations, and to read a saved one again.

A function of ``gnjax`` returns each of them, and every one is a ``Result``: it prints in one line,
and can be saved as JSON, read with ``from_json`` of its class, and displayed in a notebook.
"""

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.block_spectra import BlockSpectra, BlockSpectrum
from gnjax.diagnosis.classes import ClassShare
from gnjax.diagnosis.diagnose import Diagnosis, LayerShare
from gnjax.diagnosis.monitor_row import MonitorRow
from gnjax.diagnosis.remedies.suggestion import LeftOut, Suggestion
from gnjax.numerics.answers.result import Result
from gnjax.spectra.certified_pairs import CertifiedPairs
from gnjax.spectra.density import Estimate, SpectralDensity
from gnjax.spectra.diagonal_estimate import DiagonalEstimate
from gnjax.spectra.functions.frobenius import Distance
from gnjax.spectra.functions.inverse_diagonal import InverseDiagonal
from gnjax.spectra.functions.predictive_variance import PredictiveVariance
from gnjax.spectra.functions.solve import Solution
from gnjax.spectra.functions.trace_of import FunctionTrace
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.trace import Trace

__all__ = [
    "BlockSpectra",
    "BlockSpectrum",
    "CertifiedPairs",
    "ClassShare",
    "ConditionNumber",
    "Diagnosis",
    "DiagonalEstimate",
    "Distance",
    "Estimate",
    "FunctionTrace",
    "InverseDiagonal",
    "LayerShare",
    "LeftOut",
    "MonitorRow",
    "PredictiveVariance",
    "Result",
    "Solution",
    "SpectralDensity",
    "Spectrum",
    "Suggestion",
    "Trace",
]
