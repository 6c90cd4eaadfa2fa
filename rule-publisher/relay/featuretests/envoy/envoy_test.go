package envoy

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// TestRealEnvoyFollowsRulesets checks that a real Envoy starts with NATS absent, takes the weights
// of one ruleset and then of the next, and acknowledges both. It keeps its routes when the relay is
// gone.
func TestRealEnvoyFollowsRulesets(t *testing.T) {
	for _, variant := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(variant, func(t *testing.T) {
			_, far := testkit.StartBackend(t, "far", 0)
			server := harness.StartNATS(t, t.TempDir(), 0)
			p, conf, north := harness.Shop(t, server, far)
			r := harness.StartRelay(t, conf)
			e := harness.StartEnvoy(t, variant, harness.PortOf(t, r.XDSAddr()), north)
			if got := e.Shares(20, "shop", "/items/7"); got["north"] != 20 {
				t.Errorf("local-first went to %v", got)
			}
			p.Put(harness.Ruleset(11, time.Minute, 0, 10000))
			testkit.Eventually(t, "version 11 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 11`) })
			if got := e.Shares(20, "shop:8080", "/items/7?q=1"); got["south"] != 20 {
				t.Errorf("version 11 went to %v", got)
			}
			if got := e.Shares(20, "shop", "/other/path"); got["north"] != 20 {
				t.Errorf("the catch-all went to %v", got)
			}
			p.Put(harness.Ruleset(12, time.Minute, 2500, 5000, 2500))
			p.Ack(func(a *spillwayv1.Acknowledgement) bool {
				return a.GetRulesetVersion() == 12 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK && a.GetEnvoy() == "north/gate/test"
			})
			if !e.RoutesSay(`"weight": 2500`) || !e.RoutesSay(`"input_window": "w12"`) {
				t.Error("version 12 is not in the config dump")
			}
			r.Stop()
			if got := e.Shares(400, "shop", "/items/7"); got["north"] < 50 || got["south"] < 130 || got["far"] < 50 {
				t.Errorf("without a relay, weights 2500, 5000, 2500 gave %v", got)
			}
			if nacks := r.Counters().Get(count.AnswersRefused); nacks != 0 {
				t.Errorf("Envoy refused %d answers", nacks)
			}
		})
	}
}

// TestRealEnvoyFailsOver checks that no request fails when a destination dies. Requests go to the
// next cluster by round-trip time, and back when the destination is alive again. Refusals (503)
// move nothing.
func TestRealEnvoyFailsOver(t *testing.T) {
	_, north := testkit.StartBackend(t, "north", 0)
	southServer, south := testkit.StartBackend(t, "south", testkit.FreePort(t)) // restarted on this port below
	_, far := testkit.StartBackend(t, "far", 0)
	server := harness.StartNATS(t, t.TempDir(), 0)
	p := harness.NewPublisher(t, server)
	conf := harness.Config(t, server.ClientURL())
	harness.WriteEndpoints(t, conf, north, south, far)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	if got := e.Shares(20, "shop", "/items/7"); got["south"] != 20 {
		t.Fatalf("went to %v", got)
	}
	for range 20 {
		e.Call("outbound", "shop", "GET", "/overloaded")
	}
	if got := e.Shares(20, "shop", "/items/7"); got["south"] != 20 {
		t.Errorf("after refusals went to %v", got)
	}
	testkit.Must(t, southServer.Close())
	if got := e.Shares(100, "shop", "/items/7"); got["north"] != 100 {
		t.Errorf("with south dead went to %v, want north, the nearest other", got)
	}
	testkit.StartBackend(t, "south", south)
	testkit.Eventually(t, "south is used again", func() bool { return e.Shares(1, "shop", "/items/7")["south"] == 1 })
}

// TestRealEnvoyLeavesARemovedEndpoint checks that a removed endpoint of another cluster gets no
// further request, although it still answers checks. A new endpoint takes over without a failed
// request.
func TestRealEnvoyLeavesARemovedEndpoint(t *testing.T) {
	_, far := testkit.StartBackend(t, "far", 0)
	_, moved := testkit.StartBackend(t, "moved", 0)
	p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), far)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	if e.Shares(20, "shop", "/items/7")["south"] != 20 || e.Stat("cluster.shop|south.health_check.healthy") != 1 {
		t.Fatal("south is not in use, or not checked")
	}
	harness.WriteEndpoints(t, conf, north, moved, far)
	testkit.Eventually(t, "the new endpoint is used", func() bool { return e.Shares(1, "shop", "/items/7")["moved"] == 1 })
	if got := e.Shares(40, "shop", "/items/7"); got["moved"] != 40 {
		t.Errorf("went to %v, want only the new endpoint", got)
	}
	if n := e.Stat("cluster.shop|south.membership_total"); n != 3 {
		t.Errorf("the cluster has %d endpoints, want 3", n)
	}
}

// TestRealEnvoyTakesHostileTemplates checks that Envoy accepts templates of every form that the
// relay lets through, and that the most specific one names the route. A template that Envoy would
// refuse is skipped and does no harm.
func TestRealEnvoyTakesHostileTemplates(t *testing.T) {
	_, north := testkit.StartBackend(t, "north", 0)
	server := harness.StartNATS(t, t.TempDir(), 0)
	p := harness.NewPublisher(t, server)
	conf := harness.Config(t, server.ClientURL())
	harness.WriteEndpoints(t, conf, north, 1, 2)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	rs := harness.Ruleset(1, time.Minute, 10000)
	for _, path := range []string{"/", "/a", "/a/", "/{a}", "/a/{my-id}", "/{x}/{x}", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}",
		"/{a_variable_with_a_long_name}/z", "/v{version}/{id}.json", "/a.b-c_d~e!$&'()+,;:@=", "/p%20q", "/v{a}/v{b}/v{c}/v{d}/v{e}/v{f}",
		"//", "/a//b", "/ü", "/*", "/**", "/{a}{b}", "/{", "/}", "/{}", "no", "", "/" + strings.Repeat("a", 300), "/{a=*}", "/x{y}"} {
		rs.TrafficClasses = append(rs.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: path})
	}
	for _, method := range []string{"", "get", "GET X"} {
		rs.TrafficClasses = append(rs.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: method, PathTemplate: "/m"})
	}
	p.Put(rs)
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		if a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK {
			t.Errorf("Envoy refuses: %s", a.GetDetail())
		}
		return a.GetRulesetVersion() == 1 && strings.HasSuffix(a.GetTypeUrl(), "RouteConfiguration")
	})
	if got := e.Shares(5, "shop", "/v1/7.json"); got["north"] != 5 {
		t.Errorf("went to %v", got)
	}
	if skipped := r.Counters().Get(count.ClassesSkipped); skipped < 15 {
		t.Errorf("%d classes were skipped", skipped)
	}
}

// TestRealEnvoyInbound checks that the inbound route table leads to the application.
func TestRealEnvoyInbound(t *testing.T) {
	var calls atomic.Int32
	_, app := testkit.BackendOf(t, 0, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	conf := harness.Config(t, "nats://127.0.0.1:1")
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), app)
	if got := e.Call("inbound", "anything", "POST", "/x"); got.Status != 200 || calls.Load() != 1 {
		t.Errorf("status %d, %d calls", got.Status, calls.Load())
	}
}
