"""HTML in which every text is escaped where it is put in, unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Html(str):
    """HTML made of texts that are escaped."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str) -> Html:
    """An element with its content; ``class_`` stands for ``class``, ``aria_label`` for a dash."""
    names = (name.rstrip("_").replace("_", "-") for name in attributes)
    pairs = zip(names, attributes.values(), strict=True)
    inside = "".join(f' {name}="{html.escape(value)}"' for name, value in pairs)
    return Html(f"<{tag}{inside}>{joined(content)}</{tag}>")


def picture(**attributes: str) -> Html:
    """An ``img``, which is the element without an end."""
    return Html(element("img", **attributes).removesuffix("</img>"))


def joined(content: Iterable[str], between: str = "") -> Html:
    """HTML as it is, and texts escaped."""
    parts = (part if isinstance(part, Html) else html.escape(part) for part in content)
    return Html(between.join(parts))
