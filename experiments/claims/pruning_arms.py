"""What paper A says of figures 1, 14 and 15, by its published code's protocol."""

from __future__ import annotations

CLAIMS = ()
