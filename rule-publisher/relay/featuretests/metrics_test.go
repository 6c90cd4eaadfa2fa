package featuretests

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/internal/serve/resources"
)

// TestMetrics checks that GET /metrics shows versions, expiry, Envoys, snapshots, times to ACK and
// every counter, under names that dashboards rely on.
func TestMetrics(t *testing.T) {
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	conf := testConfig(t, strings.Replace(server.ClientURL(), "//", "//relay-north:hunter2@", 1))
	r := startRelay(t, conf)
	p.put(ruleset(4, time.Minute, 5000, 5000))
	r.counted("rulesets_taken", 1)
	boot(t, newDelta(t, at(r), node("gate", "a")))
	r.counted("acknowledgements_stored", 1)
	eventually(t, "the snapshot of gate", func() bool { return strings.Contains(r.page("/metrics"), "snapshot_resources") })
	page := r.page("/metrics")
	for _, want := range []string{"spillway_relay_ready 1", "spillway_relay_served_ruleset_version 4", "spillway_relay_known_ruleset_version 4",
		"spillway_relay_ruleset_expiry_timestamp_seconds 1.", "spillway_relay_nats_connected 1", "spillway_relay_acknowledgements_waiting 0",
		"spillway_relay_certificate_expiry_timestamp_seconds 1.", `spillway_relay_envoys{service="gate"} 1`,
		`spillway_relay_envoys_placed{service="gate"} 1`, `spillway_relay_snapshot_resources{service="gate",type="cluster"} 4`,
		`spillway_relay_snapshot_resources{service="gate",type="endpoint"} 4`, `spillway_relay_snapshot_resources{service="gate",type="route"} 3`,
		"spillway_relay_push_to_ack_seconds_count 1", "spillway_relay_rulesets_taken_total 1", "spillway_relay_answers_accepted_total 1",
		"spillway_relay_state_errors_total 0", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
	for _, path := range []string{"/metrics", "/status", "/readyz"} {
		if strings.Contains(r.page(path), "hunter2") {
			t.Errorf("%s shows the password", path)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// TestHealthHasTheKeysOfEveryProgram checks that /livez and /readyz answer the object that
// spillway_runtime defines for the Python programs, and that NATS, without which a relay serves, is
// reported as degraded.
func TestHealthHasTheKeysOfEveryProgram(t *testing.T) {
	r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
	eventually(t, "ready, local-first", func() bool { return r.answers("/readyz") == 200 })
	for _, path := range []string{"/livez", "/readyz"} {
		var keys map[string]any
		if err := json.Unmarshal([]byte(r.page(path)), &keys); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(keys))
		if want := []string{"counters", "degraded", "gauges", "problems", "ready"}; !slices.Equal(got, want) {
			t.Errorf("%s: keys %v, want %v", path, got, want)
		}
		degraded, _ := keys["degraded"].(map[string]any)
		if keys["ready"] != true || degraded["nats"] != "not connected" {
			t.Errorf("%s: %v", path, keys)
		}
	}
}

// TestPlacement checks which Envoys are placed. An Envoy that asks for nothing, or refuses all that
// it was ever sent, is connected but not placed. One that reconnects with what it accepted before
// is placed at once.
func TestPlacement(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		conf := testConfig(t, "nats://127.0.0.1:1")
		r := startRelay(t, conf)
		refusing := open(t, r, "refusing")
		refusing.subscribe(resources.RouteType, routeTables...)
		refusing.answer(next(t, refusing), "no")
		r.counted("answers_refused", 1)
		asking := open(t, r, "asking")
		asking.subscribe(resources.RouteType, routeTables...)
		u := next(t, asking) // it gets no answer
		if s := r.status(); s.Envoys["gate"] != 2 || s.Placed["gate"] != 0 {
			t.Errorf("connected %v, placed %v; want 2 and none", s.Envoys, s.Placed)
		}
		asking.answer(u, "")
		r.counted("answers_accepted", 1)
		again := open(t, r, "again")
		again.holds(u)
		again.subscribe(resources.RouteType, routeTables...)
		eventually(t, "both are placed", func() bool { return r.status().Placed["gate"] == 2 })
		same := open(t, r, "again") // a second stream of the same Envoy
		same.holds(u)
		same.subscribe(resources.RouteType, routeTables...)
		r.counted("streams_opened", 4)
		if s := r.status(); s.Placed["gate"] != 2 || s.Envoys["gate"] != 3 {
			t.Errorf("connected %v, placed %v; want 3 and 2", s.Envoys, s.Placed)
		}
	})
}

func (r *running) page(path string) string {
	response, err := http.Get("http://" + r.HealthAddr() + path)
	must(r.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(r.t, err)
	return string(body)
}
