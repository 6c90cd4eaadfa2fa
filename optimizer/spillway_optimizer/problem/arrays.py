"""Types of the arrays in this package, by the kind of their elements.

The shape of an array is written beside it, as letters of the axes in layout.py.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]  # indices, counts, and weights in parts of TOTAL
Bools = NDArray[np.bool_]
Index = int | np.intp  # one element of Ints, or its value
