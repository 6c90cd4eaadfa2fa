package control

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/table"
)

// live returns a bed whose loop runs by itself.
func live(t *testing.T, n *table.Network) *bed {
	t.Helper()
	b := newBed(t, n)
	go b.Run(t.Context())
	return b
}

// in runs the function in the loop, and returns when the loop is idle again.
func (b *bed) in(do func()) {
	synctest.Wait()
	b.post(do)
	synctest.Wait()
}

// versions returns the versions of the service's routes, clusters and endpoints.
func (b *bed) versions(service string) (routes, clusters, endpoints string) {
	b.in(func() {
		s := b.services[service].served
		routes, clusters, endpoints = s[resources.RouteType].Version, s[resources.ClusterType].Version, s[resources.EndpointType].Version
	})
	return routes, clusters, endpoints
}

// TestRoutesWaitForTheirClusters checks that clusters are served for as long as Envoys need before
// routes name them, whatever else happens in the meantime: other services that come, answers, the
// same ruleset again. Endpoints do not wait.
func TestRoutesWaitForTheirClusters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := live(t, mesh(t, "north", "south"))
		b.in(func() { b.connected("a", "a/1"); b.connected("b", "b/1") })
		before, noClusters, noEndpoints := b.versions("a")
		begin := time.Now()
		value, _ := proto.Marshal(rulesetOf(1, time.Hour, map[string]uint32{"a": 5000}))
		b.Ruleset(signed(value))
		_, clusters, endpoints := b.versions("a")
		if clusters == noClusters || endpoints == noEndpoints {
			t.Fatal("the clusters that the rule needs are not out at once")
		}
		for i, event := range []func(){
			func() { b.connected("c", "c/1") },
			func() { b.refuse("b", "b/1") },
			b.rebuild,
			func() { b.network = meshOf(t, 81, nil, "north", "south"); b.rebuild() },
		} {
			time.Sleep(settle / 5)
			b.in(event)
			if routes, _, _ := b.versions("a"); routes != before {
				t.Fatalf("event %d: routes are out %s after their clusters", i, time.Since(begin))
			}
		}
		if _, _, now := b.versions("a"); now == endpoints {
			t.Error("endpoints wait for the routes")
		}
		time.Sleep(time.Until(begin.Add(settle - time.Millisecond)))
		if routes, _, _ := b.versions("a"); routes != before {
			t.Error("routes are out too early")
		}
		time.Sleep(time.Millisecond)
		if routes, _, _ := b.versions("a"); routes == before {
			t.Error("routes are not out when their time has come")
		}
	})
}

// TestClustersStayUntilTheirRoutesHaveLeft checks that clusters stay for as long as Envoys need to
// leave them, whatever else happens in the meantime. Each service has its own timing.
func TestClustersStayUntilTheirRoutesHaveLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := live(t, mesh(t, "north", "south"))
		b.in(func() { b.connected("a", "a/1") })
		b.in(func() {
			value, _ := proto.Marshal(rulesetOf(1, time.Hour, map[string]uint32{"a": 5000}))
			b.takeRuleset(signed(value))
		})
		time.Sleep(time.Minute)
		before, clusters, _ := b.versions("a")
		b.Network(mesh(t, "north"))
		begin := time.Now()
		if routes, still, _ := b.versions("a"); routes == before || still != clusters {
			t.Fatal("want new routes at once, with the clusters that were")
		}
		time.Sleep(settle / 2)
		b.in(func() { b.connected("b", "b/1"); b.rebuild() })
		if _, still, _ := b.versions("a"); still != clusters {
			t.Errorf("clusters went %s after the routes that named them", time.Since(begin))
		}
		time.Sleep(settle / 2)
		if _, still, _ := b.versions("a"); still == clusters {
			t.Error("clusters that nothing names stay")
		}
	})
}

// TestExpiryIsOnTime checks that a ruleset gives way to local-first exactly at its expiry, and that
// another ruleset brings weights back.
func TestExpiryIsOnTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := live(t, mesh(t, "north", "south"))
		b.in(func() { b.connected("a", "a/1") })
		value, _ := proto.Marshal(rulesetOf(1, time.Minute, map[string]uint32{"a": 5000}))
		b.Ruleset(signed(value))
		time.Sleep(time.Minute - time.Millisecond)
		if routes, _, _ := b.versions("a"); resources.RulesetVersion(routes) != 1 || b.Status().Version != 1 {
			t.Errorf("before its expiry %s is served, status %+v", routes, b.Status())
		}
		time.Sleep(time.Millisecond)
		if routes, _, _ := b.versions("a"); resources.RulesetVersion(routes) != 0 || b.Status().Version != 0 || b.Status().KnownVersion != 1 {
			t.Errorf("at its expiry %s is served, status %+v", routes, b.Status())
		}
		value, _ = proto.Marshal(rulesetOf(2, time.Minute, map[string]uint32{"a": 5000}))
		b.Ruleset(signed(value))
		if routes, _, _ := b.versions("a"); resources.RulesetVersion(routes) != 2 {
			t.Errorf("afterwards %s is served", routes)
		}
	})
}

// TestEndpointsThatCannotBeServed checks that endpoints that cannot be encoded stop nothing else.
// Rulesets, new services and expiry go on with the previous endpoints, and the next good ones are
// taken.
func TestEndpointsThatCannotBeServed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south"))
		b.connected("a", "a/1")
		b.put(1)
		broken := table.Found{{Service: "d", Cluster: "north"}: {{Address: netip.MustParseAddrPort("10.0.0.9:80"), Zone: "\xff"}}}
		b.network = meshOf(t, 81, broken, "north", "south")
		b.rebuild()
		if b.ports.Counters.All()["snapshots_refused"] == 0 {
			t.Fatal("these endpoints can be served")
		}
		b.put(2)
		b.connected("b", "b/1")
		if b.services["b"].served == nil {
			t.Error("a service that comes is served nothing")
		}
		b.rules.ExpiresAt = time.Now().Add(-time.Second)
		b.rebuild()
		if got := resources.RulesetVersion(b.version("a")); got != 0 {
			t.Errorf("after the expiry ruleset %d is served", got)
		}
		before := b.services["a"].served[resources.EndpointType].Version
		b.network = meshOf(t, 82, nil, "north", "south")
		b.rebuild()
		if b.services["a"].served[resources.EndpointType].Version == before {
			t.Error("good endpoints are not served")
		}
	})
}

// TestServedBeforeSaved checks that a ruleset is given to Save after it is served, not before.
func TestServedBeforeSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _ := twoEnvoys(t)
		second := b.put(2)
		if len(b.saved) != 2 || b.saved[1] != (saved{2, second}) {
			t.Errorf("saved %+v, want versions 1 and 2, the second while %s is served", b.saved, second)
		}
	})
}
