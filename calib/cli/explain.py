"""Where Q/DQ pairs stand and why, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calib.graph import Explanation, LeftFloat, Pair
from calib.report.text import shorten, visible

__all__ = ["print_explanation", "print_kept"]

_LOG_WIDTH = 160
_LONGEST_NAME = 48
_MOST_NODES = 3


def print_explanation(explanation: Explanation) -> None:
    """Prints every pair and every node left in float on standard output, with the reasons.

    Args:
        explanation: What was placed and what was left.
    """
    _print(_tables(explanation))


def print_kept(kept: Sequence[LeftFloat]) -> None:
    """Prints every node that stays in float32 where the rest is float16, with the reasons.

    Args:
        kept: The nodes.
    """
    rows = [(left.op, _name(left.node), visible(left.reason)) for left in kept]
    _print([_table("In float32", ("Operator", "Node", "Reason"), rows)])


def _print(tables: Iterable[Table]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _LOG_WIDTH)
    for table in tables:
        if table.row_count:
            console.print(table)
            console.print()


def _tables(explanation: Explanation) -> Iterable[Table]:
    yield _table(
        "Q/DQ pairs",
        ("Tensor", "Scale", "amax", "Rule", "Read by"),
        [
            (_name(pair.tensor), _scale(pair), f"{pair.amax:.4g}", pair.rule, _names(pair.readers))
            for pair in explanation.pairs
        ],
    )
    yield _table(
        "Tensors with one scale",
        ("Scale", "Tensors and their own scales"),
        [
            (f"{group.scale:.6g}", ", ".join(map(_own, group.tensors, group.own)))
            for group in explanation.shared
        ],
    )
    yield _table(
        "Left in float, though INT8 has them",
        ("Operator", "Node", "Reason"),
        [(left.op, _name(left.node), visible(left.reason)) for left in explanation.left_float],
    )
    yield _table(
        "Without pairs",
        ("Operator", "Nodes", "Reason", "For one"),
        [
            (visible(group.op), str(group.count), visible(group.reason), _names(group.nodes))
            for group in explanation.float_groups
        ],
    )
    yield _table(
        "Subgraphs, all in float",
        ("Operator", "Node", "Nodes inside", "With a weight"),
        [(sub.op, _name(sub.node), str(sub.count), str(sub.weighted)) for sub in explanation.subgraphs],
    )


def _table(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=Text(title, "bold"), box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.title_justify = "left"
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _scale(pair: Pair) -> str:
    return f"{pair.scale:.6g}" if pair.own_scale is None else f"{pair.scale:.6g} (own {pair.own_scale:.6g})"


def _own(tensor: str, scale: float) -> str:
    return f"{_name(tensor)} {scale:.6g}"


def _name(text: str) -> str:
    return shorten(visible(text), _LONGEST_NAME)


def _names(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MOST_NODES
    shown = ", ".join(map(_name, nodes[:_MOST_NODES]))
    return f"{shown} and {more} more" if more > 0 else shown
