package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
)

// put takes ruleset `version`, which sends version*100 of a's calls to south. It returns the xDS
// version of the routes, which must be served.
func (b *bed) put(version uint64) string {
	b.t.Helper()
	b.take(rulesetOf(version, time.Hour, map[string]uint32{"a": uint32(version) * 100}))
	if got := resources.RulesetVersion(b.version("a")); got != version {
		b.t.Fatalf("served %s, want ruleset %d", b.version("a"), version)
	}
	return b.version("a")
}

// say gives the answer of one of a's Envoys to a version, which need not be served any more.
func (b *bed) say(envoy, version string, refused bool) {
	b.answered(serve.Answer{Service: "a", Envoy: envoy, TypeURL: resources.RouteType, Version: version, Refused: refused})
	b.settle()
}

func (b *bed) serves(want, when string) {
	b.t.Helper()
	b.settle()
	if got := b.version("a"); got != want {
		b.t.Errorf("%s: served %s, want %s", when, got, want)
	}
}

// twoEnvoys returns a loop with two Envoys of a that have accepted version 1, and that version's
// name.
func twoEnvoys(t *testing.T) (*bed, string) {
	t.Helper()
	b := newBed(t, mesh(t, "north", "south"))
	b.connected("a", "a/1")
	b.connected("a", "a/2")
	first := b.put(1)
	b.accept("a", "a/1")
	b.accept("a", "a/2")
	return b, first
}

// TestTwoEnvoysThatDisagree checks that of two Envoys that disagree the one that refuses decides,
// whichever answers first. Both go back to what was accepted before, other services are not
// affected, and the next version is tried on both.
func TestTwoEnvoysThatDisagree(t *testing.T) {
	for _, order := range [][]string{{"a/1", "a/2"}, {"a/2", "a/1"}} {
		t.Run(fmt.Sprint(order, " answer"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, first := twoEnvoys(t)
				b.connected("b", "b/1")
				other := b.version("b")
				second := b.put(2)
				for _, envoy := range order {
					b.say(envoy, second, envoy == "a/2")
				}
				b.serves(first, "after a refusal")
				if b.version("b") != other {
					t.Errorf("b was served %s, and now %s", other, b.version("b"))
				}
				b.accept("a", "a/1")
				b.accept("a", "a/2")
				b.serves(first, "when both have accepted it again")
				b.put(3)
			})
		})
	}
}

// TestARefusalAfterAllHaveAccepted checks that a newcomer's refusal does not take away what all
// other Envoys accepted, since there is nothing older to go back to. The refusal of an Envoy that
// was away only briefly counts as if it had been there.
func TestARefusalAfterAllHaveAccepted(t *testing.T) {
	for name, gone := range map[string]time.Duration{"a newcomer": 2 * away, "one that was away": away / 4} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, first := twoEnvoys(t)
				time.Sleep(away)
				b.disconnected("a", "a/2")
				want := b.put(2)
				if gone < away {
					want = first
				}
				time.Sleep(gone)
				second := b.version("a")
				b.accept("a", "a/1")
				b.connected("a", "a/2")
				b.say("a/2", second, true)
				b.serves(want, "after the refusal")
				b.put(3)
			})
		})
	}
}

// TestAnEnvoyThatRefusesEverything checks that an Envoy that refuses everything moves its service
// back once, not back and forth, and does not keep it from later versions.
func TestAnEnvoyThatRefusesEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, first := twoEnvoys(t)
		b.put(2)
		b.accept("a", "a/1")
		b.refuse("a", "a/2")
		b.serves(first, "after one refusal")
		b.refuse("a", "a/2")
		b.serves(first, "with nothing left to go back to")
		b.accept("a", "a/1")
		for version := uint64(3); version < 40; version++ {
			want := b.put(version)
			b.accept("a", "a/1")
			b.refuse("a", "a/2")
			b.serves(want, "with nothing to go back to")
		}
		if kept := len(b.services["a"].refused[resources.RouteType]); kept > refusedKept {
			t.Errorf("%d refusals are kept", kept)
		}
	})
}

// TestRefusalAfterARestart checks the time after a restart of the relay, when nothing older is
// known. The ruleset from disk stays when one Envoy refuses it, in either order of the answers, and
// each Envoy is sent it once.
func TestRefusalAfterARestart(t *testing.T) {
	for _, order := range [][]string{{"a/1", "a/2"}, {"a/2", "a/1"}} {
		inBubble(t, func(t *testing.T) {
			before, _ := twoEnvoys(t)
			before.put(2)
			b := &bed{t: t}
			b.Loop = NewLoop(t.Context(), Ports{Cache: serve.NewCache(), Keys: publisher.Trusted, Save: b.save, Acknowledge: before.ports.Acknowledge,
				Counters: before.ports.Counters, Log: before.ports.Log}, before.network, Kept{Rules: before.rules, Highest: before.highest})
			b.rebuild()
			b.connected("a", "a/1")
			b.connected("a", "a/2")
			kept := b.version("a")
			for _, envoy := range order {
				b.say(envoy, kept, envoy == "a/2")
				b.serves(kept, "after the restart")
			}
			b.put(3)
		})
	}
}

// TestAcceptedRoutesAreBounded checks that at most two sets of routes are kept while one Envoy
// never answers and others accept, and one set when all have accepted the newest.
func TestAcceptedRoutesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _ := twoEnvoys(t)
		time.Sleep(away)
		for version := uint64(2); version < 30; version++ {
			b.put(version)
			b.accept("a", "a/1")
			if kept := len(b.services["a"].accepted[resources.RouteType]); kept != 2 {
				t.Fatalf("%d sets of routes are kept, want 2", kept)
			}
		}
		b.accept("a", "a/2")
		if kept := len(b.services["a"].accepted[resources.RouteType]); kept != 1 {
			t.Errorf("%d sets of routes are kept when all have accepted one", kept)
		}
	})
}

// TestARefusedStepIsTakenBack checks that clusters refused in an intermediate step stay refused.
// The routes that need them are not served, whether the refusal comes before or after those routes.
func TestARefusedStepIsTakenBack(t *testing.T) {
	for _, test := range []struct{ late, accepted bool }{{false, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBed(t, mesh(t, "north", "far"))
				b.connected("a", "a/1")
				b.take(rulesetOf(1, time.Hour, map[string]uint32{"a": 5000})) // far has its share
				before := b.services["a"].served
				for _, typeURL := range types {
					if test.accepted {
						b.answered(serve.Answer{Service: "a", Envoy: "a/1", TypeURL: typeURL, Version: before[typeURL].Version})
					}
				}
				b.network = mesh(t, "north", "south") // far goes and south comes
				b.rebuild()
				step := b.services["a"].served[resources.ClusterType].Version
				if target := b.services["a"].target[resources.ClusterType].Version; step == target || step == before[resources.ClusterType].Version {
					t.Fatalf("%s is no step on the way from %s to %s", step, before[resources.ClusterType].Version, target)
				}
				if test.late {
					b.settle()
				}
				b.answered(serve.Answer{Service: "a", Envoy: "a/1", TypeURL: resources.ClusterType, Version: step, Refused: true})
				b.settle()
				if got, want := b.version("a"), before[resources.RouteType].Version; got != want {
					t.Errorf("routes %s are served, want %s, which need nothing that was refused", got, want)
				}
			})
		})
	}
}

// TestForeignTypesAreIgnored checks that answers to types that the relay does not serve are neither
// kept nor reported.
func TestForeignTypesAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, _ := twoEnvoys(t)
		for i := range 100 {
			b.Observer().Answered(serve.Answer{Service: "a", Envoy: "a/1", TypeURL: fmt.Sprint("type.example/", i), Refused: i%2 == 0})
		}
		if len(b.acks) != 0 || len(b.events) != 0 {
			t.Errorf("%d reports, %d events", len(b.acks), len(b.events))
		}
		for typeURL := range b.services["a"].refused {
			if !slices.Contains(types, typeURL) {
				t.Errorf("%s is kept", typeURL)
			}
		}
	})
}
