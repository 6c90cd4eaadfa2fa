"""Types of the optimizer's arrays, by the type of their elements.

A comment beside each array gives its shape, with the axes of layout.py.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]  # indices, counts, and weights in parts of TOTAL
Bools = NDArray[np.bool_]
Index = int | np.intp  # an element of Ints, or an index as a Python int
