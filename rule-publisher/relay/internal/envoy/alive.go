package envoy

import (
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/table"
)

// Checks whether another cluster answers at all. Its proxies and load balancers accept connections for it, also
// when it is dead: what users' requests find out is forgotten after an ejection, what a check finds out is not.

const (
	checkEvery  = 10 * time.Second
	recheck     = time.Second      // after a result that is not yet believed
	unusedEvery = 30 * time.Second // where the proxy has sent no request so far
	checkFor    = 2 * time.Second  // one check, with its connection
	checkSpread = 500 * time.Millisecond
	jitter      = 30 // percent of each time
	deadAfter   = 3  // failures in a row
	aliveAfter  = 2  // answers in a row
	// Endpoints of one cluster that are checked. Where there are more, they are pods themselves and no load balancers
	// for pods: a dead one refuses connections, which costs no request.
	checkedMost = 16

	// FirstCheck is how long a new Envoy cluster may take until it is used: each endpoint is checked once before.
	FirstCheck = checkSpread + checkFor
)

// checksOf an Envoy cluster whose first choice is the tier; none of the own cluster.
func checksOf(service string, own, tier string) []*core.HealthCheck {
	if tier == own {
		return nil
	}
	return []*core.HealthCheck{{
		Timeout:               durationpb.New(checkFor),
		Interval:              durationpb.New(checkEvery),
		UnhealthyEdgeInterval: durationpb.New(recheck),
		HealthyEdgeInterval:   durationpb.New(recheck),
		NoTrafficInterval:     durationpb.New(unusedEvery),
		InitialJitter:         durationpb.New(checkSpread),
		IntervalJitterPercent: jitter,
		UnhealthyThreshold:    wrapperspb.UInt32(deadAfter),
		HealthyThreshold:      wrapperspb.UInt32(aliveAfter),
		// A new connection is what a load balancer accepts for the dead, and leaves none open at the other cluster.
		ReuseConnection: wrapperspb.Bool(false),
		HealthChecker: &core.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &core.HealthCheck_HttpHealthCheck{
			Host: service, Path: names.XdsAlivePath, Method: core.RequestMethod_GET,
			// Any answer: a proxy of an earlier version asks its application, which does not know the path.
			ExpectedStatuses: []*envoytype.Int64Range{{Start: http.StatusOK, End: 600}},
		}},
	}}
}

// checked tells whether the tier's endpoints are checked, as the priority-th of an Envoy cluster that has checks.
func checked(tier table.Tier, priority int) bool {
	return priority == 0 && len(tier.Endpoints) <= checkedMost
}
