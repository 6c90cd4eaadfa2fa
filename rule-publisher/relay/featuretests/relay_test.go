package featuretests

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

const itemClass = "shop GET /items/{id}"

var (
	local       = map[string]uint32{"shop|north": 10000}
	routeTables = []string{names.XdsInboundRoute, names.XdsOutboundRoute}
)

// eachVariantOf runs the test with both protocol variants.
func eachVariantOf(t *testing.T, test func(t *testing.T, open func(*testing.T, *dialer, *core.Node) client)) {
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, variants[name])
		})
	}
}

// eachVariant runs a test in which all Envoys are of service gate and have the matching
// certificate.
func eachVariant(t *testing.T, test func(t *testing.T, open func(*testing.T, *running, string) client)) {
	eachVariantOf(t, func(t *testing.T, open func(*testing.T, *dialer, *core.Node) client) {
		test(t, func(t *testing.T, r *running, pod string) client { return open(t, at(r), node("gate", pod)) })
	})
}

// boot subscribes to routes and accepts the first answer.
func boot(t *testing.T, c client) update {
	t.Helper()
	c.subscribe(resources.RouteType, routeTables...)
	u := next(t, c)
	c.answer(u, "")
	return u
}

// expect checks that the next response has these weights, and accepts it.
func expect(t *testing.T, c client, want map[string]uint32) update {
	t.Helper()
	u := next(t, c)
	if got := weights(t, u, "shop", itemClass); !maps.Equal(got, want) {
		t.Fatalf("version %s: weights %v, want %v", u.version, got, want)
	}
	c.answer(u, "")
	return u
}

// TestStartsWithoutNATS checks that an Envoy gets local-first routes at once when NATS is absent.
// The health page answers 200, and the status page shows version 0.
func TestStartsWithoutNATS(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
		u := boot(t, open(t, r, "a"))
		if !strings.HasPrefix(u.version, "0.") {
			t.Errorf("version %s, want 0.…", u.version)
		}
		if got := weights(t, u, "shop", names.XdsCatchAllRoute); !maps.Equal(got, local) {
			t.Errorf("shop goes to %v, want %v", got, local)
		}
		want := map[string]uint32{"stock|south": 10000}
		if got := weights(t, u, "stock", names.XdsCatchAllRoute); !maps.Equal(got, want) {
			t.Errorf("stock, which is not in this cluster, goes to %v, want the nearest %v", got, want)
		}
		response, err := http.Get("http://" + r.HealthAddr() + "/livez")
		must(t, err)
		response.Body.Close()
		if status := r.status(); response.StatusCode != 200 || status.NatsConnected || status.ServedVersion != 0 || status.Envoys["gate"] != 1 {
			t.Errorf("health %d, status %+v", response.StatusCode, status)
		}
	})
}

// TestRulesetReachesEnvoyAndAckReturns checks that a published ruleset reaches the Envoy, and that
// its ACK and the heartbeat reach NATS. The next version changes the weights. An older or equal
// version changes nothing.
func TestRulesetReachesEnvoyAndAckReturns(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		r := startRelay(t, testConfig(t, server.ClientURL()))
		c := open(t, r, "a")
		boot(t, c)
		p := newPublisher(t, server) // the bucket appears after the relay
		p.put(ruleset(5, time.Minute, 6000, 3000, 1000))
		u := expect(t, c, map[string]uint32{"shop|north": 6000, "shop|south": 3000, "shop|far": 1000})
		if resources.RulesetVersion(u.version) != 5 {
			t.Errorf("version %s, want 5.…", u.version)
		}
		p.ack(func(a *spillwayv1.Acknowledgement) bool {
			return a.GetRulesetVersion() == 5 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK &&
				a.GetEnvoy() == "north/gate/a" && a.GetService() == "gate" && a.GetTypeUrl() == resources.RouteType && a.GetCluster() == "north"
		})
		p.put(ruleset(6, time.Minute, 2500, 7500))
		expect(t, c, map[string]uint32{"shop|north": 2500, "shop|south": 7500})
		p.put(ruleset(4, time.Minute, 10000))
		r.counted("rulesets_replayed", 1)
		p.put(ruleset(6, time.Minute, 10000))
		r.counted("rulesets_duplicate", 1)
		silent(t, c)
		p.reports("spillway.heartbeats.north", func(data []byte) bool {
			h := &spillwayv1.Heartbeat{}
			must(t, proto.Unmarshal(data, h))
			return h.GetRulesetVersion() == 6 && h.GetTtlSeconds() == 10 && len(h.GetServices()) == 1 &&
				h.GetServices()[0].GetService() == "gate" && h.GetServices()[0].GetConnectedEnvoys() == 1 &&
				len(h.GetServices()[0].GetEnvoys()) == 1 && h.GetRelay() == "relay-0"
		})
	})
}

// TestExpiryFallsBackToLocalFirst checks that an expired ruleset gives way to local-first while its
// classes keep their names. A newer ruleset restores weights.
func TestExpiryFallsBackToLocalFirst(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		r := startRelay(t, testConfig(t, server.ClientURL()))
		c := open(t, r, "a")
		boot(t, c)
		p.put(ruleset(1, 10*time.Second, 0, 10000))
		expect(t, c, map[string]uint32{"shop|south": 10000})
		if u := expect(t, c, local); resources.RulesetVersion(u.version) != 0 {
			t.Errorf("version %s after expiry, want 0.…", u.version)
		}
		p.put(ruleset(2, time.Minute, 5000, 5000))
		expect(t, c, map[string]uint32{"shop|north": 5000, "shop|south": 5000})
	})
}

// TestRefusedVersionIsTakenBack checks that a refused version is reported with Envoy's text and
// sent only once. The service goes back to the last accepted version. The relay tries the next
// version.
func TestRefusedVersionIsTakenBack(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		r := startRelay(t, testConfig(t, server.ClientURL()))
		c := open(t, r, "a")
		boot(t, c)
		p.put(ruleset(1, time.Minute, 8000, 2000))
		accepted := expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000})
		eventually(t, "the answer is counted", func() bool { return r.status().Counters["answers_accepted"] == 2 })
		p.put(ruleset(2, time.Minute, 1000, 9000))
		c.answer(next(t, c), "no such thing")
		p.ack(func(a *spillwayv1.Acknowledgement) bool {
			return a.GetRulesetVersion() == 2 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK && a.GetDetail() == "no such thing"
		})
		if u := expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000}); u.version != accepted.version {
			t.Errorf("went back to %s, want %s", u.version, accepted.version)
		}
		silent(t, c)
		p.put(ruleset(3, time.Minute, 7000, 3000))
		expect(t, c, map[string]uint32{"shop|north": 7000, "shop|south": 3000})
	})
}

// TestFirstVersionRefused checks that the very first version is not sent again to an Envoy that
// refuses it.
func TestFirstVersionRefused(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
		c := open(t, r, "a")
		c.subscribe(resources.RouteType, routeTables...)
		c.answer(next(t, c), "no")
		silent(t, c)
	})
}

// TestOnlyWhatChangedIsSent checks that clusters arrive before endpoints, and endpoints before
// routes. A new ruleset changes routes only. An Envoy gets the clusters of the services that its
// own service calls, and of other services the nearest one.
func TestOnlyWhatChangedIsSent(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		r := startRelay(t, testConfig(t, server.ClientURL()))
		p.put(ruleset(1, time.Minute, 10000))
		eventually(t, "version 1 is served", func() bool { return r.status().ServedVersion == 1 })
		c := open(t, r, "a")
		c.subscribe(resources.ClusterType)
		clusters := next(t, c)
		c.answer(clusters, "")
		if clusters.typeURL != resources.ClusterType || len(clusters.resources) != 4 {
			t.Fatalf("%d resources of %s, want 3 clusters of shop and the nearest of stock", len(clusters.resources), clusters.typeURL)
		}
		c.subscribe(resources.EndpointType, "shop|north", "shop|south", "shop|far", "stock|south")
		c.answer(next(t, c), "")
		boot(t, c)
		p.put(ruleset(2, time.Minute, 8000, 2000))
		if u := expect(t, c, map[string]uint32{"shop|north": 8000, "shop|south": 2000}); u.typeURL != resources.RouteType {
			t.Errorf("%s was sent", u.typeURL)
		}
		silent(t, c)
	})
}

// TestClusterIsRemovedAfterItsRoutes checks that a cluster that lost its endpoints is removed after
// the routes that name it. So no route is ever left without its cluster.
func TestClusterIsRemovedAfterItsRoutes(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		conf := testConfig(t, server.ClientURL())
		r := startRelay(t, conf)
		p.put(ruleset(1, time.Minute, 4000, 4000, 2000))
		eventually(t, "version 1 is served", func() bool { return r.status().ServedVersion == 1 })
		c := open(t, r, "a")
		c.subscribe(resources.ClusterType)
		c.answer(next(t, c), "")
		boot(t, c)
		fewer := strings.Replace(testEndpoints, `  - {service: shop, cluster: far, addresses: ["127.0.0.1:9103"]}`+"\n", "", 1)
		testkit.Replace(t, conf.Endpoints, fewer)
		if u := expect(t, c, map[string]uint32{"shop|north": 5000, "shop|south": 5000}); u.typeURL != resources.RouteType {
			t.Errorf("%s came before the routes", u.typeURL)
		}
		if u := next(t, c); u.typeURL != resources.ClusterType {
			t.Errorf("%s came after the routes, want the clusters", u.typeURL)
		}
	})
}

// TestBrokenRulesetsAreRefused checks that invalid values from NATS are counted by reason and
// refused with an error that names the problem. The relay continues to work.
func TestBrokenRulesetsAreRefused(t *testing.T) {
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	r := startRelay(t, testConfig(t, server.ClientURL()))
	c := newDelta(t, at(r), node("gate", "a"))
	boot(t, c)
	p.put(ruleset(1, time.Minute, 10000))
	expect(t, c, local)
	p.putBytes([]byte{0xff, 0xff, 0xff})
	r.counted("rulesets_undecodable", 1)
	p.put(ruleset(7, time.Minute, 6000, 3000))
	r.counted("rulesets_refused", 1)
	foreign := ruleset(8, time.Minute, 10000)
	foreign.Rules[0].SourceCluster = "south"
	p.put(foreign)
	r.counted("rulesets_refused", 2)
	p.ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == 7 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK &&
			strings.Contains(a.GetDetail(), "rules[0].destinations: weights sum to 9000, must be 10000")
	})
	p.put(ruleset(9, time.Minute, 9000, 1000))
	expect(t, c, map[string]uint32{"shop|north": 9000, "shop|south": 1000})
	counters := r.status().Counters
	if counters["rulesets_undecodable"] != 1 || counters["rulesets_refused"] != 2 || counters["rulesets_taken"] != 2 {
		t.Errorf("counters %v", counters)
	}
}
