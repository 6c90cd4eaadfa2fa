"""One service as a model: weights, capacities and curves together.

Pure. The job `curves` owns the state and stores the results.
"""
