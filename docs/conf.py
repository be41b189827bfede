"""How Sphinx builds the site: offline, from this checkout, with every doubt an error (-W -n)."""

import re
import shutil
import sys
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

project = "gnjax"
author = "the gnjax authors"
version = release = installed("gnjax")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",  # beside this file
]
autosummary_generate = False  # its tables have a line for each name; the names stand below them
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "history"]  # CHANGELOG leads to the latter

html_theme = "furo"
html_title = f"gnjax {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False

# "values, errors: what they are" names two attributes, which Sphinx would take for type and name.
napoleon_custom_sections = [("Attributes", "params_style")]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Model", "PyTree", "InputTree")}
autodoc_preserve_defaults = True

# Types of other libraries: their inventories would have to be fetched.
nitpick_ignore_regex = [(r"py:.*", r"(?!gnjax\b).*")]
nitpick_ignore = [  # of annotations, classes that are no public names
    ("py:class", f"gnjax.{name}")
    for name in (
        "networks.arguments.batches.Batches",
        "numerics.rank_bound.RankBound",
        "networks.network.Network",
        "papers.training.minibatch.Module",
        "papers.closed_form.layer_weights.Layers",
        "papers.closed_form.layer_weights.CovarianceRoot",
        "papers.closed_form.formation.ProductErrors",
        "operators.metrics.metric.Block",
        "operators.metrics.scaling.Scaling",
        "operators.of_networks.cross.MeasuredJacobian",
        "operators.curvature._Options",
        "spectra.displays.Lines",
    )
]


def setup(app: Sphinx) -> None:
    app.connect("source-read", _with_its_own_pages)
    app.connect("doctree-read", _without_an_empty_line)
    app.connect("builder-inited", _write_pages)
    app.connect("build-finished", _copy_sentences)
    app.connect("autodoc-process-signature", _with_aliases)
    app.connect("autodoc-process-docstring", _as_written, priority=400)  # before napoleon


def _write_pages(app: Sphinx) -> None:
    import figure_pages  # beside this file, which is on the path only now
    import gallery_pages

    figure_pages.write(Path(app.srcdir) / "reference" / "figures")
    gallery_pages.write(Path(app.srcdir) / "gallery")


def _copy_sentences(app: Sphinx, error: Exception | None) -> None:
    """The table of all sentences, a page of HTML of its own, beside the findings."""
    place = Path("reference") / "figures" / "sentences.html"
    if error is None and (app.outdir / place).parent.is_dir():
        shutil.copyfile(Path(app.srcdir) / place, app.outdir / place)


def _with_its_own_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to the repository's findings, which lead to the pages that the site has of them."""
    folder = "../" * page.count("/") + "reference/figures/"
    text = re.sub(r"\]\((?:\.\./)+figures/FINDINGS\.md\)", rf"]({folder}findings.md)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+figures/findings/", rf"]({folder}", text)


def _without_an_empty_line(app: Sphinx, doctree: nodes.document) -> None:
    """An example in a page of Markdown ends with its last line, as one in a docstring does."""
    for block in doctree.findall(nodes.literal_block):
        block.rawsource = block.astext().rstrip("\n")
        block.children[:] = [nodes.Text(block.rawsource)]


def _as_written(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Formulas in docstrings are plain text: |x| is a norm, x_ no link, "d." no list.

    Examples stay as they are: paragraphs that begin with ">>>".
    """
    paragraphs = re.split(r"(\n\s*\n)", "\n".join(lines))
    lines[:] = "".join(
        p if p.lstrip().startswith(">>>") else _escaped(p) for p in paragraphs
    ).split("\n")


def _escaped(text: str) -> str:
    """Text outside of double backquotes with its marks escaped."""
    parts = text.split("``")
    parts[::2] = [
        re.sub(r"([|*]|_(?!\w)|(?<=: \w)\.$)", r"\\\1", part, flags=re.MULTILINE)
        for part in parts[::2]
    ]
    return "``".join(parts)


def _with_aliases(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """The alias alone, where Sphinx shows how it keeps one inside a union."""
    alias = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return (
        None if signature is None else alias.sub(r"\1", signature),
        None if returns is None else alias.sub(r"\1", returns),
    )
