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

// TestMetricsAreInTheReadme checks that the rows of the table in REFERENCE.md, section Metrics, are
// exactly the relay's metrics. Alerts are checked against that table.
func TestMetricsAreInTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../REFERENCE.md")
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
	rows := "| metric | labels | what |\n|---|---|---|\n"
	for description := range descriptions {
		found := described.FindStringSubmatch(description.String())
		if found == nil {
			t.Fatalf("%s: cannot be read", description)
		}
		labels := ""
		if found[3] != "" {
			labels = "`" + strings.ReplaceAll(found[3], ",", "`, `") + "`"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", found[1], labels, found[2])
	}
	if !strings.Contains(string(readme), rows) {
		t.Errorf("REFERENCE.md, section Metrics: paste\n%s", rows)
	}
}
