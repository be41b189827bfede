"""The evidence for a number: each error says how it is known; a certificate collects errors.

There are four kinds of evidence, from the strongest to the weakest.

- ``proved``: a theorem with all of its constants, rounding included.
- ``probable``: the statement is false with at most the stated probability, over random numbers
  that this library draws itself.
- ``measured``: an estimate with a safety factor, such as the rounding of a network. No probability
  is claimed for it.
- ``unknown``: nobody has stated it. The error is then infinite, never zero.

The weakest part names the whole, and the probabilities of failure of all parts add up.
``docs/reference/evidence.md`` explains these words and those around them, for who changes the code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gnjax.numerics.answers.result import Result

PROVED, PROBABLE, MEASURED, UNKNOWN = "proved", "probable", "measured", "unknown"
KINDS = (PROVED, PROBABLE, MEASURED, UNKNOWN)


@dataclass(frozen=True)
class Error(Result):
    """A bound on how far a number can be from the truth, and what the bound rests on.

    Attributes:
      value: the bound, in the units of the number; infinite where it is unknown.
      kind: "proved", "probable", "measured" or "unknown".
      failure: the probability that the bound does not hold, for a probable one.
      reason: where the error comes from, in plain words, such as "rounding of the network".

    >>> rounding = gnjax.Error(1e-12, "measured", reason="rounding of the network")
    >>> total = rounding + gnjax.Error(1e-13, "proved")
    >>> total.kind, total.value < 1.2e-12
    ('measured', True)
    """

    value: float
    kind: str = PROVED
    failure: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse another kind, a negative error, a failure beyond 1, and a finite unknown error."""
        if self.kind not in KINDS:
            msg = f"kind={self.kind!r} is not one of {', '.join(KINDS)}"
            raise ValueError(msg)
        if not self.value >= 0 or not 0 <= self.failure <= 1:
            msg = f"an error is not negative and fails with a probability, got {self!r}"
            raise ValueError(msg)
        if self.kind == UNKNOWN and self.value != math.inf:
            msg = "an unknown error is infinite: there is no number to trust"
            raise ValueError(msg)

    def __add__(self, other: Error) -> Error:
        """The bound on the sum of both errors, with the weaker kind of evidence and its reasons.

        The chances of failure add up. A proved error of 0, of an exact number, changes nothing.
        """
        for bound, exact in ((self, other), (other, self)):
            if exact.value == 0 and exact.failure == 0 and exact.kind == PROVED:
                return bound
        kind = weakest(self.kind, other.kind)
        reasons = (error.reason for error in (self, other) if error.kind == kind and error.reason)
        return Error(
            self.value + other.value,
            kind,
            min(1.0, self.failure + other.failure),
            "; ".join(dict.fromkeys(reasons)),  # each reason once
        )

    def scaled(self, factor: float) -> Error:
        """The error of ``factor`` times the number, with the same evidence."""
        return self if self.kind == UNKNOWN else replace(self, value=self.value * abs(factor))

    def to(self, value: float) -> Error:
        """An error of size ``value`` with the evidence of this one; an unknown one stays as it is.

        The caller must know that the new bound follows from the old one.
        """
        return self if self.kind == UNKNOWN else replace(self, value=value)


def unknown(reason: str) -> Error:
    """The error of something that nobody has stated."""
    return Error(math.inf, UNKNOWN, 0.0, reason)


def weakest(*kinds: str) -> str:
    """The kind of a statement that needs all of its parts: the weakest among them."""
    return max(kinds, key=KINDS.index, default=PROVED)


@dataclass(frozen=True, repr=False)
class Certificate(Result):
    """What an answer rests on: the errors and chances that it is made of.

    Attributes:
      parts: every error that enters the answer, with its kind, its probability of failure and its
        reason; facts that the answer needs, such as symmetry, are parts with an error of 0.

    >>> kappa = gnjax.condition_number(np.diag([4.0, 2.0, 1.0]))
    >>> kappa.certificate.kind, [part.kind for part in kappa.certificate.parts]
    ('measured', ['measured', 'proved'])
    >>> print(kappa.certificate)
    measured (LAPACK's rounding, by a constant found in practice)
    """

    _rows = ("parts",)
    _also = ("kind", "failure")

    parts: tuple[Error, ...] = ()

    @property
    def kind(self) -> str:
        """The weakest kind among the parts."""
        return weakest(*(part.kind for part in self.parts))

    @property
    def failure(self) -> float:
        """The probability that some probable part fails: the sum over the parts, at most 1."""
        return min(1.0, sum(part.failure for part in self.parts))

    @property
    def confidence(self) -> float:
        """The probability that is claimed: 1 where all is proved, nan where none is claimed.

        A measured part has no probability, and an unknown one has no meaning.
        """
        return 1.0 - self.failure if self.kind in (PROVED, PROBABLE) else math.nan

    def __add__(self, other: Certificate) -> Certificate:
        """The certificate of an answer that needs both. Chances of failure add up."""
        return certificate(*self.parts, *other.parts)

    @property
    def brief(self) -> str:
        """The kind in a word, and the probability of failure where there is one."""
        text = "uncertified" if self.kind == UNKNOWN else self.kind
        if self.failure:
            text += f", fails with probability below {_rounded_up(self.failure)}"
        return text

    def __str__(self) -> str:
        """The kind, the chance of failure, and the reasons of the parts that decide the kind."""
        parts = (p.reason for p in self.parts if p.kind == self.kind and p.reason)
        reasons = "; ".join(dict.fromkeys(parts))
        return f"{self.brief} ({reasons})" if reasons else self.brief


def certificate(*errors: Error) -> Certificate:
    """The certificate of an answer that needs every one of the errors to hold.

    Of equal errors without a chance of failure one is kept. Equal errors that may fail are of
    separate random draws, and all are kept, so that their chances add up.
    """
    parts: list[Error] = []
    for error in errors:
        if error.failure or error not in parts:
            parts.append(error)
    return Certificate(tuple(parts))


def _rounded_up(probability: float) -> str:
    """A probability of failure in two digits, rounded up, so that no smaller one is claimed."""
    scale = 10.0 ** (math.floor(math.log10(probability)) - 1)  # of the second digit
    # A part in 1e12 less, so that a number of two digits is not rounded up to the next one.
    return f"{min(1.0, math.ceil(probability / scale * (1 - 1e-12)) * scale):.2g}"
