package control

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/table"
)

// service is one source service: what its Envoys have, and what they have accepted and refused.
type service struct {
	name    string
	table   table.Table      // what the routes were built from, with the version in which it last changed
	policy  string           // policy of that version
	network *table.Network   // what the clusters were chosen from
	called  map[string]bool  // services that a rule has ever named as its destination
	wanted  resources.Bundle // what it shall be served unless an Envoy refuses it
	target  resources.Bundle // what it shall be served now
	served  resources.Bundle // what it is served
	pace    pace
	bridges map[string]bridge // by type: the last
	// By resource type. `accepted` has the sets that an Envoy accepted and none refused, newest
	// first; `refused` has the versions that an Envoy refused.
	accepted map[string][]resources.Set
	refused  map[string][]string
	adapted  []string          // what table.Build last adapted
	envoys   map[string]*proxy // connected Envoys, by node id
	left     time.Time         // when the last Envoy left
	// elects tells which Envoys belong to it when it is a group on trial; nil: all others.
	elects func(envoy string) bool
}

// proxy is one connected Envoy.
type proxy struct {
	streams int
	holds   string // version of the routes that it accepted last
	inForce uint64 // ruleset version last reported to be in force there
}

func newService(name string) *service {
	return &service{name: name, bridges: map[string]bridge{}, accepted: map[string][]resources.Set{},
		refused: map[string][]string{}, called: map[string]bool{}, envoys: map[string]*proxy{}}
}

// want computes what the service shall be served from its table. A table with unchanged rules keeps
// the previous version and input window, because these name the ruleset that caused the weights. A
// ruleset that changes nothing for a service therefore changes nothing at its Envoys. A change of
// policy counts as a change, because the version tells which policy routed a request.
func (s *service) want(t table.Table, policy string, network *table.Network, backends resources.Bundle) error {
	same := s.wanted != nil && policy == s.policy && sameRules(s.table, t)
	if same && network == s.network {
		return nil
	}
	routes := s.wanted[resources.RouteType]
	if !same {
		made, err := buildRoutes(t, routes)
		if err != nil {
			return err
		}
		s.table, s.policy, routes = t, policy, made
	}
	names := s.clusters(t, network)
	wanted := resources.Bundle{resources.RouteType: routes}
	for _, typeURL := range []string{resources.ClusterType, resources.EndpointType} {
		wanted[typeURL] = backends[typeURL].Only(t.Version, names, s.wanted[typeURL])
	}
	s.network, s.wanted = network, wanted
	return nil
}

func buildRoutes(t table.Table, before resources.Set) (resources.Set, error) {
	inbound, err := envoy.InboundRoutes(t)
	if err != nil {
		return resources.Set{}, fmt.Errorf("inbound routes of %s: %w", t.Service, err)
	}
	outbound, err := envoy.OutboundRoutes(t)
	if err != nil {
		return resources.Set{}, fmt.Errorf("outbound routes of %s: %w", t.Service, err)
	}
	return resources.NewSet(t.Version, []*route.RouteConfiguration{inbound, outbound, envoy.ReadyRoutes()}, before)
}

// clusters returns the names of the clusters that the service needs. For a destination that it
// calls, these are the clusters with endpoints everywhere; for another, only the nearest, whose
// endpoints fail over to the others. A destination that was called once stays in the list, so that
// a rule that comes and goes does not open and close connections.
func (s *service) clusters(t table.Table, network *table.Network) (names []string) {
	for _, host := range t.Hosts {
		if len(host.Routes) > 0 {
			s.called[host.Service] = true
		}
		if !s.called[host.Service] {
			for _, w := range host.Fallback.Weights {
				names = append(names, envoy.ClusterName(host.Service, w.Cluster, host.Fallback.Without))
			}
			continue
		}
		for _, without := range narrowed(host) {
			allowed, _ := table.Except(network.Tiers(host.Service), without)
			for _, tier := range allowed {
				names = append(names, envoy.ClusterName(host.Service, tier.Cluster, without))
			}
		}
	}
	return names
}

// narrowed returns the sets of clusters that the ways to the host leave out, each set once.
func narrowed(host table.Host) [][]string {
	sets := [][]string{host.Fallback.Without}
	for _, r := range host.Routes {
		if !slices.ContainsFunc(sets, func(set []string) bool { return slices.Equal(set, r.Without) }) {
			sets = append(sets, r.Without)
		}
	}
	return sets
}

// sameRules reports whether both tables make proxies do the same. Version 0, the fallback, is never
// the same as a ruleset.
func sameRules(a, b table.Table) bool {
	if (a.Version == 0) != (b.Version == 0) {
		return false
	}
	b.Version, b.InputWindow, b.Adapted = a.Version, a.InputWindow, a.Adapted
	return reflect.DeepEqual(a, b)
}

// buildBackends builds the clusters and endpoints, which are the same for every source service.
func buildBackends(network *table.Network, denials table.Denials, version uint64, before resources.Bundle) (resources.Bundle, error) {
	clusters, assignments := envoy.Backends(network, denials)
	clusterSet, err := resources.NewSet(version, clusters, before[resources.ClusterType])
	if err != nil {
		return nil, err
	}
	endpointSet, err := resources.NewSet(version, assignments, before[resources.EndpointType])
	if err != nil {
		return nil, err
	}
	return resources.Bundle{resources.ClusterType: clusterSet, resources.EndpointType: endpointSet}, nil
}
