"""The questions about networks that people train, by both tools."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import real_networks


@pytest.mark.slow
@pytest.mark.parametrize(("question", "apart"), [("sharpness", 0.01), ("trace", 0.3)])
def test_both_tools_answer_the_same_question(question, apart):
    with jax.enable_x64(False):
        ours, plain = (
            real_networks.asked("lstm", question, by_hand)["values"] for by_hand in (False, True)
        )
    np.testing.assert_allclose(ours, plain, rtol=apart)


def test_there_is_a_network_for_every_size_that_is_said():
    assert list(real_networks.NETWORKS) == list(real_networks._SIZES)
