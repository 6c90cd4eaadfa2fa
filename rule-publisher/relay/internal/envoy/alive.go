package envoy

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
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
	// Endpoints of one cluster that are checked. More are pods themselves and no load balancers for pods: a dead one
	// refuses connections, which costs no request.
	checkedMost = 16

	// FirstCheck is how long a new Envoy cluster may take until it is used: each endpoint is checked once before.
	FirstCheck = checkSpread + checkFor
)

// checksOf an Envoy cluster whose first choice is another cluster of the service.
func checksOf(service string, how table.Check) []*core.HealthCheck {
	protocol := envoytype.CodecClientType_HTTP1
	switch how {
	case table.CheckOff:
		return nil
	case table.CheckHTTP2:
		protocol = envoytype.CodecClientType_HTTP2
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
			Host: service, Path: names.XdsAlivePath, Method: core.RequestMethod_GET, CodecClientType: protocol,
			// Any answer: a proxy of an earlier version asks its application, which does not know the path.
			ExpectedStatuses: []*envoytype.Int64Range{{Start: http.StatusOK, End: 600}},
		}},
	}}
}

// checked tells which of the tier's endpoints are checked, as the priority-th of an Envoy cluster that has checks. Of
// many it is those with the lowest hashes: one that comes or goes changes the answer for one other at most. Envoy takes
// an endpoint whose answer changes for a new one, which gets no request until its first check.
func checked(tier table.Tier, priority int) func(table.Endpoint) bool {
	if priority > 0 {
		return func(table.Endpoint) bool { return false }
	}
	highest := uint64(math.MaxUint64)
	if len(tier.Endpoints) > checkedMost {
		hashes := make([]uint64, len(tier.Endpoints))
		for i, e := range tier.Endpoints {
			hashes[i] = hash(e)
		}
		slices.Sort(hashes)
		highest = hashes[checkedMost-1]
	}
	return func(e table.Endpoint) bool { return hash(e) <= highest }
}

// hash of the endpoint's address, the same in every relay.
func hash(e table.Endpoint) uint64 {
	h := fnv.New64a()
	address := e.Address.Addr().As16()
	h.Write(address[:])                                           //nolint:errcheck // never fails
	h.Write(binary.BigEndian.AppendUint16(nil, e.Address.Port())) //nolint:errcheck // never fails
	return h.Sum64()
}
