package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
)

func rulesetOnTrial() *spillwayv1.Ruleset {
	own := &spillwayv1.Ruleset{Version: 4, ExpiresAt: timestamppb.New(now.Add(time.Minute)),
		Rules: []*spillwayv1.Rule{{SourceCluster: "a", SourceService: "gate", TrafficClass: shop, Destinations: []*spillwayv1.Destination{to("b", 10000)}}}}
	tried := proto.Clone(own).(*spillwayv1.Ruleset)
	tried.Rules[0].Destinations = []*spillwayv1.Destination{to("b", 4000), to("a", 6000)}
	own.Canary = &spillwayv1.Canary{Ruleset: tried, Share: 2500, Until: timestamppb.New(now.Add(time.Second))}
	return own
}

func parsedTrial(ruleset *spillwayv1.Ruleset) (*Trial, error) {
	rules, err := ParseRules(ruleset, "a")
	if err != nil {
		return nil, err
	}
	return ParseTrial(ruleset, rules, "a")
}

// TestATrialHasItsOwnRulesUntilItEnds checks that a trial is read with the rules that it tries, and
// that it goes on until its end. Clusters that do not take part have none, and neither has a
// ruleset without a canary.
func TestATrialHasItsOwnRulesUntilItEnds(t *testing.T) {
	ruleset := rulesetOnTrial()
	trial, err := parsedTrial(ruleset)
	if err != nil || trial.Share != 2500 || len(trial.Rules.weights[ruleKey{"gate", "shop GET /items/{id}"}]) != 2 {
		t.Fatalf("%+v, %v", trial, err)
	}
	if !trial.On(now) || trial.On(now.Add(time.Second)) || (*Trial)(nil).On(now) {
		t.Error("it must go on until its end, and without a trial never")
	}
	ruleset.Canary.Clusters = []string{"b", "c"}
	if trial, err := parsedTrial(ruleset); trial != nil || err != nil {
		t.Errorf("a trial of other clusters: %+v, %v", trial, err)
	}
	ruleset.Canary = nil
	if trial, err := parsedTrial(ruleset); trial != nil || err != nil {
		t.Errorf("without a canary: %+v, %v", trial, err)
	}
}

// TestABrokenTrialIsRefused checks that each mistake is named with its key, its value and what is
// allowed, also in a cluster that does not take part.
func TestABrokenTrialIsRefused(t *testing.T) {
	for says, breaks := range map[string]func(*spillwayv1.Canary){
		"canary.share: 0; must be 1 to 10000":            func(c *spillwayv1.Canary) { c.Share = 0 },
		"canary.share: 10001; must be 1 to 10000":        func(c *spillwayv1.Canary) { c.Share = 10001 },
		"canary.until: missing or out of range":          func(c *spillwayv1.Canary) { c.Until = nil },
		"canary.ruleset: version: 0; must be at least 1": func(c *spillwayv1.Canary) { c.Ruleset = nil },
		"canary.ruleset.version: 5; must be 4":           func(c *spillwayv1.Canary) { c.Ruleset.Version = 5 },
		"weights sum to 9000; must be 10000":             func(c *spillwayv1.Canary) { c.Ruleset.Rules[0].Destinations[0].Weight = 3000 },
		"canary.ruleset.denials: must be the ruleset's own": func(c *spillwayv1.Canary) {
			c.Ruleset.Denials = []*spillwayv1.Denial{{SourceCluster: "a", Clusters: []string{"b"}}}
		},
	} {
		ruleset := rulesetOnTrial()
		ruleset.Canary.Clusters = []string{"b"}
		breaks(ruleset.Canary)
		if _, err := parsedTrial(ruleset); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestElectionIsStableAndGrowsWithTheShare checks that about the share of many Envoys is elected,
// that a larger share includes a smaller one, and that the whole share elects all. The hash is that
// of heartbeats: the publisher elects the same (test_trials.py has the same Envoys).
func TestElectionIsStableAndGrowsWithTheShare(t *testing.T) {
	elected := map[uint32]int{}
	for i := range 4000 {
		envoy := fmt.Sprintf("north/web/web-7d9f8c-%04x", i*7919%65536)
		before := false
		for _, share := range []uint32{100, 1000, 5000, 10000} {
			is := (&Trial{Share: share}).Elects(envoy)
			if before && !is {
				t.Fatalf("%s is elected for a smaller share than %d, but not for this", envoy, share)
			}
			if before = is; is {
				elected[share]++
			}
		}
	}
	if elected[10000] != 4000 || elected[5000] < 1800 || elected[5000] > 2200 || elected[1000] < 300 || elected[1000] > 500 {
		t.Errorf("of 4000 are elected, by share: %v", elected)
	}
	for envoy, want := range map[string]bool{"north/web/0": false, "north/web/1": false, "north/web/2": true, "north/web/3": true} {
		if got := (&Trial{Share: 5000}).Elects(envoy); got != want {
			t.Errorf("%s is elected: %v, want %v", envoy, got, want)
		}
	}
}
