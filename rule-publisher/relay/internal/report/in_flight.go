package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/inflight"
	"spillway.dev/relay/internal/table"
)

// mostInFlight bounds the services and destinations of calls in flight in one heartbeat, as
// contracts/proto declares.
const mostInFlight = 4096

// CallsInFlight returns the sums for a heartbeat, sorted by names. A service with more destinations
// than there is room for is left out as a whole, because a missing destination would be a zero.
func CallsInFlight(sums map[string]inflight.Sum) (out []*spillwayv1.CallsInFlight) {
	room := mostInFlight
	for _, service := range slices.Sorted(maps.Keys(sums)) {
		sum := sums[service]
		if needed := 1 + len(sum.Calls); needed <= room {
			room -= needed
			out = append(out, &spillwayv1.CallsInFlight{Service: service, ReportingEnvoys: sum.Envoys, Destinations: destinations(sum.Calls)})
		}
	}
	return out
}

func destinations(calls map[table.Place]uint64) (out []*spillwayv1.DestinationCalls) {
	byName := func(a, b table.Place) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Cluster, b.Cluster))
	}
	for _, place := range slices.SortedFunc(maps.Keys(calls), byName) {
		n := uint32(min(calls[place], math.MaxUint32))
		out = append(out, &spillwayv1.DestinationCalls{Service: place.Service, Cluster: place.Cluster, Calls: n})
	}
	return out
}
