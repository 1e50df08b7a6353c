"""Integer arithmetic on expressions: simplification, bounds, proofs, and the regions that loops touch.

The analyzer is built in floors, each a class that answers one more kind of question with what the one below answers:
:mod:`.bounds` (constant bounds and remainders), :mod:`.terms` (terms and their products), :mod:`.division`,
:mod:`.index` (linear forms of expressions), :mod:`.prove` (signs, by symbolic bounds), :mod:`.comparisons`,
:mod:`.rewrite` (canonical forms), :mod:`.analyzer`. :mod:`.region` asks it about loops.

Below all of them, :mod:`.interval` is arithmetic on intervals, and :mod:`.transfer` finds those of expressions: also
where only the ranges of variables are known, as in the verifier and in code generators.

:mod:`.iter_map` reads indices as sums of splits of variables, and :mod:`.iter_solver` says what such indices determine,
and inverts them.
"""

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
