package resources

import (
	"errors"
	"fmt"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
)

// target is a cluster that a route configuration names, and the host and route that name it first.
type target struct{ cluster, host, route string }

// Consistent returns nil when every cluster named by a route is served, and clusters and endpoint
// assignments match one to one. Otherwise the error lists every violation.
func (b Bundle) Consistent() error {
	var problems []error
	clusters, assignments := b[ClusterType].items, b[EndpointType].items
	for _, c := range clusters {
		if assignments.Find(c.Name) == nil {
			problems = append(problems, fmt.Errorf("cluster %q has no endpoint assignment", c.Name))
		}
	}
	for _, a := range assignments {
		if clusters.Find(a.Name) == nil {
			problems = append(problems, fmt.Errorf("endpoint assignment %q has no cluster", a.Name))
		}
	}
	for _, config := range b[RouteType].items {
		for _, to := range config.targets {
			if clusters.Find(to.cluster) == nil && to.cluster != names.XdsInboundCluster {
				problems = append(problems, fmt.Errorf("%s, host %q, route %q: cluster %q is not served",
					config.Name, to.host, to.route, to.cluster))
			}
		}
	}
	return errors.Join(problems...)
}

// targets returns the clusters that a route configuration names, each once.
func targets(config *route.RouteConfiguration) (out []target) {
	seen := map[string]bool{}
	for _, host := range config.GetVirtualHosts() {
		for _, r := range host.GetRoutes() {
			for _, cluster := range clustersOf(r.GetRoute()) {
				if !seen[cluster] {
					seen[cluster] = true
					out = append(out, target{cluster, host.GetName(), r.GetName()})
				}
			}
		}
	}
	return out
}

func clustersOf(action *route.RouteAction) (out []string) {
	if single := action.GetCluster(); single != "" {
		return []string{single}
	}
	for _, w := range action.GetWeightedClusters().GetClusters() {
		out = append(out, w.GetName())
	}
	return out
}
