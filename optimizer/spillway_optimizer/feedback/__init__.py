"""Policies without a model: weights follow from what callers see of each destination.

L3 (Kostić et al., L3: latency-aware load balancing in multi-cluster service mesh) and C3 (Suresh et
al., NSDI 2015) as the L3 paper adapts it. No file here knows servers or clocks.
"""
