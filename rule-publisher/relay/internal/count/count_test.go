package count

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTableIsWhole checks that every counter has a help text and a unique name in lower case
// letters and underscores. The pedantic registry, which refuses duplicates and inconsistencies,
// must gather all of them.
func TestTableIsWhole(t *testing.T) {
	counters := &Counters{}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(counters); err != nil {
		t.Fatal(err)
	}
	for c := range declared {
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(c.String()) || table[c].help == "" {
			t.Errorf("counter %d: name %q, help %q", c, c, table[c].help)
		}
		counters.AddN(c, int(c)+1)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != int(declared) {
		t.Fatalf("%d families, want %d: %v", len(families), declared, err)
	}
	for _, family := range families {
		value := uint64(family.GetMetric()[0].GetCounter().GetValue())
		counter := Counter(value - 1)
		if family.GetName() != prefix+counter.String()+"_total" || counters.Get(counter) != value {
			t.Errorf("%s is %d, which is the value of %s", family.GetName(), value, counter)
		}
	}
	if all := counters.All(); len(all) != int(declared) {
		t.Errorf("%d of %d counters in All", len(all), declared)
	}
}
