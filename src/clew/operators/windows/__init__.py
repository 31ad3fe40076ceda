"""Windows: count, value (on the clock or anchored at tuples), landmark and latch."""

from __future__ import annotations

import pyarrow as pa

from clew.expressions.aggregates import AggregateCall
from clew.network.boxes import CountWindow, Landmark, Latch, WindowKind
from clew.operators.base import Kernel
from clew.operators.windows.anchored import AnchoredKernel
from clew.operators.windows.clock import ClockKernel
from clew.operators.windows.count import CountKernel
from clew.operators.windows.panes import PaneKernel, takes_panes
from clew.operators.windows.prefix import PrefixKernel


def window_kernel(
    window: WindowKind, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
) -> Kernel:
    """The kernel of a window over rows of `schema`, in which the arguments of the calls are columns.

    It emits the columns `by`, then one column for each call.
    """
    if isinstance(window, CountWindow):
        return CountKernel(window, by, calls, schema)
    if isinstance(window, (Landmark, Latch)):
        return PrefixKernel(window, by, calls, schema)
    if window.anchor == "tuple":
        return AnchoredKernel(window, by, calls, schema)
    if takes_panes(window, calls, schema):
        return PaneKernel(window, by, calls, schema)
    return ClockKernel(window, by, calls, schema)


__all__ = ["window_kernel"]
