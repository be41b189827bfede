"""One thing wrong with each model of the zoo, and what the sentence that a user then reads says.

A mistake is (call, words): the call, given the function that makes the case, is refused by a
message with these words.
"""

from __future__ import annotations

from functools import cache

import gnjax


@cache
def case_of(made):
    return made()


def wrong(made, call=gnjax.gauss_newton, *, model=lambda model: model, **changed):
    """The call of a case with something changed; ``model`` and ``x`` may be functions of its own.

    An option that is ``...`` is left out.
    """
    case = case_of(made)
    x = changed.pop("x", case.x)
    options = {name: v for name, v in {**case.options, **changed}.items() if v is not ...}
    return call(model(case.model), x(case.x) if callable(x) else x, **options)


def ending_in(last):
    """The same model with one function more at its end."""

    def changed(model):
        apply, params = gnjax.functional(model)
        return lambda p, x: last(apply(p, x)), params

    return changed
