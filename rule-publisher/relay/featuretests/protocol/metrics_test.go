package protocol

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// TestMetrics checks that GET /metrics shows versions, expiry, Envoys, snapshots, times to ACK and
// every counter, under names that dashboards rely on.
func TestMetrics(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p := harness.NewPublisher(t, server)
	conf := harness.Config(t, strings.Replace(server.ClientURL(), "//", "//relay-north:hunter2@", 1))
	r := harness.StartRelay(t, conf)
	p.Put(harness.Ruleset(4, time.Minute, 5000, 5000))
	r.Counted("rulesets_taken", 1)
	harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "a")))
	r.Counted("acknowledgements_stored", 1)
	testkit.Eventually(t, "the snapshot of gate", func() bool { return strings.Contains(r.Page("/metrics"), "snapshot_resources") })
	page := r.Page("/metrics")
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
		if strings.Contains(r.Page(path), "hunter2") {
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
	r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
	testkit.Eventually(t, "ready, local-first", func() bool { return r.Answers("/readyz") == 200 })
	for _, path := range []string{"/livez", "/readyz"} {
		var keys map[string]any
		if err := json.Unmarshal([]byte(r.Page(path)), &keys); err != nil {
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
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		conf := harness.Config(t, "nats://127.0.0.1:1")
		r := harness.StartRelay(t, conf)
		refusing := open(t, r, "refusing")
		refusing.Subscribe(resources.RouteType, harness.RouteTables...)
		refusing.Answer(harness.Next(t, refusing), "no")
		r.Counted("answers_refused", 1)
		asking := open(t, r, "asking")
		asking.Subscribe(resources.RouteType, harness.RouteTables...)
		u := harness.Next(t, asking) // it gets no answer
		if s := r.Status(); s.Envoys["gate"] != 2 || s.Placed["gate"] != 0 {
			t.Errorf("connected %v, placed %v; want 2 and none", s.Envoys, s.Placed)
		}
		asking.Answer(u, "")
		r.Counted("answers_accepted", 1)
		again := open(t, r, "again")
		again.Holds(u)
		again.Subscribe(resources.RouteType, harness.RouteTables...)
		testkit.Eventually(t, "both are placed", func() bool { return r.Status().Placed["gate"] == 2 })
		same := open(t, r, "again") // a second stream of the same Envoy
		same.Holds(u)
		same.Subscribe(resources.RouteType, harness.RouteTables...)
		r.Counted("streams_opened", 4)
		if s := r.Status(); s.Placed["gate"] != 2 || s.Envoys["gate"] != 3 {
			t.Errorf("connected %v, placed %v; want 3 and 2", s.Envoys, s.Placed)
		}
	})
}
