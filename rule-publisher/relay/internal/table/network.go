package table

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"spillway.dev/contracts/spillwayv1"
)

// Place is a service in a cluster.
type Place struct{ Service, Cluster string }

// Endpoint is an endpoint of a service: the address on which its pod's proxy listens, and its zone,
// or "" when the zone is unknown.
type Endpoint struct {
	Address netip.AddrPort
	Zone    string
}

// Compare orders endpoints by zone, then by address.
func (e Endpoint) Compare(other Endpoint) int {
	return cmp.Or(strings.Compare(e.Zone, other.Zone), e.Address.Compare(other.Address))
}

// Found is what sources have found beyond the declared addresses.
type Found map[Place][]Endpoint

// Readiness is how many pods a service has in a cluster, and how many of them are ready.
type Readiness struct{ Pods, Ready uint32 }

// Tier is one cluster's endpoints of a service, sorted.
type Tier struct {
	Cluster   string
	Region    string
	RTT       time.Duration // from the relay's own cluster
	Endpoints []Endpoint
}

// Network is what can be reached from one cluster: the tiers of each service, nearest first.
type Network struct {
	Cluster  string
	Clusters []string // of the topology, sorted by name
	services map[string][]Tier
	reports  map[string]bool     // services whose backends report their load
	handling map[string]Handling // of the services that the topology declares
	// Unreachable says which endpoints cannot be routed to, and why.
	Unreachable []string
}

// Services returns the services, sorted by name.
func (n *Network) Services() []string {
	services := make([]string, 0, len(n.services))
	for service := range n.services {
		services = append(services, service)
	}
	slices.Sort(services)
	return services
}

// Tiers returns the tiers of the service, nearest first: its own cluster, then by round-trip time,
// then by name.
func (n *Network) Tiers(service string) []Tier {
	return n.services[service]
}

// Reaches reports whether the service has endpoints in the cluster.
func (n *Network) Reaches(place Place) bool {
	return slices.ContainsFunc(n.services[place.Service], func(t Tier) bool { return t.Cluster == place.Cluster })
}

// Handling returns how requests for the service are treated.
func (n *Network) Handling(service string) Handling {
	if handling, declared := n.handling[service]; declared {
		return handling
	}
	return unhandled
}

// ReportsLoad reports whether each response of the service's backends contains their load.
func (n *Network) ReportsLoad(service string) bool { return n.reports[service] }

// NewNetwork joins the topology with the endpoints as seen from the cluster: the declared ones, and
// those that sources found. A declared place takes precedence over the same place in Kubernetes.
// The error lists everything that is wrong with the declarations, each with its key, the value and
// what is allowed. What sources found is not an error: endpoints that cannot be used are skipped
// and listed in Unreachable.
func NewNetwork(cluster string, topology *spillwayv1.Topology, endpoints *spillwayv1.Endpoints, found Found) (*Network, error) {
	regions, problems := checkTopology(cluster, topology)
	declared, errs := checkEndpoints(cluster, endpoints, regions)
	if err := errors.Join(append(problems, errs...)...); err != nil {
		return nil, err
	}
	network := &Network{Cluster: cluster, Clusters: slices.Sorted(maps.Keys(regions)), services: map[string][]Tier{}, reports: map[string]bool{}, handling: map[string]Handling{}}
	for _, service := range topology.GetServices() {
		network.reports[service.GetName()] = service.GetLoadReport() == loadReportORCA
		network.handling[service.GetName()], _ = parseHandling("", service) // checked above
	}
	rtts := roundTrips(cluster, topology)
	found, network.Unreachable = respelled(declared, found)
	for place, addresses := range merge(declared, found) {
		rtt, linked := rtts[place.Cluster]
		if !linked {
			network.Unreachable = append(network.Unreachable,
				fmt.Sprintf("%s in %s: the topology has no link from %s", place.Service, place.Cluster, cluster))
		} else if len(addresses) > 0 {
			tier := Tier{Cluster: place.Cluster, Region: regions[place.Cluster], RTT: rtt, Endpoints: addresses}
			network.services[place.Service] = append(network.services[place.Service], tier)
		}
	}
	slices.Sort(network.Unreachable)
	for _, tiers := range network.services {
		slices.SortFunc(tiers, func(a, b Tier) int { return compareTiers(cluster, a, b) })
	}
	return network, nil
}

// merge adds the found addresses of its names to each declared place. Places that are not declared
// are those found in Kubernetes.
func merge(declared map[Place]declaration, found Found) Found {
	merged := Found{}
	for place, addresses := range found {
		if d, ok := declared[place]; !ok || d.named {
			merged[place] = addresses
		}
	}
	for place, d := range declared {
		all := append(slices.Clone(d.addresses), merged[place]...)
		slices.SortFunc(all, Endpoint.Compare)
		merged[place] = slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Address == b.Address })
	}
	return merged
}

// compareTiers orders the own cluster first, then by round-trip time, then by name.
func compareTiers(own string, a, b Tier) int {
	notOwn := func(t Tier) int {
		if t.Cluster == own {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(notOwn(a), notOwn(b)), cmp.Compare(a.RTT, b.RTT), strings.Compare(a.Cluster, b.Cluster))
}

// roundTrips returns the round-trip time from the cluster to each cluster that it has a link to,
// and 0 for itself.
func roundTrips(cluster string, topology *spillwayv1.Topology) map[string]time.Duration {
	rtts := map[string]time.Duration{cluster: 0}
	for _, link := range topology.GetLinks() {
		if link.GetSourceCluster() == cluster && link.GetDestinationCluster() != cluster {
			rtts[link.GetDestinationCluster()] = time.Duration(link.GetRttMs() * float64(time.Millisecond))
		}
	}
	return rtts
}
