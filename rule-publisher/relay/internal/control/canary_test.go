package control

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/testkit"
)

// Envoys of service a. With a share of 5000, a/2 and a/3 are elected; with 3000, a/2 alone.
const elected, other = "a/2", "a/0"

// onTrial returns a ruleset with these shares to south, and beside it one with others on trial.
func onTrial(version uint64, south, tried map[string]uint32, share uint32, lasts time.Duration) *spillwayv1.Ruleset {
	out := rulesetOf(version, time.Hour, south)
	out.Canary = &spillwayv1.Canary{Ruleset: rulesetOf(version, time.Hour, tried), Share: share, Until: timestamppb.New(time.Now().Add(lasts))}
	return out
}

func to(share uint32) map[string]uint32 { return map[string]uint32{"a": share} }

// south returns the share that the Envoy of service a is told to send to south.
func (b *bed) south(envoy string) uint32 {
	return share(b.t, b.member("a", envoy).served[resources.RouteType])
}

// acceptOf accepts the routes as the Envoy's group is served them now.
func (b *bed) acceptOf(envoy string) {
	b.answered(serve.Answer{Service: "a", Envoy: envoy, TypeURL: resources.RouteType,
		Version: b.member("a", envoy).served[resources.RouteType].Version})
}

// pass lets time pass with all timers of the loop.
func (b *bed) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		was := b.trial.On(time.Now())
		time.Sleep(settle / 2)
		if was && !b.trial.On(time.Now()) {
			b.rebuild() // as the expiry timer does
		}
		b.advance(time.Now())
	}
}

// wants fails unless the Envoys of service a send these shares to south.
func (b *bed) wants(want map[string]uint32) {
	b.t.Helper()
	for envoy, share := range want {
		if got := b.south(envoy); got != share {
			b.t.Errorf("%s sends %d to south, want %d", envoy, got, share)
		}
	}
}

// beside returns a bed whose ruleset 6 tries 9000 beside 1000, with two Envoys.
func beside(t *testing.T) *bed {
	b := newBed(t, mesh(t, "north", "south"))
	b.connected("a", elected)
	b.connected("a", other)
	b.take(rulesetOf(5, time.Hour, to(1000)))
	b.acceptOf(elected)
	b.acceptOf(other)
	b.take(onTrial(6, to(1000), to(9000), 5000, time.Minute))
	return b
}

// TestOnlyElectedEnvoysTryARuleset checks that the elected Envoy gets the routes on trial, under
// their version, and that the other is sent nothing. Both have the version in force once the
// elected one has accepted it. An Envoy that connects later is elected too.
func TestOnlyElectedEnvoysTryARuleset(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := beside(t)
		b.wants(map[string]uint32{elected: 9000, other: 1000})
		if got := resources.RulesetVersion(b.member("a", elected).served[resources.RouteType].Version); got != 6 {
			t.Errorf("the trial's routes are of version %d, want 6", got)
		}
		if got := resources.RulesetVersion(b.version("a")); got != 5 {
			t.Errorf("the others' routes are of version %d, want 5", got)
		}
		if got := b.inForce()["a"]; got != 5 {
			t.Errorf("%d is in force before the elected Envoy has accepted, want 5", got)
		}
		b.acceptOf(elected)
		if got := b.inForce()["a"]; got != 6 || b.Status().Canary != 6 {
			t.Errorf("%d is in force and %d on trial, want 6", got, b.Status().Canary)
		}
		b.connected("a", "a/3")
		b.wants(map[string]uint32{elected: 9000, other: 1000, "a/3": 9000})
	})
}

// TestATrialEnds checks that after a ruleset without a trial, whichever it is, all Envoys have the
// same routes again, in one group. The ruleset may keep what was tried, or go back.
func TestATrialEnds(t *testing.T) {
	for _, share := range []uint32{9000, 1000, 5000} {
		inBubble(t, func(t *testing.T) {
			b := beside(t)
			b.take(rulesetOf(7, time.Hour, to(share)))
			b.wants(map[string]uint32{elected: share, other: share})
			if len(b.groups.of) != 0 || b.groups.open != nil || len(b.services["a"].envoys) != 2 || b.Status().Canary != 0 {
				t.Errorf("groups %v, %d Envoys in the service, %d on trial", b.groups.of, len(b.services["a"].envoys), b.Status().Canary)
			}
			b.acceptOf(elected)
			b.acceptOf(other)
			if got := b.inForce()["a"]; got != 7 {
				t.Errorf("%d is in force, want 7", got)
			}
		})
	}
}

// TestATrialThatNobodyConcludesEndsByItself checks that at its end the elected Envoys get the
// routes of all others, although no other ruleset has come.
func TestATrialThatNobodyConcludesEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := beside(t)
		b.pass(30 * time.Second)
		b.wants(map[string]uint32{elected: 9000, other: 1000})
		b.pass(time.Minute)
		b.wants(map[string]uint32{elected: 1000, other: 1000})
		if len(b.groups.of) != 0 || b.Status().Canary != 0 {
			t.Errorf("groups %v, %d on trial, want none", b.groups.of, b.Status().Canary)
		}
	})
}

// TestATrialThatElectsOthersWaits checks that a trial with another share begins when the groups of
// the one before are dissolved. One with the same share goes on with them.
func TestATrialThatElectsOthersWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := beside(t)
		b.connected("a", "a/3")
		b.take(onTrial(7, to(1000), to(5000), 5000, time.Minute))
		b.wants(map[string]uint32{elected: 5000, "a/3": 5000, other: 1000})
		b.take(onTrial(8, to(1000), to(9000), 3000, time.Minute))
		b.pass(20 * time.Second)
		b.wants(map[string]uint32{elected: 9000, "a/3": 1000, other: 1000})
		b.take(onTrial(9, to(1000), to(5000), 10000, time.Minute))
		b.pass(20 * time.Second)
		b.wants(map[string]uint32{elected: 5000, "a/3": 5000, other: 5000})
	})
}

// TestARefusedTrialTakesNothingFromTheOthers checks that after a NACK the elected Envoy goes back
// to what it had accepted, and that the others, and later rulesets, are not affected.
func TestARefusedTrialTakesNothingFromTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := beside(t)
		b.answered(serve.Answer{Service: "a", Envoy: elected, TypeURL: resources.RouteType, Refused: true, Detail: "no",
			Version: b.member("a", elected).served[resources.RouteType].Version})
		b.settle()
		b.wants(map[string]uint32{elected: 1000, other: 1000})
		b.take(rulesetOf(7, time.Hour, to(3000)))
		b.wants(map[string]uint32{elected: 3000, other: 3000})
	})
}

// TestATrialOfAServiceThatConnectsLater checks that a service whose first Envoy connects during a
// trial gets the right routes at once, whether the Envoy is elected or not.
func TestATrialOfAServiceThatConnectsLater(t *testing.T) {
	for envoy, want := range map[string]uint32{elected: 9000, other: 1000} {
		inBubble(t, func(t *testing.T) {
			b := newBed(t, mesh(t, "north", "south"))
			b.take(onTrial(6, to(1000), to(9000), 5000, time.Minute))
			b.connected("a", envoy)
			b.wants(map[string]uint32{envoy: want})
			b.disconnected("a", envoy)
			b.take(rulesetOf(7, time.Hour, to(1000)))
			b.forget(time.Now().Add(2 * forgetAfter))
			if len(b.services) != 0 || len(b.groups.of) != 0 || len(b.ports.Cache.Sizes()) != 0 {
				t.Errorf("%d services, %d groups, %d in the cache; want none", len(b.services), len(b.groups.of), len(b.ports.Cache.Sizes()))
			}
		})
	}
}

// TestAnySequenceOfTrials checks random sequences of rulesets with and without trials, of Envoys
// that come, go and accept, and of time that passes. After every event, each Envoy is in one group
// alone, what it is served is consistent, and its routes name only clusters that it was sent long
// enough ago, also when it changes its group. After the last event all Envoys are served what the
// newest ruleset says.
func TestAnySequenceOfTrials(t *testing.T) {
	for seed := range uint64(200) {
		inBubble(t, func(t *testing.T) { anyTrials(t, seed) })
	}
}

func anyTrials(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	b := newBed(t, mesh(t, "north", "south", "far"))
	streams, seen := map[string]int{}, map[string]*watched{}
	version, now := uint64(0), map[string]uint32{}
	// Shares to south. Without a rule, a calls nobody, and its Envoys need fewer clusters.
	shares := func() map[string]uint32 {
		if random.IntN(2) == 0 {
			return map[string]uint32{}
		}
		return to(uint32(random.IntN(3)) * 5000)
	}
	var history []string
	watch := func() {
		for envoy := range streams {
			in := 0
			for s := range b.every() {
				if s.envoys[envoy] != nil {
					in++
				}
			}
			group := b.member("a", envoy)
			if in != 1 || group.envoys[envoy] == nil {
				t.Fatalf("seed %d: %s is in %d groups, after %q", seed, envoy, in, history)
			}
			if seen[envoy] == nil {
				seen[envoy] = &watched{since: map[string]time.Time{}, named: map[string]time.Time{}}
			}
			if err := group.served.Consistent(); err != nil {
				t.Fatalf("seed %d: %v, after %q", seed, err, history)
			}
			if err := seen[envoy].see(t, group.served); err != nil {
				t.Fatalf("seed %d: %s: %v, after %q", seed, envoy, err, history)
			}
		}
	}
	passed := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); watch() {
			b.pass(settle / 2)
		}
	}
	happen := func() string {
		envoy := fmt.Sprint("a/", random.IntN(6))
		version++
		switch random.IntN(10) {
		case 0, 1:
			now = shares()
			b.takeNow(rulesetOf(version, time.Hour, now))
			return fmt.Sprint("ruleset ", version, " ", now)
		case 2, 3:
			tried, share := shares(), []uint32{2600, 5000, 10000}[random.IntN(3)]
			b.takeNow(onTrial(version, now, tried, share, time.Duration(5+random.IntN(60))*time.Second))
			return fmt.Sprint("trial ", version, " ", now, " beside ", tried, " by ", share)
		case 4, 5:
			b.connected("a", envoy)
			streams[envoy]++
			return "connect " + envoy
		case 6:
			if streams[envoy] == 0 {
				return "nothing"
			}
			b.disconnected("a", envoy)
			if streams[envoy]--; streams[envoy] == 0 {
				delete(streams, envoy)
				delete(seen, envoy)
			}
			return "disconnect " + envoy
		case 7:
			d := time.Duration(random.Int64N(int64(20 * time.Second)))
			passed(d)
			return fmt.Sprint("pass ", d)
		default:
			if streams[envoy] == 0 {
				return "nothing"
			}
			b.acceptOf(envoy)
			return "accept " + envoy
		}
	}
	for range 60 {
		history = append(history, happen())
		watch()
	}
	passed(2 * time.Minute) // the longest trial, and what follows
	for envoy := range streams {
		if got := b.south(envoy); got != now["a"] {
			t.Fatalf("seed %d: %s sends %d to south in the end, want %v, after %q", seed, envoy, got, now, history)
		}
	}
	if len(b.groups.of) != 0 || b.groups.open != nil {
		t.Fatalf("seed %d: groups are left: %v, after %q", seed, b.groups.of, history)
	}
}

// TestATrialContinuesAfterARestart checks that a loop which starts from a kept ruleset serves its
// trial to the elected Envoys at once. The same ruleset from NATS changes nothing.
func TestATrialContinuesAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ruleset := onTrial(6, to(1000), to(9000), 5000, time.Minute)
		rules, err := table.ParseRules(ruleset, "north")
		testkit.Must(t, err)
		trial, err := table.ParseTrial(ruleset, rules, "north")
		testkit.Must(t, err)
		b := newBed(t, mesh(t, "north", "south"))
		b.Loop = NewLoop(t.Context(), b.ports, b.network, Kept{Rules: rules, Trial: trial, Highest: 6})
		b.rebuild()
		b.connected("a", elected)
		b.connected("a", other)
		b.wants(map[string]uint32{elected: 9000, other: 1000})
		b.take(ruleset)
		b.wants(map[string]uint32{elected: 9000, other: 1000})
	})
}
