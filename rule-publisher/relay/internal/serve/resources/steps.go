package resources

// NextStep returns the next bundle on the way from what a service is served to its target. At no
// instant may a route name a cluster that Envoys do not have yet, or no longer have. The order is
// therefore new clusters and their endpoints, then routes, then the removal of clusters. `last` is
// true when the step reaches the target; otherwise Envoys need some time before the next step.
func NextStep(served, target Bundle) (step Bundle, last bool) {
	if served == nil {
		return target, true
	}
	added, removed := difference(target, served), difference(served, target)
	if !added && !removed {
		return target, true
	}
	step = Bundle{RouteType: served[RouteType]}
	if !added {
		step[RouteType] = target[RouteType]
	}
	if !added && served[RouteType].Version == target[RouteType].Version {
		return target, true
	}
	for _, t := range []string{ClusterType, EndpointType} {
		step[t] = stamp(RulesetVersion(target[t].Version), served[t].items.Union(target[t].items), served[t])
	}
	return step, step.Same(target)
}

// difference reports whether `a` has clusters that `b` does not have.
func difference(a, b Bundle) bool {
	for _, c := range a[ClusterType].items {
		if b[ClusterType].items.Find(c.Name) == nil {
			return true
		}
	}
	return false
}
