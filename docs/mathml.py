"""Formulas as MathML, which browsers set by themselves: no script is fetched for them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def spaced(formula: str, *, as_block: bool = False) -> str:
    """A formula as MathML, with a thin space behind the name of a function, as in "rank G"."""
    text = tex2mathml(formula, as_block=as_block)
    return text.replace("<mo>&ApplyFunction;</mo>", '<mspace width="0.1667em"></mspace>')


def _inline(translator: Any, node: nodes.Node) -> None:
    translator.body.append(spaced(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.Node) -> None:
    translator.body.append(f"<div>{spaced(node.astext(), as_block=True)}</div>")
    raise nodes.SkipNode
