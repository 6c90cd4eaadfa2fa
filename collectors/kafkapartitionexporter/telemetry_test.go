package kafkapartitionexporter

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// expect compares counters, each named "metric" or "metric reason". All must carry the topic.
func expect(t *testing.T, telemetry *componenttest.Telemetry, want map[string]int64) {
	t.Helper()
	for name, value := range want {
		metric, reason, _ := strings.Cut(name, " ")
		found, err := telemetry.GetMetric(metric)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var sum int64
		for _, point := range found.Data.(metricdata.Sum[int64]).DataPoints {
			if topic, _ := point.Attributes.Value("topic"); topic.AsString() != "otlp_spans" {
				t.Errorf("%s: topic %q", name, topic.AsString())
			}
			if got, _ := point.Attributes.Value("reason"); got.AsString() == reason {
				sum += point.Value
			}
		}
		if sum != value {
			t.Errorf("%s is %d, want %d", name, sum, value)
		}
	}
}
