package protocol

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

var local = map[string]uint32{"shop|north": 10000}

// TestStartsWithoutNATS checks that an Envoy gets local-first routes at once when NATS is absent.
// The health page answers 200, and the status page shows version 0.
func TestStartsWithoutNATS(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
		u := harness.Boot(t, open(t, r, "a"))
		if !strings.HasPrefix(u.Version, "0.") {
			t.Errorf("version %s, want 0.…", u.Version)
		}
		if got := harness.Weights(t, u, "shop", names.XdsCatchAllRoute); !maps.Equal(got, local) {
			t.Errorf("shop goes to %v, want %v", got, local)
		}
		want := map[string]uint32{"stock|south": 10000}
		if got := harness.Weights(t, u, "stock", names.XdsCatchAllRoute); !maps.Equal(got, want) {
			t.Errorf("stock, which is not in this cluster, goes to %v, want the nearest %v", got, want)
		}
		response, err := http.Get("http://" + r.HealthAddr() + "/livez")
		testkit.Must(t, err)
		response.Body.Close()
		if status := r.Status(); response.StatusCode != 200 || status.NatsConnected || status.ServedVersion != 0 || status.Envoys["gate"] != 1 {
			t.Errorf("health %d, status %+v", response.StatusCode, status)
		}
	})
}

// TestRulesetReachesEnvoyAndAckReturns checks that a published ruleset reaches the Envoy, and that
// its ACK and the heartbeat reach NATS. The next version changes the weights. An older or equal
// version changes nothing.
func TestRulesetReachesEnvoyAndAckReturns(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		server := harness.StartNATS(t, t.TempDir(), 0)
		r := harness.StartRelay(t, harness.Config(t, server.ClientURL()))
		c := open(t, r, "a")
		harness.Boot(t, c)
		p := harness.NewPublisher(t, server) // the bucket appears after the relay
		p.Put(harness.Ruleset(5, time.Minute, 6000, 3000, 1000))
		u := harness.Expect(t, c, map[string]uint32{"shop|north": 6000, "shop|south": 3000, "shop|far": 1000})
		if resources.RulesetVersion(u.Version) != 5 {
			t.Errorf("version %s, want 5.…", u.Version)
		}
		p.Ack(func(a *spillwayv1.Acknowledgement) bool {
			return a.GetRulesetVersion() == 5 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK &&
				a.GetEnvoy() == "north/gate/a" && a.GetService() == "gate" && a.GetTypeUrl() == resources.RouteType && a.GetCluster() == "north"
		})
		p.Put(harness.Ruleset(6, time.Minute, 2500, 7500))
		harness.Expect(t, c, map[string]uint32{"shop|north": 2500, "shop|south": 7500})
		p.Put(harness.Ruleset(4, time.Minute, 10000))
		r.Counted("rulesets_replayed", 1)
		p.Put(harness.Ruleset(6, time.Minute, 10000))
		r.Counted("rulesets_duplicate", 1)
		harness.Silent(t, c)
		p.Reports("spillway.heartbeats.north", func(data []byte) bool {
			h := &spillwayv1.Heartbeat{}
			testkit.Must(t, proto.Unmarshal(data, h))
			return h.GetRulesetVersion() == 6 && h.GetTtlSeconds() == 10 && len(h.GetServices()) == 1 &&
				h.GetServices()[0].GetService() == "gate" && h.GetServices()[0].GetConnectedEnvoys() == 1 &&
				len(h.GetServices()[0].GetEnvoys()) == 1 && h.GetRelay() == "relay-0"
		})
	})
}

// TestExpiryFallsBackToLocalFirst checks that an expired ruleset gives way to local-first while its
// classes keep their names. A newer ruleset restores weights.
func TestExpiryFallsBackToLocalFirst(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		p, r := harness.Start(t)
		c := open(t, r, "a")
		harness.Boot(t, c)
		p.Put(harness.Ruleset(1, 10*time.Second, 0, 10000))
		harness.Expect(t, c, map[string]uint32{"shop|south": 10000})
		if u := harness.Expect(t, c, local); resources.RulesetVersion(u.Version) != 0 {
			t.Errorf("version %s after expiry, want 0.…", u.Version)
		}
		p.Put(harness.Ruleset(2, time.Minute, 5000, 5000))
		harness.Expect(t, c, map[string]uint32{"shop|north": 5000, "shop|south": 5000})
	})
}

// TestRefusedVersionIsTakenBack checks that a refused version is reported with Envoy's text and
// sent only once. The service goes back to the last accepted version. The relay tries the next
// version.
func TestRefusedVersionIsTakenBack(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		p, r := harness.Start(t)
		c := open(t, r, "a")
		harness.Boot(t, c)
		p.Put(harness.Ruleset(1, time.Minute, 8000, 2000))
		accepted := harness.Expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000})
		testkit.Eventually(t, "the answer is counted", func() bool { return r.Status().Counters["answers_accepted"] == 2 })
		p.Put(harness.Ruleset(2, time.Minute, 1000, 9000))
		c.Answer(harness.Next(t, c), "no such thing")
		p.Ack(func(a *spillwayv1.Acknowledgement) bool {
			return a.GetRulesetVersion() == 2 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK && a.GetDetail() == "no such thing"
		})
		if u := harness.Expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000}); u.Version != accepted.Version {
			t.Errorf("went back to %s, want %s", u.Version, accepted.Version)
		}
		harness.Silent(t, c)
		p.Put(harness.Ruleset(3, time.Minute, 7000, 3000))
		harness.Expect(t, c, map[string]uint32{"shop|north": 7000, "shop|south": 3000})
	})
}

// TestFirstVersionRefused checks that the very first version is not sent again to an Envoy that
// refuses it.
func TestFirstVersionRefused(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
		c := open(t, r, "a")
		c.Subscribe(resources.RouteType, harness.RouteTables...)
		c.Answer(harness.Next(t, c), "no")
		harness.Silent(t, c)
	})
}

// TestOnlyWhatChangedIsSent checks that clusters arrive before endpoints, and endpoints before
// routes. A new ruleset changes routes only. An Envoy gets the clusters of the services that its
// own service calls, and of other services the nearest one.
func TestOnlyWhatChangedIsSent(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		p, r := harness.Start(t)
		p.Put(harness.Ruleset(1, time.Minute, 10000))
		testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
		c := open(t, r, "a")
		c.Subscribe(resources.ClusterType)
		clusters := harness.Next(t, c)
		c.Answer(clusters, "")
		if clusters.TypeURL != resources.ClusterType || len(clusters.Resources) != 4 {
			t.Fatalf("%d resources of %s, want 3 clusters of shop and the nearest of stock", len(clusters.Resources), clusters.TypeURL)
		}
		c.Subscribe(resources.EndpointType, "shop|north", "shop|south", "shop|far", "stock|south")
		c.Answer(harness.Next(t, c), "")
		harness.Boot(t, c)
		p.Put(harness.Ruleset(2, time.Minute, 8000, 2000))
		if u := harness.Expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000}); u.TypeURL != resources.RouteType {
			t.Errorf("%s was sent", u.TypeURL)
		}
		harness.Silent(t, c)
	})
}

// TestClusterIsRemovedAfterItsRoutes checks that a cluster that lost its endpoints is removed after
// the routes that name it. So no route is ever left without its cluster.
func TestClusterIsRemovedAfterItsRoutes(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		p, r := harness.Start(t)
		p.Put(harness.Ruleset(1, time.Minute, 4000, 4000, 2000))
		testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
		c := open(t, r, "a")
		c.Subscribe(resources.ClusterType)
		c.Answer(harness.Next(t, c), "")
		harness.Boot(t, c)
		fewer := strings.Replace(harness.Endpoints, `  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}`+"\n", "", 1)
		testkit.Replace(t, r.Config.Endpoints, fewer)
		if u := harness.Expect(t, c, map[string]uint32{"shop|north": 5000, "shop|south": 5000}); u.TypeURL != resources.RouteType {
			t.Errorf("%s came before the routes", u.TypeURL)
		}
		if u := harness.Next(t, c); u.TypeURL != resources.ClusterType {
			t.Errorf("%s came after the routes, want the clusters", u.TypeURL)
		}
	})
}

// TestBrokenRulesetsAreRefused checks that invalid values from NATS are counted by reason and
// refused with an error that names the problem. The relay continues to work.
func TestBrokenRulesetsAreRefused(t *testing.T) {
	p, r := harness.Start(t)
	c := harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))
	harness.Boot(t, c)
	p.Put(harness.Ruleset(1, time.Minute, 10000))
	harness.Expect(t, c, local)
	p.PutBytes([]byte{0xff, 0xff, 0xff})
	r.Counted("rulesets_undecodable", 1)
	p.Put(harness.Ruleset(7, time.Minute, 6000, 3000))
	r.Counted("rulesets_refused", 1)
	foreign := harness.Ruleset(8, time.Minute, 10000)
	foreign.Rules[0].SourceCluster = "south"
	p.Put(foreign)
	r.Counted("rulesets_refused", 2)
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == 7 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK &&
			strings.Contains(a.GetDetail(), "rules[0].destinations: weights sum to 9000; must be 10000")
	})
	p.Put(harness.Ruleset(9, time.Minute, 9000, 1000))
	harness.Expect(t, c, map[string]uint32{"shop|north": 9000, "shop|south": 1000})
	counters := r.Status().Counters
	if counters["rulesets_undecodable"] != 1 || counters["rulesets_refused"] != 2 || counters["rulesets_taken"] != 2 {
		t.Errorf("counters %v", counters)
	}
}
