package table

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table/traffic"
)

// Denials holds the clusters that requests from the relay's own cluster must never reach.
type Denials struct {
	everything []string                       // for every request
	services   map[string][]string            // for every request of a service
	classes    map[string]map[string][]string // by service, then by the form of a class
}

// parseDenials checks and adds the denials. A cluster that the topology does not have is not an
// error, because its file and the publisher's may change at different times, and refusing the
// ruleset would also refuse its new denials.
func (r *Rules) parseDenials(denials []*spillwayv1.Denial, cluster string, known map[string]bool) (problems []error) {
	if len(denials) > names.ValueDenialsPerCluster {
		return []error{fmt.Errorf("denials: %d; must be at most %d", len(denials), names.ValueDenialsPerCluster)}
	}
	seen := map[string]bool{}
	for i, denial := range denials {
		class := denial.GetTrafficClass()
		id := ""
		if class != nil {
			id = r.addClass(class, known)
		}
		if err := checkDenial(denial, cluster); err != nil {
			problems = append(problems, fmt.Errorf("denials[%d].%w", i, err))
		}
		if seen[id] {
			problems = append(problems, fmt.Errorf("denials[%d].traffic_class: a second denial of %q", i, id))
		}
		seen[id] = true
		r.denials.add(class, denial.GetClusters())
	}
	return problems
}

func checkDenial(denial *spillwayv1.Denial, cluster string) error {
	denied := denial.GetClusters()
	sorted := slices.Compact(slices.Sorted(slices.Values(denied)))
	switch {
	case denial.GetSourceCluster() != cluster:
		return fmt.Errorf("source_cluster: %q; this relay's cluster is %q", denial.GetSourceCluster(), cluster)
	case len(denied) == 0:
		return errors.New("clusters: none; at least one must be named")
	case !slices.Equal(denied, sorted):
		return fmt.Errorf("clusters: %q must be in order, each once", denied)
	}
	return nil
}

// add adds a denial. When Envoy cannot distinguish the class from the service's other requests, the
// denial applies to all of them.
func (d *Denials) add(class *spillwayv1.TrafficClass, clusters []string) {
	service := class.GetService()
	parsed, err := traffic.ParseClass(class)
	switch {
	case class == nil:
		d.everything = union(d.everything, clusters)
	case err != nil:
		d.services = with(d.services, service, union(d.services[service], clusters))
	default:
		forms := d.classes[service]
		d.classes = with(d.classes, service, with(forms, parsed.Form(), union(forms[parsed.Form()], clusters)))
	}
}

// with returns the map with the key set. A nil map is replaced by a new one.
func with[V any](in map[string]V, key string, value V) map[string]V {
	if in == nil {
		in = map[string]V{}
	}
	in[key] = value
	return in
}

// union returns the sorted values of both lists, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// names reports whether a denial names a class of the service.
func (d *Denials) names(service string) bool { return len(d.classes[service]) > 0 }

// of returns, sorted, the clusters that are denied to requests of the form, or with "" to requests
// of no class.
func (d *Denials) of(service, form string) []string {
	return union(union(d.everything, d.services[service]), d.classes[service][form])
}

// Denials returns the denials of the rules. Without rules, nothing is denied.
func (r *Rules) Denials() Denials {
	if r == nil {
		return Denials{}
	}
	return r.denials
}

// Equal reports whether both deny the same.
func (d Denials) Equal(other Denials) bool { return reflect.DeepEqual(d, other) }

// Sets returns the sets of clusters that some requests for the service must not reach. Each set is
// sorted, and none is empty.
func (d *Denials) Sets(service string) [][]string {
	sets := [][]string{d.of(service, "")}
	for form := range d.classes[service] {
		sets = append(sets, d.of(service, form))
	}
	slices.SortFunc(sets, slices.Compare[[]string])
	sets = slices.CompactFunc(sets, slices.Equal[[]string])
	return slices.DeleteFunc(sets, func(set []string) bool { return len(set) == 0 })
}

// Except splits the tiers into the allowed ones, in their order, and the sorted cluster names of
// the others.
func Except(tiers []Tier, denied []string) (allowed []Tier, without []string) {
	if len(denied) == 0 {
		return tiers, nil
	}
	for _, tier := range tiers {
		if slices.Contains(denied, tier.Cluster) {
			without = append(without, tier.Cluster)
		} else {
			allowed = append(allowed, tier)
		}
	}
	slices.Sort(without)
	return allowed, without
}

// closed says why no cluster of the service may be called.
func closed(without []string) string {
	return fmt.Sprintf("closed: every cluster that has it is denied (%s)", strings.Join(without, ", "))
}
