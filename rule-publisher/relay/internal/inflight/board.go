// Package inflight sums the calls in flight that Envoys report by the Load Reporting Service.
package inflight

import (
	"sync"
	"sync/atomic"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/table"
)

const (
	// ReportFor is how long a report counts. An Envoy sends one every 2 s.
	ReportFor = 10 * time.Second
	// mostPlaces bounds the destinations of one Envoy.
	mostPlaces = 1024
	// mostCalls bounds the calls of one Envoy to one destination. It is the most that its circuit
	// breakers admit to a cluster.
	mostCalls = 100_000
)

// Sum is what the Envoys of one service report.
type Sum struct {
	Envoys uint32 // that have reported
	Calls  map[table.Place]uint64
}

// Board has the newest report of each Envoy.
type Board struct {
	network atomic.Pointer[table.Network]
	mu      sync.Mutex
	reports map[string]report // by node id
}

type report struct {
	stream  any
	service string // of the Envoy
	at      time.Time
	calls   map[table.Place]uint64 // without zeros
}

// NewBoard creates an empty board. It counts only calls to places of the network.
func NewBoard(network *table.Network) *Board {
	b := &Board{reports: map[string]report{}}
	b.Network(network)
	return b
}

// Network replaces the network.
func (b *Board) Network(network *table.Network) { b.network.Store(network) }

// Reported replaces the Envoy's report. It returns an error when the Envoy names more places than
// one Envoy may.
func (b *Board) Reported(stream any, service, envoy string, stats []*endpoint.ClusterStats) error {
	return b.put(stream, service, envoy, stats, time.Now())
}

func (b *Board) put(stream any, service, envoy string, stats []*endpoint.ClusterStats, now time.Time) error {
	calls, err := callsOf(stats, b.network.Load())
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports[envoy] = report{stream, service, now, calls}
	return nil
}

// Left forgets the Envoy unless a later stream has reported for it.
func (b *Board) Left(stream any, envoy string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reports[envoy].stream == stream {
		delete(b.reports, envoy)
	}
}

// Sums returns the sums of the reports that count at this time, by the service that calls.
func (b *Board) Sums(now time.Time) map[string]Sum {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums := map[string]Sum{}
	for _, r := range b.reports {
		if now.Sub(r.at) >= ReportFor {
			continue
		}
		sum := sums[r.service]
		if sum.Calls == nil {
			sum.Calls = map[table.Place]uint64{}
		}
		sum.Envoys++
		for place, calls := range r.calls {
			sum.Calls[place] += calls
		}
		sums[r.service] = sum
	}
	return sums
}

// callsOf returns the calls in flight by destination. The locality of an endpoint has the cluster
// that calls were sent to, also when they failed over. Envoy's other clusters, such as the
// application's, are left out, and so are places that the network does not have.
func callsOf(stats []*endpoint.ClusterStats, network *table.Network) (map[table.Place]uint64, error) {
	calls := map[table.Place]uint64{}
	for _, s := range stats {
		service, ok := envoy.ServiceOf(s.GetClusterName())
		if !ok {
			continue
		}
		for _, l := range s.GetUpstreamLocalityStats() {
			place := table.Place{Service: service, Cluster: l.GetLocality().GetZone()}
			n := min(l.GetTotalRequestsInProgress(), mostCalls)
			if n == 0 || !network.Reaches(place) {
				continue
			}
			calls[place] = min(calls[place]+n, mostCalls)
		}
	}
	if len(calls) > mostPlaces {
		return nil, status.Errorf(codes.ResourceExhausted, "calls in flight to %d destinations; one Envoy may have at most %d", len(calls), mostPlaces)
	}
	return calls, nil
}
