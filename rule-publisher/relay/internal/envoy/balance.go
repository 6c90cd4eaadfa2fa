package envoy

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedrr "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// How weights that come from ORCA reports are used. Before the first reports, and where they stop
// coming, backends have the mean of the others' weights: plain round robin when nobody reports.
const (
	reportsSettle  = 2 * time.Second  // of a backend that is new or was silent, before they count
	reportsExpire  = 30 * time.Second // after the last one
	weightsRefresh = time.Second
)

// balanceByReports chooses backends in proportion to requests per second over utilisation, as each
// response of theirs reports it (header or trailer endpoint-load-metrics), errors as a penalty.
func balanceByReports() *cluster.LoadBalancingPolicy {
	return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{
			Name: "envoy.load_balancing_policies.client_side_weighted_round_robin",
			TypedConfig: mustAny(&weightedrr.ClientSideWeightedRoundRobin{
				BlackoutPeriod:          durationpb.New(reportsSettle),
				WeightExpirationPeriod:  durationpb.New(reportsExpire),
				WeightUpdatePeriod:      durationpb.New(weightsRefresh),
				ErrorUtilizationPenalty: wrapperspb.Float(1),
			}),
		},
	}}}
}
