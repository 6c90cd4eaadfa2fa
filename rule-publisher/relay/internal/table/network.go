package table

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

// Tier is one cluster's endpoints of a service.
type Tier struct {
	Cluster   string
	Region    string
	RTT       time.Duration // from the relay's own cluster
	Endpoints []netip.AddrPort
}

// Network is what can be reached from one cluster: per service its tiers, nearest first.
type Network struct {
	Cluster  string
	services map[string][]Tier
	// Unreachable says which endpoints cannot be routed to, and why.
	Unreachable []string
}

// Services in order of name.
func (n *Network) Services() []string {
	services := make([]string, 0, len(n.services))
	for service := range n.services {
		services = append(services, service)
	}
	slices.Sort(services)
	return services
}

// Tiers of the service, nearest first: its own cluster, then by round-trip time, then by name.
func (n *Network) Tiers(service string) []Tier {
	return n.services[service]
}

// NewNetwork joins the topology with the endpoints as seen from the cluster. The error lists
// everything that is wrong, each with its key, the value and what is allowed.
func NewNetwork(cluster string, topology *spillwayv1.Topology, endpoints *spillwayv1.Endpoints) (*Network, error) {
	regions, problems := checkTopology(topology)
	allowed := allowedClusters(topology)
	if _, ok := regions[cluster]; !ok {
		problems = append(problems, fmt.Errorf("topology clusters: own cluster %q is missing; clusters: %s", cluster, allowed))
	}
	if endpoints.GetCluster() != cluster {
		problems = append(problems, fmt.Errorf("endpoints cluster: %q; these must be the endpoints as seen from %q",
			endpoints.GetCluster(), cluster))
	}
	network := &Network{Cluster: cluster, services: map[string][]Tier{}}
	rtts := roundTrips(cluster, topology)
	seen := map[[2]string]bool{}
	for i, entry := range endpoints.GetServices() {
		key := fmt.Sprintf("endpoints services[%d]", i)
		problems = append(problems, checkEntry(key, entry, regions, allowed, seen)...)
		addresses, errs := parseAddresses(key, entry.GetAddresses())
		problems = append(problems, errs...)
		rtt, linked := rtts[entry.GetCluster()]
		if !linked {
			network.Unreachable = append(network.Unreachable,
				fmt.Sprintf("%s in %s: the topology has no link from %s", entry.GetService(), entry.GetCluster(), cluster))
			continue
		}
		if len(addresses) > 0 {
			tier := Tier{Cluster: entry.GetCluster(), Region: regions[entry.GetCluster()], RTT: rtt, Endpoints: addresses}
			network.services[entry.GetService()] = append(network.services[entry.GetService()], tier)
		}
	}
	for _, tiers := range network.services {
		slices.SortFunc(tiers, func(a, b Tier) int { return compareTiers(cluster, a, b) })
	}
	return network, errors.Join(problems...)
}

func compareTiers(own string, a, b Tier) int {
	notOwn := func(t Tier) int {
		if t.Cluster == own {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(notOwn(a), notOwn(b)), cmp.Compare(a.RTT, b.RTT), strings.Compare(a.Cluster, b.Cluster))
}

func checkTopology(topology *spillwayv1.Topology) (regions map[string]string, problems []error) {
	regions = map[string]string{}
	for i, c := range topology.GetClusters() {
		if _, twice := regions[c.GetName()]; twice {
			problems = append(problems, fmt.Errorf("topology clusters[%d].name: %q is listed twice", i, c.GetName()))
		}
		if c.GetName() == "" || strings.ContainsAny(c.GetName(), names.XdsClusterSeparator+". ") {
			problems = append(problems, fmt.Errorf("topology clusters[%d].name: %q must be non-empty, without '|', '.' and spaces",
				i, c.GetName()))
		}
		regions[c.GetName()] = c.GetRegion()
	}
	for i, link := range topology.GetLinks() {
		for key, name := range map[string]string{"source_cluster": link.GetSourceCluster(), "destination_cluster": link.GetDestinationCluster()} {
			if _, ok := regions[name]; !ok {
				problems = append(problems, fmt.Errorf("topology links[%d].%s: unknown cluster %q; clusters: %s",
					i, key, name, allowedClusters(topology)))
			}
		}
		if !(link.GetRttMs() >= 0 && link.GetRttMs() <= 60_000) {
			problems = append(problems, fmt.Errorf("topology links[%d].rtt_ms: %v must be 0..60000", i, link.GetRttMs()))
		}
	}
	return regions, problems
}

func allowedClusters(topology *spillwayv1.Topology) string {
	clusters := make([]string, 0, len(topology.GetClusters()))
	for _, c := range topology.GetClusters() {
		clusters = append(clusters, c.GetName())
	}
	slices.Sort(clusters)
	return cmp.Or(strings.Join(clusters, ", "), "none")
}

func roundTrips(cluster string, topology *spillwayv1.Topology) map[string]time.Duration {
	rtts := map[string]time.Duration{cluster: 0}
	for _, link := range topology.GetLinks() {
		if link.GetSourceCluster() == cluster && link.GetDestinationCluster() != cluster {
			rtts[link.GetDestinationCluster()] = time.Duration(link.GetRttMs() * float64(time.Millisecond))
		}
	}
	return rtts
}

func checkEntry(key string, entry *spillwayv1.ServiceEndpoints, regions map[string]string, allowed string,
	seen map[[2]string]bool) (problems []error) {
	if !serviceName.MatchString(entry.GetService()) {
		problems = append(problems, fmt.Errorf("%s.service: %q must be letters, digits and inner '._-'", key, entry.GetService()))
	}
	if _, ok := regions[entry.GetCluster()]; !ok {
		problems = append(problems, fmt.Errorf("%s.cluster: unknown cluster %q; clusters: %s", key, entry.GetCluster(), allowed))
	}
	identity := [2]string{entry.GetService(), entry.GetCluster()}
	if seen[identity] {
		problems = append(problems, fmt.Errorf("%s: a second entry for service %q in cluster %q", key, identity[0], identity[1]))
	}
	seen[identity] = true
	return problems
}

func parseAddresses(key string, texts []string) (addresses []netip.AddrPort, problems []error) {
	for i, text := range texts {
		address, err := netip.ParseAddrPort(text)
		switch {
		case err != nil || address.Port() == 0:
			problems = append(problems, fmt.Errorf("%s.addresses[%d]: %q must be IPv4:port or [IPv6]:port", key, i, text))
		case slices.Contains(addresses, address):
			problems = append(problems, fmt.Errorf("%s.addresses[%d]: %q is listed twice", key, i, text))
		default:
			addresses = append(addresses, address)
		}
	}
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	return addresses, problems
}
