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

// Health checks find out whether another cluster answers at all. Its proxies and load balancers
// accept connections even when it is dead. Envoy forgets the failures of user requests after an
// ejection, but not the failures of a check.

const (
	checkEvery  = 10 * time.Second
	recheck     = time.Second      // after a result that is not yet conclusive
	unusedEvery = 30 * time.Second // where the proxy has sent no request so far
	checkFor    = 2 * time.Second  // one check, including its connection
	checkSpread = 500 * time.Millisecond
	jitter      = 30 // percent of each interval
	deadAfter   = 3  // failures in a row
	aliveAfter  = 2  // answers in a row
	// checkedMost bounds the endpoints of one cluster that are checked. More than that are pods
	// themselves, not load balancers for pods. A dead pod refuses connections, which costs no
	// request.
	checkedMost = 16

	// FirstCheck is how long a new Envoy cluster may take until it is used, because each endpoint
	// is checked once before.
	FirstCheck = checkSpread + checkFor
)

// checksOf returns the health checks of an Envoy cluster whose first choice is another cluster of
// the service.
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
		// Each check opens a new connection, which a load balancer accepts even for a dead cluster.
		// No connection stays open at the other cluster.
		ReuseConnection: wrapperspb.Bool(false),
		HealthChecker: &core.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &core.HealthCheck_HttpHealthCheck{
			Host: service, Path: names.XdsAlivePath, Method: core.RequestMethod_GET, CodecClientType: protocol,
			// Any answer counts: a proxy of an earlier version passes the request on to its
			// application, which does not know the path.
			ExpectedStatuses: []*envoytype.Int64Range{{Start: http.StatusOK, End: 600}},
		}},
	}}
}

// checked returns a function that tells which endpoints of the tier are checked. Only the first
// priority of an Envoy cluster is checked. Of many endpoints, those with the lowest hashes are, so
// that one endpoint that comes or goes changes the answer for at most one other. Envoy treats an
// endpoint whose answer changes as new, and sends it no request until its first check.
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

// hash returns the hash of the endpoint's address, which is the same in every relay.
func hash(e table.Endpoint) uint64 {
	h := fnv.New64a()
	address := e.Address.Addr().As16()
	h.Write(address[:])
	h.Write(binary.BigEndian.AppendUint16(nil, e.Address.Port()))
	return h.Sum64()
}
