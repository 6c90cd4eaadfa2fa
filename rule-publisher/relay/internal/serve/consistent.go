package serve

import (
	"errors"
	"fmt"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
)

// Consistent is nil when every cluster that a route names is served, and clusters and endpoint
// assignments match one to one; the error lists what is not.
func (b Bundle) Consistent() error {
	var problems []error
	clusters, assignments := b[ClusterType].items, b[EndpointType].items
	for _, name := range b[ClusterType].Names() {
		if assignments[name] == nil {
			problems = append(problems, fmt.Errorf("cluster %q has no endpoint assignment", name))
		}
	}
	for _, name := range b[EndpointType].Names() {
		if clusters[name] == nil {
			problems = append(problems, fmt.Errorf("endpoint assignment %q has no cluster", name))
		}
	}
	for _, name := range b[RouteType].Names() {
		config, ok := b[RouteType].items[name].(*route.RouteConfiguration)
		if !ok {
			problems = append(problems, fmt.Errorf("route configuration %q is a %T", name, b[RouteType].items[name]))
			continue
		}
		for _, host := range config.GetVirtualHosts() {
			for _, r := range host.GetRoutes() {
				for _, target := range targets(r) {
					if target != names.XdsInboundCluster && clusters[target] == nil {
						problems = append(problems, fmt.Errorf("%s, host %q, route %q: cluster %q is not served",
							name, host.GetName(), r.GetName(), target))
					}
				}
			}
		}
	}
	return errors.Join(problems...)
}

func targets(r *route.Route) []string {
	action := r.GetRoute()
	if single := action.GetCluster(); single != "" {
		return []string{single}
	}
	var out []string
	for _, w := range action.GetWeightedClusters().GetClusters() {
		out = append(out, w.GetName())
	}
	return out
}
