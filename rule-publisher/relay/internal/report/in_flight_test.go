package report

import (
	"fmt"
	"math"
	"testing"

	"spillway.dev/relay/internal/inflight"
	"spillway.dev/relay/internal/table"
)

// TestHeartbeatHasCallsInFlight checks that sums are sorted, and that a number beyond the field's
// range is the highest that it has.
func TestHeartbeatHasCallsInFlight(t *testing.T) {
	got := CallsInFlight(map[string]inflight.Sum{
		"web": {Envoys: 2},
		"cart": {Envoys: 3, Calls: map[table.Place]uint64{
			{Service: "shop", Cluster: "south"}: 7, {Service: "shop", Cluster: "north"}: math.MaxUint64, {Service: "a", Cluster: "z"}: 1}},
	})
	if len(got) != 2 || got[0].GetService() != "cart" || got[0].GetReportingEnvoys() != 3 || got[1].GetReportingEnvoys() != 2 {
		t.Fatalf("%v", got)
	}
	var texts []string
	for _, d := range got[0].GetDestinations() {
		texts = append(texts, fmt.Sprintf("%s|%s %d", d.GetService(), d.GetCluster(), d.GetCalls()))
	}
	if want := "[a|z 1 shop|north 4294967295 shop|south 7]"; fmt.Sprint(texts) != want || len(got[1].GetDestinations()) != 0 {
		t.Errorf("%v, want %s", texts, want)
	}
}

// TestHeartbeatBoundsCallsInFlight checks that a service that does not fit is left out as a whole:
// it is unknown, since a missing destination would be a zero.
func TestHeartbeatBoundsCallsInFlight(t *testing.T) {
	many := func(n int) map[table.Place]uint64 {
		calls := map[table.Place]uint64{}
		for i := range n {
			calls[table.Place{Service: fmt.Sprint(i), Cluster: "south"}] = 1
		}
		return calls
	}
	got := CallsInFlight(map[string]inflight.Sum{
		"a": {Envoys: 1, Calls: many(mostInFlight - 3)}, "b": {Envoys: 1, Calls: many(2)}, "c": {Envoys: 1, Calls: many(1)}})
	if len(got) != 2 || got[0].GetService() != "a" || got[1].GetService() != "c" {
		t.Errorf("%d services, want a and c", len(got))
	}
}
