package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table/traffic"
)

const (
	maxVersion      = 1 << 53 // numbers of a Struct are doubles
	maxWindowLength = 256
)

// Weighted is the share of one destination cluster, in parts of names.ValueWeightTotal.
type Weighted struct {
	Cluster string
	Weight  uint32
}

type ruleKey struct {
	service string // the source service
	class   string // class id
}

// edge is a service that calls another.
type edge struct{ source, destination string }

// Rules is a checked ruleset, as one cluster's relay uses it.
type Rules struct {
	Version     uint64
	Policy      string
	InputWindow string
	ExpiresAt   time.Time
	Hold        time.Duration // how long after ExpiresAt the weights still apply, with decreasing effect
	cluster     string
	classes     []traffic.Class // sorted, the most specific first within a service
	weights     map[ruleKey][]Weighted
	edges       map[edge]bool
	denials     Denials // in force even after ExpiresAt
	// Skipped says which classes Envoy cannot match, and why. Their requests take the catch-all
	// route.
	Skipped []string
}

// ParseRules checks and reads a ruleset for the cluster. A ruleset that breaks the contract is
// refused as a whole, because its weights were chosen together. The error lists everything that is
// wrong.
func ParseRules(ruleset *spillwayv1.Ruleset, cluster string) (*Rules, error) {
	rules := &Rules{
		Version:     ruleset.GetVersion(),
		Policy:      ruleset.GetPolicy(),
		InputWindow: ruleset.GetInputWindow().GetId(),
		ExpiresAt:   ruleset.GetExpiresAt().AsTime(),
		cluster:     cluster,
		weights:     map[ruleKey][]Weighted{},
		edges:       map[edge]bool{},
	}
	var problems []error
	if rules.Version == 0 {
		problems = append(problems, errors.New("version: 0; must be at least 1"))
	}
	if rules.Version > maxVersion {
		problems = append(problems, fmt.Errorf("version: %d; must be at most %d, which route metadata can carry exactly", rules.Version, uint64(maxVersion)))
	}
	if len(rules.InputWindow) > maxWindowLength {
		problems = append(problems, fmt.Errorf("input_window.id: %d bytes; must be at most %d, because every route carries it", len(rules.InputWindow), maxWindowLength))
	}
	if !ruleset.GetExpiresAt().IsValid() || ruleset.GetExpiresAt() == nil {
		problems = append(problems, errors.New("expires_at: missing or out of range"))
	}
	known := map[string]bool{}
	for _, class := range ruleset.GetTrafficClasses() {
		rules.addClass(class, known)
	}
	for i, rule := range ruleset.GetRules() {
		if err := rules.addRule(rule, cluster, known); err != nil {
			problems = append(problems, fmt.Errorf("rules[%d].%w", i, err))
		}
	}
	problems = append(problems, rules.parseDenials(ruleset.GetDenials(), cluster, known)...)
	traffic.SortClasses(rules.classes)
	slices.Sort(rules.Skipped)
	return rules, errors.Join(problems...)
}

// addClass adds a class unless it is known. It returns the class id, also for a class that is
// skipped.
func (r *Rules) addClass(class *spillwayv1.TrafficClass, known map[string]bool) string {
	id := class.GetService() + " " + class.GetMethod() + " " + class.GetPathTemplate()
	if known[id] {
		return id
	}
	known[id] = true
	parsed, err := traffic.ParseClass(class)
	if err != nil {
		r.Skipped = append(r.Skipped, err.Error())
		return id
	}
	r.classes = append(r.classes, parsed)
	return id
}

func (r *Rules) addRule(rule *spillwayv1.Rule, cluster string, known map[string]bool) error {
	if rule.GetSourceCluster() != cluster {
		return fmt.Errorf("source_cluster: %q; this relay's cluster is %q", rule.GetSourceCluster(), cluster)
	}
	if rule.GetSourceService() == "" {
		return errors.New("source_service: empty")
	}
	key := ruleKey{service: rule.GetSourceService(), class: r.addClass(rule.GetTrafficClass(), known)}
	if _, twice := r.weights[key]; twice {
		return fmt.Errorf("traffic_class: a second rule for %s from %s", key.class, key.service)
	}
	weights, err := parseDestinations(rule.GetDestinations())
	if err != nil {
		return fmt.Errorf("destinations: %w", err)
	}
	r.weights[key] = weights
	r.edges[edge{key.service, rule.GetTrafficClass().GetService()}] = true
	return nil
}

func parseDestinations(destinations []*spillwayv1.Destination) ([]Weighted, error) {
	weights := make([]Weighted, 0, len(destinations))
	var total uint64
	for _, d := range destinations {
		if slices.ContainsFunc(weights, func(w Weighted) bool { return w.Cluster == d.GetCluster() }) {
			return nil, fmt.Errorf("cluster %q is listed twice", d.GetCluster())
		}
		weights = append(weights, Weighted{Cluster: d.GetCluster(), Weight: d.GetWeight()})
		total += uint64(d.GetWeight())
	}
	if total != names.ValueWeightTotal {
		return nil, fmt.Errorf("weights sum to %d; must be %d", total, names.ValueWeightTotal)
	}
	slices.SortFunc(weights, func(a, b Weighted) int { return strings.Compare(a.Cluster, b.Cluster) })
	return weights, nil
}

// Released reports whether the weights no longer have any effect at `now`.
func (r *Rules) Released(now time.Time) bool {
	return !now.Before(r.ExpiresAt.Add(r.Hold))
}

// kept returns how many steps of the weights one source service keeps. Without rules it keeps all.
func (r *Rules) kept(service string, now time.Time) uint32 {
	if r == nil || !r.Expired(now) {
		return names.ValueHoldSteps
	}
	return keptSteps(now.Sub(r.ExpiresAt), r.Hold, r.cluster, service)
}

// Expired reports whether the rules have expired at `now`. Expired rules are not accepted any more,
// but may still be held.
func (r *Rules) Expired(now time.Time) bool {
	return !now.Before(r.ExpiresAt)
}

// classed reports whether the source service's proxies must distinguish the destination's classes.
// They must when a rule says that the service calls the destination, or when one of the
// destination's classes is denied some clusters, whichever service calls it.
func (r *Rules) classed(source, destination string) bool {
	return r != nil && (r.edges[edge{source, destination}] || r.denials.names(destination))
}
