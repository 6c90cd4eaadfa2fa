package envoy

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"spillway.dev/relay/internal/table"
)

const (
	connectTimeout = time.Second // plus the round trip to the cluster
	// Limits that protect Envoy's memory only; how much a destination may get is the ruleset's matter.
	maxConcurrent = 100_000
	maxRetries    = 10_000
)

// Backends has an EDS cluster and its assignment for every (service, cluster) with endpoints, in
// order of service, then nearest first. They are the same for every source service.
func Backends(network *table.Network) (clusters []*cluster.Cluster, assignments []*endpoint.ClusterLoadAssignment) {
	for _, service := range network.Services() {
		tiers := network.Tiers(service)
		for i, tier := range tiers {
			name := ClusterName(service, tier.Cluster)
			clusters = append(clusters, newCluster(name, connectTimeout+tier.RTT))
			assignments = append(assignments, newAssignment(name, failoverOrder(tiers, i)))
		}
	}
	return clusters, assignments
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
		ConnectTimeout:   durationpb.New(timeout),
		LbPolicy:         cluster.Cluster_LEAST_REQUEST,
		OutlierDetection: ejectDead(),
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxConnections:     wrapperspb.UInt32(maxConcurrent),
			MaxPendingRequests: wrapperspb.UInt32(maxConcurrent),
			MaxRequests:        wrapperspb.UInt32(maxConcurrent),
			MaxRetries:         wrapperspb.UInt32(maxRetries),
		}}},
		CommonLbConfig: &cluster.Cluster_CommonLbConfig{
			// Below the share that one dead endpoint of a small tier makes, so that its requests go to
			// the next priority; above 0, so that when every tier looks dead requests are still tried.
			HealthyPanicThreshold: &envoytype.Percent{Value: 1},
		},
		UpstreamConnectionOptions: &cluster.UpstreamConnectionOptions{TcpKeepalive: &core.TcpKeepalive{
			KeepaliveProbes:   wrapperspb.UInt32(3),
			KeepaliveTime:     wrapperspb.UInt32(10),
			KeepaliveInterval: wrapperspb.UInt32(5),
		}},
	}
}

// ejectDead takes out endpoints that cannot be reached. Answers, whatever their status, eject
// nobody: an overloaded endpoint that refuses is the optimizer's matter, and ejecting it would
// move its whole load at once.
//
// Consecutive failures see an endpoint that cannot be connected to. One that takes connections and
// drops them, as a proxy before a dead one does, is seen by the share of failures only: Envoy counts
// each such request as a connection made and a failure, 50 %, which breaks every run of failures.
func ejectDead() *cluster.OutlierDetection {
	never := wrapperspb.UInt32(0)
	return &cluster.OutlierDetection{
		SplitExternalLocalOriginErrors:         true,
		ConsecutiveLocalOriginFailure:          wrapperspb.UInt32(3),
		EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(100),
		EnforcingConsecutive_5Xx:               never,
		EnforcingConsecutiveGatewayFailure:     never,
		EnforcingSuccessRate:                   never,
		EnforcingLocalOriginSuccessRate:        never,
		EnforcingFailurePercentage:             never,
		EnforcingFailurePercentageLocalOrigin:  wrapperspb.UInt32(100),
		FailurePercentageThreshold:             wrapperspb.UInt32(40),
		FailurePercentageMinimumHosts:          wrapperspb.UInt32(1),
		FailurePercentageRequestVolume:         wrapperspb.UInt32(5),
		Interval:                               durationpb.New(time.Second),
		BaseEjectionTime:                       durationpb.New(2 * time.Second),
		MaxEjectionTime:                        durationpb.New(30 * time.Second),
		MaxEjectionPercent:                     wrapperspb.UInt32(100),
	}
}

func newAssignment(name string, tiers []table.Tier) *endpoint.ClusterLoadAssignment {
	assignment := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for priority, tier := range tiers {
		locality := &endpoint.LocalityLbEndpoints{
			Priority:            uint32(priority),
			Locality:            &core.Locality{Region: tier.Region, Zone: tier.Cluster},
			LoadBalancingWeight: wrapperspb.UInt32(1),
		}
		for _, address := range tier.Endpoints {
			locality.LbEndpoints = append(locality.LbEndpoints, &endpoint.LbEndpoint{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socketAddress(
					address.Addr().String(), uint32(address.Port()))}},
			})
		}
		assignment.Endpoints = append(assignment.Endpoints, locality)
	}
	return assignment
}

func socketAddress(host string, port uint32) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       host,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}}}
}
