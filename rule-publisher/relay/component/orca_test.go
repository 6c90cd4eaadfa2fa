package component

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

// reporting starts a backend that answers with its name and reports its utilisation by ORCA.
func reporting(t *testing.T, name string, utilisation float64) (address string, stop func()) {
	t.Helper()
	server, port := testkit.BackendOf(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("endpoint-load-metrics", fmt.Sprintf(`JSON {"application_utilization": %g, "rps_fractional": 100}`, utilisation))
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})
	return local(port), func() { server.Close() }
}

func reportingNetwork(t *testing.T, report string, idle, busy, south string) *table.Network {
	t.Helper()
	topology := threeClusters()
	topology.Services = []*spillwayv1.Service{{Name: "shop", LoadReport: report}}
	network, err := table.NewNetwork("north", topology, &spillwayv1.Endpoints{Cluster: "north", Services: []*spillwayv1.ServiceEndpoints{
		{Service: "shop", Cluster: "north", Addresses: []string{idle, busy}},
		{Service: "shop", Cluster: "south", Addresses: []string{south}}}}, nil)
	must(t, err)
	return network
}

// TestBackendsAreWeightedByTheirReports checks that, where backends report their load, one at 20 %
// gets four times as much as one at 80 %. When both die, the next cluster answers. Where the
// topology does not say that backends report, both get the same.
func TestBackendsAreWeightedByTheirReports(t *testing.T) {
	for report, enough := range map[string]func(idle, busy int) bool{
		"orca": func(idle, busy int) bool { return idle > 3*busy && idle < 5*busy },
		"":     func(idle, busy int) bool { return idle < 2*busy && busy < 2*idle },
	} {
		t.Run("load_report "+report, func(t *testing.T) {
			idle, stopIdle := reporting(t, "idle", 0.2)
			busy, stopBusy := reporting(t, "busy", 0.8)
			network := reportingNetwork(t, report, idle, busy, backend(t, "south"))
			p := caller(t, network, nil, table.Build("gate", network, nil, time.Now()))
			if report == "" {
				repeat(p, 200, "GET", "/") // gives Envoy time to learn from reports, which it must not do here
			}
			var last map[string]int
			eventually(t, "the shares follow", func() bool {
				last = repeat(p, 200, "GET", "/").answered
				return enough(last["idle"], last["busy"])
			})
			t.Log(last)
			stopIdle()
			stopBusy()
			if calls := repeat(p, 50, "GET", "/"); calls.lost > 0 || calls.answered["south"] != 50 {
				t.Errorf("with both dead: %v, want all from south", calls)
			}
		})
	}
}
