package kafkapartitionexporter

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

func came(t *testing.T, telemetry *componenttest.Telemetry) map[string]int64 {
	t.Helper()
	metric, err := telemetry.GetMetric("otelcol_exporter_kafka_partition_service_items")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		service, _ := point.Attributes.Value("service")
		scope, _ := point.Attributes.Value("scope")
		found[service.AsString()+" "+scope.AsString()] += point.Value
	}
	return found
}

// TestItemsAreCountedByServiceAndScope checks that the filter's items are counted separately from
// those that the application's own SDK sends for the same service. The alert on a silent filter
// needs that.
func TestItemsAreCountedByServiceAndScope(t *testing.T) {
	s, telemetry := testSender(t, &fake{count: 2}, 10_000)
	batch := spans("a", "b", "c")
	batch.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", "shop")
	batch.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName("sdk")
	if err := s.pushTraces(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	s.signal = pack.Metrics
	totals := pmetric.NewMetrics()
	resource := totals.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	scope := resource.ScopeMetrics().AppendEmpty()
	scope.Scope().SetName("spillway.filter")
	scope.Metrics().AppendEmpty().SetEmptySum().DataPoints().AppendEmpty()
	if err := s.pushMetrics(context.Background(), totals); err != nil {
		t.Fatal(err)
	}
	if found, want := came(t, telemetry), map[string]int64{"shop sdk": 3, "shop spillway.filter": 1}; !maps.Equal(found, want) {
		t.Errorf("counted %v, want %v", found, want)
	}
}

// TestNamesInRequestsMakeABoundedNumberOfSeries checks that senders beyond the limit are counted as
// other.
func TestNamesInRequestsMakeABoundedNumberOfSeries(t *testing.T) {
	s, telemetry := testSender(t, &fake{count: 1}, 1_000_000)
	for n := range maxSenders + 5 {
		batch := spans("a")
		batch.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", fmt.Sprint("service-", n))
		if err := s.pushTraces(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	found := came(t, telemetry)
	if len(found) != maxSenders+1 || found["other other"] != 5 {
		t.Errorf("%d series, %d items of others; want %d and 5", len(found), found["other other"], maxSenders+1)
	}
}

// TestALabelIsShortTextWhateverAServiceCallsItself checks that a label is short and valid UTF-8,
// because one that is not would make the whole page of metrics fail.
func TestALabelIsShortTextWhateverAServiceCallsItself(t *testing.T) {
	for _, name := range []string{"", "cart", "a\xff", strings.Repeat("ж", 200), "\xff\xfe" + strings.Repeat("x", 300)} {
		assert.True(t, utf8.ValidString(label(name)), "%q", name)
		assert.LessOrEqual(t, utf8.RuneCountInString(label(name)), maxSenderBytes)
	}
	assert.Equal(t, "cart", label("cart"))
}
