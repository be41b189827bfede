"""Fresh draws for every campaign: ``python -m tests.held_out.explore --minutes 4``.

Every campaign runs in rounds of its own seed until its share of the time is over. The seed is
printed, and a row of the table names the seed and the number of its case, from which it is drawn
again. The exit status is 1 where the rules of :func:`tests.held_out.verdicts.broken` are broken.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

import gnjax
from tests.held_out import (
    campaigns,
    inverses,
    preconditioned,
    preconditioners,
    scales,
    unequal,
    verdicts,
    written,
)
from tests.held_out.verdicts import Row

Campaign = Callable[[int, int], list[Row]]


def _clearing(campaign: Campaign) -> Campaign:
    """The campaign with other networks in every round, after which no compiled program is kept."""

    def rows(seed: int, count: int) -> list[Row]:
        answers = campaign(seed, count)
        jax.clear_caches()
        return answers

    return rows


# A campaign, the cases of one round, and its share of the time.
CAMPAIGNS: dict[str, tuple[Campaign, int, float]] = {
    "matrices": (campaigns.matrices, 140, 0.25),
    "factors": (campaigns.factors, 40, 0.1),
    "kroneckers": (campaigns.kroneckers, 40, 0.1),
    "large": (campaigns.large_kroneckers, 4, 0.05),
    "networks": (_clearing(campaigns.random_networks), 54, 0.4),
    "inputs": (_clearing(campaigns.inputs_of_every_type), 24, 0.2),
    "scales": (scales.scales, 64, 0.15),
    "far networks": (_clearing(scales.far_networks), 6, 0.1),
    "unequal": (_clearing(unequal.unequal), 12, 0.2),
    "written": (_clearing(written.written), 15, 0.3),
    "chances": (campaigns.chances, 200, 0.1),
    "preconditioned": (preconditioned.factors, 40, 0.1),
    "preconditioners": (preconditioners.preconditioners, 40, 0.1),
    "smallest": (preconditioners.smallest, 40, 0.05),
    "rows of networks": (_clearing(preconditioned.networks), 18, 0.1),
    "preconditioned chances": (preconditioned.chances, 200, 0.05),
    "inverses": (inverses.of_matrices, 56, 0.1),
    "inverses of factors": (inverses.of_factors, 40, 0.1),
    "inverses of networks": (_clearing(inverses.of_networks), 18, 0.2),
    "estimates": (inverses.estimates, 40, 0.1),
    "raised chances": (preconditioned.raised_chances, 200, 0.05),
}


def main() -> int:
    arguments = _arguments()
    print(f"seed {arguments.seed}: give it with --seed to draw the same cases again", flush=True)
    gnjax.enable_x64()
    rows: list[Row] = []
    shares = sum(CAMPAIGNS[name][2] for name in arguments.campaigns)
    for name in arguments.campaigns:
        run, cases, share = CAMPAIGNS[name]
        found: list[Row] = []
        for more in _rounds(run, cases, arguments, 60 * arguments.minutes * share / shares):
            found += more
            if arguments.out:  # after every round, to keep what is done if something ends it
                arguments.out.mkdir(parents=True, exist_ok=True)
                verdicts.write(found, arguments.out / f"{name}.csv")
        rows += found
        print(f"\n{name}: {len(found)} answers\n{_table(found)}", flush=True)
    if arguments.out:
        _write_widths(rows, arguments.out / "widths.json")
    if arguments.before:
        _compare(arguments.before, arguments.out, arguments.campaigns)
    wrong = verdicts.broken(rows)
    first = {(row.case_class, row.what, row.used, row.source): row for row in reversed(wrong)}
    for row in first.values():
        print(row)
    print(f"{len(wrong)} answers break the rules, of {len(rows)} (seed {arguments.seed})")
    return int(bool(wrong))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--minutes", type=float, default=4.0, help="for all campaigns together")
    parser.add_argument("--cases", type=int, help="of each campaign, whatever time they take")
    parser.add_argument("--out", type=Path, help="a folder for the tables")
    parser.add_argument("--before", type=Path, help="tables of the same seed, to compare widths")
    parser.add_argument("campaigns", nargs="*", default=list(CAMPAIGNS), metavar="campaign")
    arguments = parser.parse_args()
    unknown = set(arguments.campaigns) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"unknown campaigns {sorted(unknown)}; there are {', '.join(CAMPAIGNS)}")
    if arguments.before and not arguments.out:
        parser.error("--before compares with the tables of this run, which need --out")
    return arguments


def _rounds(
    run: Callable[[int, int], list[Row]], cases: int, arguments: argparse.Namespace, seconds: float
) -> Iterator[list[Row]]:
    """Rounds of different seeds, until the time is over or there are enough cases."""
    end, index = time.monotonic() + seconds, 0
    while (
        index * cases < arguments.cases if arguments.cases else index == 0 or time.monotonic() < end
    ):
        yield run(arguments.seed + index, cases)
        index += 1


def _table(rows: list[Row]) -> str:
    lines = ["answers  beside  failed  refused  undecided  resolved  median width  class, quantity"]
    lines += [
        f"{c.answers:7d} {c.violations:7d} {c.failed:7d} {c.refused:8d} {c.undecided:10d} "
        f"{c.resolved:9d} {c.median_width:13.2g}  {c.case_class}, {c.what}"
        for c in verdicts.summary(rows)
    ]
    return "\n".join(lines)


def _compare(before: Path, after: Path, names: list[str]) -> None:
    """Widths over those of an earlier run, where both answers are resolved and right."""
    for name in names:
        print(f"\n{name}: pairs, median width over the earlier one")
        ratios = verdicts.compared_widths(before / f"{name}.csv", after / f"{name}.csv")
        for question, (pairs, median) in ratios.items():
            print(f"{pairs:7d} {median:8.3g}  {question}")


def _write_widths(rows: list[Row], path: Path) -> None:
    """The median width of resolved answers by class and quantity, to compare engines with."""
    widths = {
        f"{c.campaign} / {c.case_class} / {c.what}": c.median_width for c in verdicts.summary(rows)
    }
    path.write_text(json.dumps(widths, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
