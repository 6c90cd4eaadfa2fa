package control

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/table"
)

// bed is a loop whose events the test carries out itself, one after the other. It runs in a
// synctest bubble, whose time passes when the test sleeps.
type bed struct {
	*Loop
	t     *testing.T
	acks  []*spillwayv1.Acknowledgement
	saved []saved
}

// saved is the version of a ruleset that was given to Save, and the version that service a was
// served then.
type saved struct {
	version uint64
	served  string
}

// inBubble runs the test with its own time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func newBed(t *testing.T, n *table.Network) *bed {
	t.Helper()
	b := &bed{t: t}
	b.Loop = NewLoop(t.Context(), Ports{Cache: serve.NewCache(), Keys: publisher.Trusted, Save: b.save,
		Acknowledge: func(a *spillwayv1.Acknowledgement) { b.acks = append(b.acks, a) },
		Counters:    &count.Counters{}, Log: slog.New(slog.DiscardHandler)}, n, Kept{})
	b.rebuild()
	return b
}

// publisher is the key that every loop of the tests trusts.
var publisher = signingtest.NewKey()

func signed(payload []byte) signing.Value { return publisher.Sign("north", payload) }

func (b *bed) save(_ signing.Value, version uint64) {
	now := saved{version: version}
	if b.services["a"] != nil {
		now.served = b.version("a")
	}
	b.saved = append(b.saved, now)
}

// mesh returns a network of the services a, b and c in the given clusters. The first cluster is the
// relay's own.
func mesh(t *testing.T, clusters ...string) *table.Network {
	t.Helper()
	return meshOf(t, 80, nil, clusters...)
}

// meshOf returns a network whose endpoints use the port, together with the found endpoints.
func meshOf(t *testing.T, port int, found table.Found, clusters ...string) *table.Network {
	t.Helper()
	topology, endpoints := &spillwayv1.Topology{}, &spillwayv1.Endpoints{Cluster: "north"}
	for i, cluster := range []string{"north", "south", "far"} {
		topology.Clusters = append(topology.Clusters, &spillwayv1.Cluster{Name: cluster})
		if i > 0 {
			topology.Links = append(topology.Links, &spillwayv1.Link{SourceCluster: "north", DestinationCluster: cluster, RttMs: float64(10 * i)})
		}
		if !slices.Contains(clusters, cluster) {
			continue
		}
		for j, service := range []string{"a", "b", "c"} {
			endpoints.Services = append(endpoints.Services, &spillwayv1.ServiceEndpoints{Service: service, Cluster: cluster,
				Addresses: []string{fmt.Sprintf("10.0.%d.%d:%d", i, j, port)}})
		}
	}
	n, err := table.NewNetwork("north", topology, endpoints, found)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func class(service string) *spillwayv1.TrafficClass {
	return &spillwayv1.TrafficClass{Service: service, Method: "GET", PathTemplate: "/{id}"}
}

// rulesetOf returns a ruleset that sends, for each source service, a share (of 10 000) of its calls
// of the next service to south.
func rulesetOf(version uint64, lasting time.Duration, south map[string]uint32) *spillwayv1.Ruleset {
	out := &spillwayv1.Ruleset{Version: version, Policy: "test", InputWindow: &spillwayv1.InputWindow{Id: fmt.Sprint("w", version)},
		ExpiresAt: timestamppb.New(time.Now().Add(lasting))}
	next := map[string]string{"a": "b", "b": "c", "c": "a"}
	for _, source := range []string{"a", "b", "c"} {
		share, ok := south[source]
		if !ok {
			continue
		}
		out.TrafficClasses = append(out.TrafficClasses, class(next[source]))
		out.Rules = append(out.Rules, &spillwayv1.Rule{SourceCluster: "north", SourceService: source, TrafficClass: class(next[source]),
			Destinations: []*spillwayv1.Destination{{Cluster: "south", Weight: share}, {Cluster: "north", Weight: names.ValueWeightTotal - share}}})
	}
	return out
}

func (b *bed) take(ruleset *spillwayv1.Ruleset) {
	b.t.Helper()
	b.takeNow(ruleset)
	b.settle()
}

// takeNow takes the ruleset without the steps that follow.
func (b *bed) takeNow(ruleset *spillwayv1.Ruleset) {
	b.t.Helper()
	value, err := proto.Marshal(ruleset)
	if err != nil {
		b.t.Fatal(err)
	}
	b.takeRuleset(signed(value))
}

// settle carries out the steps that wait for Envoys to take in clusters.
func (b *bed) settle() {
	for range 5 {
		time.Sleep(settle)
		b.advance(time.Now())
	}
}

func (b *bed) version(service string) string {
	return b.services[service].served[resources.RouteType].Version
}

// accept accepts the service's routes as they are served now.
func (b *bed) accept(service, envoy string) {
	b.answered(serve.Answer{Service: service, Envoy: envoy, TypeURL: resources.RouteType, Version: b.version(service)})
}

func (b *bed) refuse(service, envoy string) {
	b.refuseType(service, envoy, resources.RouteType)
}

// refuseType refuses what the service is served of a type.
func (b *bed) refuseType(service, envoy, typeURL string) {
	b.answered(serve.Answer{Service: service, Envoy: envoy, TypeURL: typeURL, Version: b.services[service].served[typeURL].Version,
		Refused: true, Detail: "no"})
}

// TestAnUnchangedServiceIsSentNothing checks that a ruleset that changes one service's rules
// changes only what that service is served, and that a renewal changes nothing. A version that is
// in force without having been sent is reported once for each Envoy that accepted the routes, in
// the Envoy's name.
func TestAnUnchangedServiceIsSentNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south"))
		for _, service := range []string{"a", "b", "c"} {
			b.connected(service, service+"/1")
		}
		b.connected("b", "b/late")
		b.take(rulesetOf(5, time.Minute, map[string]uint32{"a": 1000, "b": 1000, "c": 1000}))
		for _, service := range []string{"a", "b", "c"} {
			b.accept(service, service+"/1")
		}
		before, acks := b.version("b"), len(b.acks)
		if acks != 0 {
			t.Fatalf("%d reports of versions that were sent: %v", acks, b.acks)
		}
		b.take(rulesetOf(6, time.Minute, map[string]uint32{"a": 2000, "b": 1000, "c": 1000}))
		if b.version("b") != before || resources.RulesetVersion(b.version("a")) != 6 {
			t.Errorf("a is at %s, b went from %s to %s", b.version("a"), before, b.version("b"))
		}
		want := map[string]uint64{"a": 5, "b": 0, "c": 6}
		if got := b.inForce(); !equal(got, want) {
			t.Errorf("in force %v, want %v", got, want)
		}
		b.accept("a", "a/1")
		b.accept("b", "b/late")
		if got := b.inForce(); !equal(got, map[string]uint64{"a": 6, "b": 6, "c": 6}) {
			t.Errorf("in force %v, want 6", got)
		}
		b.take(rulesetOf(7, time.Minute, map[string]uint32{"a": 2000, "b": 1000, "c": 1000}))
		if b.version("b") != before || resources.RulesetVersion(b.version("a")) != 6 {
			t.Errorf("a renewal changed a to %s, b to %s", b.version("a"), b.version("b"))
		}
		reported := map[string]int{}
		for _, a := range b.acks {
			reported[fmt.Sprint(a.GetEnvoy(), " ", a.GetRulesetVersion(), " ", a.GetOutcome(), " ", a.GetDetail())]++
		}
		for _, want := range []string{"a/1 7 OUTCOME_ACK unchanged since version 6, which this Envoy accepted",
			"b/1 6 OUTCOME_ACK unchanged since version 5, which this Envoy accepted", "b/1 7 OUTCOME_ACK unchanged since version 5, which this Envoy accepted",
			"b/late 6 OUTCOME_ACK unchanged since version 5, which this Envoy accepted", "b/late 7 OUTCOME_ACK unchanged since version 5, which this Envoy accepted"} {
			if reported[want] != 1 {
				t.Errorf("reported %d times: %s\nall: %v", reported[want], want, reported)
			}
		}
		if len(b.acks) != 7 {
			t.Errorf("%d reports, want 7: %v", len(b.acks), reported)
		}
	})
}

func equal(a, b map[string]uint64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestAnotherPolicyIsAChange checks that a ruleset of another policy is sent even when its weights
// are the same, because the version in the routes tells which policy routed a request.
func TestAnotherPolicyIsAChange(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south"))
		b.connected("a", "a/1")
		b.take(rulesetOf(1, time.Minute, map[string]uint32{"a": 1000}))
		other := rulesetOf(2, time.Minute, map[string]uint32{"a": 1000})
		other.Policy = "failover"
		b.take(other)
		if got := resources.RulesetVersion(b.version("a")); got != 2 {
			t.Errorf("served %d, want 2", got)
		}
	})
}

// TestARefusedVersionStaysRefused checks that a version that an Envoy refused is not in force
// there, nor is a later version with the same content. The service is served what it accepted
// before, until the rules change.
func TestARefusedVersionStaysRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south"))
		b.connected("a", "a/1")
		b.take(rulesetOf(1, time.Minute, map[string]uint32{"a": 1000}))
		b.accept("a", "a/1")
		good := b.version("a")
		b.take(rulesetOf(2, time.Minute, map[string]uint32{"a": 2000}))
		b.refuse("a", "a/1")
		b.accept("a", "a/1")
		b.take(rulesetOf(3, time.Minute, map[string]uint32{"a": 2000}))
		if b.version("a") != good || b.inForce()["a"] != 1 || len(b.acks) != 0 {
			t.Errorf("served %s, want %s; in force %v; reports %v", b.version("a"), good, b.inForce(), b.acks)
		}
		b.take(rulesetOf(4, time.Minute, map[string]uint32{"a": 3000}))
		if resources.RulesetVersion(b.version("a")) != 4 {
			t.Errorf("served %s, want 4", b.version("a"))
		}
	})
}

// TestServicesThatLeftAreForgotten checks that a service without a connected Envoy is forgotten
// after a while, with everything that it was served.
func TestServicesThatLeftAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBed(t, mesh(t, "north", "south"))
		b.connected("a", "a/1")
		b.connected("a", "a/1") // its next stream, before the end of the first is noticed
		b.connected("b", "b/1")
		b.disconnected("a", "a/1")
		b.disconnected("b", "b/1")
		b.forget(time.Now().Add(forgetAfter - time.Second))
		if len(b.services) != 2 {
			t.Errorf("forgotten too early: %d services", len(b.services))
		}
		b.forget(time.Now().Add(forgetAfter + time.Second))
		if b.services["a"] == nil || b.services["b"] != nil || len(b.ports.Cache.Sizes()) != 1 {
			t.Errorf("services %v, cache %v, want a", b.services, b.ports.Cache.Sizes())
		}
		b.connected("b", "b/2")
		if b.services["b"].served == nil {
			t.Error("a service that comes back is served nothing")
		}
	})
}
