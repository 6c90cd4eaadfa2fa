package relay

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"spillway.dev/relay/internal/count"
)

var described = regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// TestMetricsAreInTheReference checks that the declared metrics are exactly those that the relay
// describes to Prometheus, and the rows of the table in REFERENCE.md, section Metrics. Alerts are
// checked against that table.
func TestMetricsAreInTheReference(t *testing.T) {
	reference, err := os.ReadFile("../../REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		(&count.Counters{}).Describe(descriptions)
		newMetrics(&Relay{counters: &count.Counters{}}).pushToAck.Describe(descriptions)
		gauges{}.Describe(descriptions)
	}()
	declared := Metrics()
	rows := "| metric | labels | type | what |\n|---|---|---|---|\n"
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
		labels := ""
		if found[3] != "" {
			labels = "`" + strings.ReplaceAll(found[3], ",", "`, `") + "`"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s | %s |\n", found[1], labels, metric.Type, found[2])
	}
	if len(declared) > 0 {
		t.Errorf("declared, but not described: %+v", declared)
	}
	if !strings.Contains(string(reference), rows) {
		t.Errorf("REFERENCE.md, section Metrics: run python tools/box_tables.py, which writes\n%s", rows)
	}
}
