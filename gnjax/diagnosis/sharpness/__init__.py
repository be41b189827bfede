"""The sharpness that a training method meets, in other senses than the largest eigenvalue of H."""

from gnjax.diagnosis.sharpness.family import MEASURES, SharpnessFamily

__all__ = ["MEASURES", "SharpnessFamily"]
