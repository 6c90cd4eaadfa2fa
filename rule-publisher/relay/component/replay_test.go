package component

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/testkit"
)

// fragile starts an application behind its proxy that a request for /items/poison crashes: the
// connection ends without an answer, whatever the method.
func fragile(t *testing.T, name string, delivered *atomic.Int32) (address string) {
	t.Helper()
	_, port := testkit.BackendOf(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/items/poison" {
			delivered.Add(1)
			panic(http.ErrAbortHandler)
		}
		w.Write([]byte(name)) //nolint:errcheck // the asker is gone
	})
	return callee(t, local(port))
}

// TestARequestThatCrashesItsServerIsDeliveredOnce checks that a request that crashes its server is
// delivered to one server only, unless the topology says that the service's requests may be sent
// again. In both cases the service's other requests still arrive.
func TestARequestThatCrashesItsServerIsDeliveredOnce(t *testing.T) {
	for _, c := range []struct {
		replay, method string
		deliveries     int32 // of one request
	}{
		{"", "GET", 1}, {"never", "GET", 1}, {"", "POST", 1},
		{"idempotent", "GET", 3}, {"idempotent", "POST", 1}, {"any", "POST", 3},
	} {
		t.Run(c.replay+"/"+c.method, func(t *testing.T) {
			var delivered atomic.Int32
			topology := threeClusters()
			topology.Services = []*spillwayv1.Service{{Name: "shop", Replay: c.replay}}
			p := callerIn(t, topology, fragile(t, "north", &delivered), fragile(t, "south", &delivered), fragile(t, "far", &delivered))
			for range 5 { // more failures in a row than an ejection needs
				before := delivered.Load()
				if got := p.Call("outbound", "shop", c.method, "/items/poison"); got.Status != http.StatusServiceUnavailable {
					t.Errorf("status %d, want 503", got.Status)
				}
				if got := delivered.Load() - before; got != c.deliveries {
					t.Errorf("delivered to %d servers, want %d", got, c.deliveries)
				}
			}
			time.Sleep(50 * time.Millisecond) // an ejection would reach every thread in this time
			if calls := repeat(p, 50, "GET", "/items/7"); calls.lost > 0 || calls.answered["south"] != 50 {
				t.Errorf("other requests: %v, want all from south", calls)
			}
		})
	}
}

// TestAnApplicationCannotSpeakForItsProxy checks an application that answers with the headers of a
// proxy that could not reach it. It gets each request once nevertheless, and keeps its share,
// because only what Envoy itself says moves requests.
func TestAnApplicationCannotSpeakForItsProxy(t *testing.T) {
	for _, header := range []string{"x-spillway-no-answer", "x-envoy-immediate-health-check-fail"} {
		t.Run(header, func(t *testing.T) {
			var delivered atomic.Int32
			claims := func(name string) string {
				_, port := testkit.BackendOf(t, 0, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/items/claim" {
						delivered.Add(1)
						w.Header().Set(header, "UF")
						w.WriteHeader(http.StatusServiceUnavailable)
					}
					w.Write([]byte(name)) //nolint:errcheck // the asker is gone
				})
				return callee(t, local(port))
			}
			p := callerOf(t, claims("north"), claims("south"), claims("far"))
			const asked = 5 // more failures in a row than an ejection needs
			for range asked {
				if got := p.Call("outbound", "shop", "GET", "/items/claim"); got.Status != http.StatusServiceUnavailable {
					t.Errorf("status %d, want the application's 503", got.Status)
				}
			}
			if got := delivered.Load(); got != asked {
				t.Errorf("%d requests were delivered %d times", asked, got)
			}
			time.Sleep(50 * time.Millisecond) // an ejection would reach every thread in this time
			if calls := repeat(p, 50, "GET", "/items/7"); calls.lost > 0 || calls.answered["south"] != 50 {
				t.Errorf("other requests: %v, want all from south", calls)
			}
		})
	}
}
