"""The model of one service: class weights, capacities and curves together.

Pure. The job `curves` owns the state and stores the results.
"""
