package envoy

import (
	"slices"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"spillway.dev/relay/internal/table"
)

const (
	connectTimeout = 500 * time.Millisecond // in addition to round trips
	// maxConcurrent only protects Envoy's memory. How much a destination gets is decided by the
	// ruleset.
	maxConcurrent = 100_000
	// retryPercent is the share of a proxy's requests to the service that may be retries at the
	// same time. retriesAlways retries are allowed in any case: when a destination dies, all its
	// requests fail at once and none remains to take a share of.
	retryPercent  = 20
	retriesAlways = 100
	// handshakeMost is the longest time that one attempt waits for a connection, however far the
	// destination is.
	handshakeMost = 5 * time.Second
)

// Backends returns an EDS cluster and its endpoint assignment for every (service, cluster) with
// endpoints, sorted by service, then nearest first. For each set of clusters that is denied to some
// requests for the service, it returns them again without that set. They are the same for every
// source service.
func Backends(network *table.Network, denials table.Denials) (clusters []*cluster.Cluster, assignments []*endpoint.ClusterLoadAssignment) {
	for _, service := range network.Services() {
		for _, group := range groups(network.Tiers(service), denials.Sets(service)) {
			for i, tier := range group.tiers {
				name := ClusterName(service, tier.Cluster, group.without)
				c := newCluster(name, handshakeTime(group.tiers, tier))
				if tier.Cluster != network.Cluster {
					c.HealthChecks = checksOf(service, network.Handling(service).Check)
				}
				if network.ReportsLoad(service) {
					c.LoadBalancingPolicy = balanceByReports()
				}
				clusters = append(clusters, c)
				assignments = append(assignments, newAssignment(name, failoverOrder(group.tiers, i), len(c.HealthChecks) > 0))
			}
		}
	}
	return clusters, assignments
}

// group is a list of tiers that fail over to each other, and the clusters that are left out of it.
type group struct {
	tiers   []table.Tier
	without []string
}

// groups returns all tiers, and what each denied set leaves of them, each group once.
func groups(tiers []table.Tier, denied [][]string) []group {
	out := []group{{tiers: tiers}}
	for _, set := range denied {
		allowed, without := table.Except(tiers, set)
		if !slices.ContainsFunc(out, func(g group) bool { return slices.Equal(g.without, without) }) {
			out = append(out, group{allowed, without})
		}
	}
	return out
}

// handshakeTime returns how long a connection may take. Up to a round trip of 250 ms it is at most
// one second, the time after which TCP repeats a lost first packet, because failing over to another
// cluster is faster then. It must also be long enough for the farthest cluster, to which the same
// Envoy cluster fails over, and leave time for every attempt.
func handshakeTime(tiers []table.Tier, destination table.Tier) time.Duration {
	farthest := tiers[len(tiers)-1].RTT
	return min(max(connectTimeout+2*destination.RTT, 2*farthest), handshakeMost)
}

// failoverOrder puts the i-th tier first and keeps the others nearest first.
func failoverOrder(tiers []table.Tier, i int) []table.Tier {
	order := make([]table.Tier, 0, len(tiers))
	order = append(order, tiers[i])
	order = append(order, tiers[:i]...)
	return append(order, tiers[i+1:]...)
}

func newCluster(name string, timeout time.Duration) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{
			ResourceApiVersion:    core.ApiVersion_V3,
			ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		}},
		ConnectTimeout:                durationpb.New(timeout),
		LbPolicy:                      cluster.Cluster_LEAST_REQUEST, // applies where backends do not report their load
		OutlierDetection:              ejectDead(),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: onlyUnreachedFails()},
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections:     wrapperspb.UInt32(maxConcurrent),
			MaxPendingRequests: wrapperspb.UInt32(maxConcurrent),
			MaxRequests:        wrapperspb.UInt32(maxConcurrent),
			RetryBudget: &cluster.CircuitBreakers_Thresholds_RetryBudget{
				BudgetPercent: &envoytype.Percent{Value: retryPercent}, MinRetryConcurrency: wrapperspb.UInt32(retriesAlways)},
		}}},
		CommonLbConfig: &cluster.Cluster_CommonLbConfig{
			// Lower than the share of one dead endpoint in a small tier, so that its requests go to
			// the next priority. Above 0, so that requests are still tried when every tier looks
			// dead.
			HealthyPanicThreshold: &envoytype.Percent{Value: 1},
			// Otherwise Envoy delays an ejection that follows within a second after the end of the
			// last one.
			UpdateMergeWindow: durationpb.New(0),
			// Until their first check, new endpoints must not count as unhealthy, which would move
			// requests elsewhere.
			IgnoreNewHostsUntilFirstHc: true,
		},
		IgnoreHealthOnHostRemoval: true, // endpoints that discovery has removed get no requests, although checks still reach them

		UpstreamConnectionOptions: &cluster.UpstreamConnectionOptions{TcpKeepalive: &core.TcpKeepalive{
			KeepaliveProbes:   wrapperspb.UInt32(3),
			KeepaliveTime:     wrapperspb.UInt32(10),
			KeepaliveInterval: wrapperspb.UInt32(5),
		}},
	}
}

var unchecked = &endpoint.Endpoint_HealthCheckConfig{DisableActiveHealthCheck: true}

// newAssignment returns the endpoints of the tiers. The priority of a tier is its index, and each
// zone of a tier is a locality.
func newAssignment(name string, tiers []table.Tier, checks bool) *endpoint.ClusterLoadAssignment {
	assignment := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for priority, tier := range tiers {
		var locality *endpoint.LocalityLbEndpoints
		isChecked := checked(tier, priority)
		for _, e := range tier.Endpoints { // sorted by zone
			if locality == nil || locality.GetLocality().GetSubZone() != e.Zone {
				locality = &endpoint.LocalityLbEndpoints{
					Priority:            uint32(priority),
					Locality:            &core.Locality{Region: tier.Region, Zone: tier.Cluster, SubZone: e.Zone},
					LoadBalancingWeight: wrapperspb.UInt32(1),
				}
				assignment.Endpoints = append(assignment.Endpoints, locality)
			}
			described := &endpoint.Endpoint{Address: socketAddress(e.Address.Addr().String(), uint32(e.Address.Port()))}
			if checks && !isChecked(e) {
				described.HealthCheckConfig = unchecked
			}
			locality.LbEndpoints = append(locality.LbEndpoints, &endpoint.LbEndpoint{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: described}})
		}
	}
	return assignment
}

func socketAddress(host string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       host,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}}}
}
