package envoy

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	weightedrr "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// How weights from ORCA reports are used. Before a backend's first reports, and after they stop,
// the backend has the mean of the others' weights. When no backend reports, this is plain round
// robin.
const (
	reportsSettle  = 2 * time.Second  // before the reports of a new or silent backend count
	reportsExpire  = 30 * time.Second // after the last report
	weightsRefresh = time.Second
)

// balanceByReports returns a policy that chooses backends in proportion to their requests per
// second divided by their utilisation, with errors as a penalty. Each backend reports these in its
// responses (header or trailer endpoint-load-metrics).
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
