"""The published table of each figure, and the figure that is drawn of it, each made once."""

from functools import cache

from matplotlib.figure import Figure
from pandas import DataFrame

from figures import catalogue
from reproduction.published import GALLERY, table_of
from sweeps import table


@cache
def published(name: str) -> DataFrame:
    return table.read(table_of(name, GALLERY))


@cache
def drawn(name: str) -> Figure:
    return catalogue.load(name).draw(published(name))
