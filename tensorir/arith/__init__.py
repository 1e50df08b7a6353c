"""Integer arithmetic on expressions: simplification, bounds, proofs, and the regions that loops touch.

The analyzer is built in layers, each a class that answers one more kind of question with the answers of the one below:
:mod:`.bounds` (constant bounds and remainders), :mod:`.terms` (terms and their products), :mod:`.division`,
:mod:`.index` (linear forms of expressions), :mod:`.prove` (signs, by symbolic bounds), :mod:`.comparisons`,
:mod:`.rewrite` (canonical forms), :mod:`.analyzer`. :mod:`.region` asks it about loops.

Below all of them, :mod:`.interval` is arithmetic on intervals, and :mod:`.transfer` finds the intervals of expressions;
the verifier and code generators use it, too, where only the ranges of variables are known.

:mod:`.iter_map` reads indices as sums of splits of variables, and :mod:`.iter_solver` finds the variables that such
indices determine, and inverts them. :mod:`.lanes` reads a vector of indices as the index of one lane, whose number is a
variable.
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
