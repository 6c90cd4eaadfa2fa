package relay

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"spillway.dev/relay/internal/count"
)

var described = regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// TestDeclaredMetricsAreDescribed checks that the declared metrics, from which the table in
// REFERENCE.md is generated, are exactly those that the relay describes to Prometheus.
func TestDeclaredMetricsAreDescribed(t *testing.T) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		(&count.Counters{}).Describe(descriptions)
		newMetrics(&Relay{counters: &count.Counters{}}).pushToAck.Describe(descriptions)
		gauges{}.Describe(descriptions)
	}()
	declared := Metrics()
	for description := range descriptions {
		found := described.FindStringSubmatch(description.String())
		if found == nil || len(declared) == 0 {
			t.Fatalf("%s: cannot be read, or is not declared", description)
		}
		metric := declared[0]
		declared = declared[1:]
		if metric.Name != found[1] || metric.Help != found[2] || strings.Join(metric.Labels, ",") != found[3] {
			t.Errorf("%s is declared as %+v", description, metric)
		}
	}
	if len(declared) > 0 {
		t.Errorf("declared, but not described: %+v", declared)
	}
}
