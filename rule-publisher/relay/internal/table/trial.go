package table

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

// Trial is a ruleset on trial, as one cluster's relay uses it: the elected Envoys route by its
// rules, and all others by those of the ruleset that carries it.
type Trial struct {
	Rules *Rules
	Share uint32    // of the cluster's Envoys, in parts of names.ValueWeightTotal
	Until time.Time // the trial ends by itself then
}

// ParseTrial checks and reads the canary of a ruleset, whose own rules are given. It returns nil
// when no Envoy of the cluster takes part.
func ParseTrial(ruleset *spillwayv1.Ruleset, rules *Rules, cluster string) (*Trial, error) {
	canary := ruleset.GetCanary()
	if canary == nil {
		return nil, nil
	}
	var problems []error
	if share := canary.GetShare(); share == 0 || share > names.ValueWeightTotal {
		problems = append(problems, fmt.Errorf("canary.share: %d; must be 1 to %d", share, names.ValueWeightTotal))
	}
	if canary.GetUntil() == nil || !canary.GetUntil().IsValid() {
		problems = append(problems, errors.New("canary.until: missing or out of range"))
	}
	tried, err := ParseRules(canary.GetRuleset(), cluster)
	switch {
	case err != nil:
		problems = append(problems, fmt.Errorf("canary.ruleset: %w", err))
	case tried.Version != rules.Version:
		problems = append(problems, fmt.Errorf("canary.ruleset.version: %d; must be %d, the ruleset's own", tried.Version, rules.Version))
	case !tried.denials.Equal(rules.denials):
		problems = append(problems, errors.New("canary.ruleset.denials: must be the ruleset's own"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if among := canary.GetClusters(); len(among) > 0 && !slices.Contains(among, cluster) {
		return nil, nil
	}
	return &Trial{Rules: tried, Share: canary.GetShare(), Until: canary.GetUntil().AsTime()}, nil
}

// On reports whether the trial goes on at `now`. A nil trial never does.
func (t *Trial) On(now time.Time) bool { return t != nil && now.Before(t.Until) }

// Elects reports whether the Envoy with this node id takes part. All relays of the cluster elect
// the same Envoys, also after a restart, and a larger share includes a smaller one.
func (t *Trial) Elects(envoy string) bool {
	hash := fnv.New32a()
	hash.Write([]byte(envoy))
	return hash.Sum32()%names.ValueWeightTotal < t.Share
}
