"""Integer arithmetic on expressions: simplification, bounds, proofs, and the regions that loops touch."""

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.interval import EVERYTHING, Interval
from tilewright.tensorir.arith.region import lower_bound_expr, partition_point, region_of, upper_bound_expr

__all__ = [
    "EVERYTHING",
    "Analyzer",
    "Interval",
    "lower_bound_expr",
    "partition_point",
    "region_of",
    "upper_bound_expr",
]
