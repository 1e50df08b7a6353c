"""Numbers through the passes: which pass, operator and element first leaves the tolerance, and by how much."""

from tilewright.runtime.numeric.check import NumericCheck as NumericCheck
from tilewright.runtime.numeric.compare import Tolerance as Tolerance
from tilewright.runtime.numeric.evaluate import random_inputs as random_inputs
from tilewright.runtime.numeric.failure import Failure as Failure
from tilewright.runtime.numeric.failure import NumericError as NumericError
from tilewright.runtime.numeric.minimize import Minimized as Minimized
from tilewright.runtime.numeric.minimize import MinimizeError as MinimizeError
from tilewright.runtime.numeric.minimize import minimize as minimize
from tilewright.runtime.numeric.minimize import minimize_with_inputs as minimize_with_inputs
from tilewright.runtime.numeric.ulps import scaled_error as scaled_error
from tilewright.runtime.numeric.ulps import ulp_distance as ulp_distance
from tilewright.runtime.numeric.ulps import ulp_error as ulp_error
from tilewright.runtime.numeric.ulps import unit as unit
