"""Latency curves: buckets by utilisation, the fit of L(u), class weights (SLATE 4.2, appendix E).

Pure. Capacities are in `capacity`, their combination per service in `model`.
"""
