package table

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

// Denials are the clusters that requests from the relay's own cluster must never reach.
type Denials struct {
	everything []string                       // for every request
	services   map[string][]string            // for every request of a service
	classes    map[string]map[string][]string // by service, then the form of a class
}

// parseDenials checks and reads. Clusters that the topology does not have are no error: its file and
// the publisher's may change at different times, and a ruleset that is refused denies nothing new.
func (r *Rules) parseDenials(denials []*spillwayv1.Denial, cluster string, known map[string]bool) (problems []error) {
	if len(denials) > names.ValueDenialsPerCluster {
		return []error{fmt.Errorf("denials: %d, at most %d", len(denials), names.ValueDenialsPerCluster)}
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

// add a denial. What Envoy cannot tell from a service's other requests is denied to all of them.
func (d *Denials) add(class *spillwayv1.TrafficClass, clusters []string) {
	service := class.GetService()
	parsed, err := ParseClass(class)
	switch {
	case class == nil:
		d.everything = union(d.everything, clusters)
	case err != nil:
		d.services = with(d.services, service, union(d.services[service], clusters))
	default:
		forms := d.classes[service]
		d.classes = with(d.classes, service, with(forms, parsed.form(), union(forms[parsed.form()], clusters)))
	}
}

// form is the same for classes that match the same requests: names of variables do not count.
func (c Class) form() string {
	form := c.Method + " "
	for _, s := range c.Template.segments {
		if form += "/" + s.prefix; s.variable != "" {
			form += "{}" + s.suffix
		}
	}
	return form
}

func with[V any](in map[string]V, key string, value V) map[string]V {
	if in == nil {
		in = map[string]V{}
	}
	in[key] = value
	return in
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// names tells whether a denial is of a class of the service.
func (d *Denials) names(service string) bool { return len(d.classes[service]) > 0 }

// of gives what is denied to requests of the form, or with "" to those of no class, in order.
func (d *Denials) of(service, form string) []string {
	return union(union(d.everything, d.services[service]), d.classes[service][form])
}

// Denials of the rules; of none, nothing is denied.
func (r *Rules) Denials() Denials {
	if r == nil {
		return Denials{}
	}
	return r.denials
}

// Equal tells whether both deny the same.
func (d Denials) Equal(other Denials) bool { return reflect.DeepEqual(d, other) }

// Sets of clusters that some requests for the service must not reach, each in order; no set is empty.
func (d *Denials) Sets(service string) [][]string {
	sets := [][]string{d.of(service, "")}
	for form := range d.classes[service] {
		sets = append(sets, d.of(service, form))
	}
	slices.SortFunc(sets, slices.Compare[[]string])
	sets = slices.CompactFunc(sets, slices.Equal[[]string])
	return slices.DeleteFunc(sets, func(set []string) bool { return len(set) == 0 })
}

// Except splits tiers into those that are allowed, in their order, and the names of the others, sorted.
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

// closed says why nothing of the service may be called.
func closed(without []string) string {
	return fmt.Sprintf("closed: every cluster that has it is denied (%s)", strings.Join(without, ", "))
}
