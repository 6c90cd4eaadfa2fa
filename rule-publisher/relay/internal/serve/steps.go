package serve

import (
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
)

// NextStep leads from what a service is served to what it shall be served without an instant in
// which a route names a cluster that Envoys do not have yet, or no longer have: new clusters and
// their endpoints first, then routes, then the removal of clusters. `last` is true when the step
// reaches the target; otherwise Envoys need a moment before the next one.
func NextStep(served, target Bundle) (step Bundle, last bool, err error) {
	if served == nil {
		return target, true, nil
	}
	added, removed := difference(target, served), difference(served, target)
	if !added && !removed {
		return target, true, nil
	}
	step = Bundle{RouteType: served[RouteType]}
	if !added {
		step[RouteType] = target[RouteType]
	}
	if !added && served[RouteType].Version == target[RouteType].Version {
		return target, true, nil
	}
	for _, t := range []string{ClusterType, EndpointType} {
		union := map[string]types.Resource{}
		for name, r := range served[t].items {
			union[name] = r
		}
		for name, r := range target[t].items {
			union[name] = r
		}
		if step[t], err = stamp(RulesetVersion(target[t].Version), union, served[t]); err != nil {
			return nil, false, err
		}
	}
	return step, step.Same(target), nil
}

// difference tells whether a has clusters that b has not.
func difference(a, b Bundle) bool {
	for name := range a[ClusterType].items {
		if b[ClusterType].items[name] == nil {
			return true
		}
	}
	return false
}
