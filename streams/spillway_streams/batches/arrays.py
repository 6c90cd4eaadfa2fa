"""Types of numpy arrays. The shape of each array is in the docstring that describes it."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]  # indices into a list of names
Hashes = NDArray[np.uint64]
Records = NDArray[np.void]  # rows with named fields
