package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

const (
	maxVersion      = 1 << 53 // numbers of a Struct are doubles
	maxWindowLength = 256
)

// Weighted is a share, in parts of names.ValueWeightTotal, of one destination cluster.
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

// Rules is a checked ruleset as one cluster's relay uses it.
type Rules struct {
	Version     uint64
	Policy      string
	InputWindow string
	ExpiresAt   time.Time
	Hold        time.Duration // how long after that they still steer, less and less
	cluster     string
	classes     []Class // sorted, most specific first within a service
	weights     map[ruleKey][]Weighted
	edges       map[edge]bool
	denials     Denials // in force beyond ExpiresAt
	// Skipped says which classes Envoy cannot match, and why. They are routed as catch-all.
	Skipped []string
}

// ParseRules checks a ruleset for the cluster and reads it. A ruleset that breaks the contract is
// refused whole, since its weights were chosen together; the error lists everything that is wrong.
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
		problems = append(problems, errors.New("version: 0; a published ruleset has a version of at least 1"))
	}
	if rules.Version > maxVersion {
		problems = append(problems, fmt.Errorf("version: %d, at most %d: route metadata cannot say more exactly", rules.Version, uint64(maxVersion)))
	}
	if len(rules.InputWindow) > maxWindowLength {
		problems = append(problems, fmt.Errorf("input_window.id: %d bytes, at most %d: every route carries it", len(rules.InputWindow), maxWindowLength))
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
	SortClasses(rules.classes)
	slices.Sort(rules.Skipped)
	return rules, errors.Join(problems...)
}

// addClass returns the class id, also of a class that is skipped.
func (r *Rules) addClass(class *spillwayv1.TrafficClass, known map[string]bool) string {
	id := class.GetService() + " " + class.GetMethod() + " " + class.GetPathTemplate()
	if known[id] {
		return id
	}
	known[id] = true
	parsed, err := ParseClass(class)
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
		return nil, fmt.Errorf("weights sum to %d, must be %d", total, names.ValueWeightTotal)
	}
	slices.SortFunc(weights, func(a, b Weighted) int { return strings.Compare(a.Cluster, b.Cluster) })
	return weights, nil
}

// Released tells whether the rules steer nothing any more at the instant.
func (r *Rules) Released(now time.Time) bool {
	return !now.Before(r.ExpiresAt.Add(r.Hold))
}

// kept steps of the rules of one source service; all of no rules.
func (r *Rules) kept(service string, now time.Time) uint32 {
	if r == nil || !r.Expired(now) {
		return names.ValueHoldSteps
	}
	return keptSteps(now.Sub(r.ExpiresAt), r.Hold, r.cluster, service)
}

// Expired tells whether the publisher has let the rules run out at the instant: they are not taken anew.
func (r *Rules) Expired(now time.Time) bool {
	return !now.Before(r.ExpiresAt)
}

// classed tells whether the source service's proxies must tell the destination's classes apart: a rule
// has it call the destination, or one of the classes is denied some clusters, whoever calls it.
func (r *Rules) classed(source, destination string) bool {
	return r != nil && (r.edges[edge{source, destination}] || r.denials.names(destination))
}
