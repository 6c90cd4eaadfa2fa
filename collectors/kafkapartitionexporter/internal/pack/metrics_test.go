package pack

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

func encodeMetrics(t testing.TB, batch pmetric.Metrics) []byte {
	t.Helper()
	request, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(batch)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func packMetrics(t testing.TB, batch pmetric.Metrics, partitions int, limits Limits) Packed {
	t.Helper()
	packed, err := Metrics.Request(encodeMetrics(t, batch), partitions, limits)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// pointsOf counts every data point, with its resource, scope and metric, by its encoding.
func pointsOf(t testing.TB, batches ...pmetric.Metrics) map[string]int {
	found := make(map[string]int)
	for _, batch := range batches {
		for _, resource := range batch.ResourceMetrics().All() {
			for _, scope := range resource.ScopeMetrics().All() {
				for _, metric := range scope.Metrics().All() {
					countPointsOf(t, found, resource, scope, metric)
				}
			}
		}
	}
	return found
}

// countPointsOf makes a request for each single point: it removes all other points from a copy.
func countPointsOf(t testing.TB, found map[string]int, resource pmetric.ResourceMetrics, scope pmetric.ScopeMetrics, metric pmetric.Metric) {
	whole := pmetric.NewMetrics()
	to := whole.ResourceMetrics().AppendEmpty()
	resource.Resource().CopyTo(to.Resource())
	into := to.ScopeMetrics().AppendEmpty()
	scope.Scope().CopyTo(into.Scope())
	metric.CopyTo(into.Metrics().AppendEmpty())
	for n := range whole.DataPointCount() {
		single := pmetric.NewMetrics()
		whole.CopyTo(single)
		keep(single.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0), n)
		found[string(encodeMetrics(t, single))]++
	}
}

func keep(metric pmetric.Metric, n int) {
	i := -1
	other := func() bool { i++; return i != n }
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		metric.Gauge().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return other() })
	case pmetric.MetricTypeSum:
		metric.Sum().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return other() })
	case pmetric.MetricTypeHistogram:
		metric.Histogram().DataPoints().RemoveIf(func(pmetric.HistogramDataPoint) bool { return other() })
	case pmetric.MetricTypeExponentialHistogram:
		metric.ExponentialHistogram().DataPoints().RemoveIf(func(pmetric.ExponentialHistogramDataPoint) bool { return other() })
	case pmetric.MetricTypeSummary:
		metric.Summary().DataPoints().RemoveIf(func(pmetric.SummaryDataPoint) bool { return other() })
	}
}

func serviceOf(resource pmetric.ResourceMetrics) string {
	if value, named := resource.Resource().Attributes().Get("service.name"); named {
		return value.AsString()
	}
	return ""
}

// TestNoDataPointIsLostOrDoubled checks that every point arrives once, with name, unit, temporality
// and resource, also when a metric is cut. Missing points are counted. No message exceeds the hard
// limit, and only a message with a single point exceeds the target. Each service is in one
// partition.
func TestNoDataPointIsLostOrDoubled(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		batch, hard := anyMetrics(r), 1000+r.IntN(20_000)
		limits := Limits{Target: min(hard, 200+r.IntN(5000)), Hard: hard}
		packed := packMetrics(t, batch, 1+r.IntN(6), limits)
		var parts []pmetric.Metrics
		where := make(map[string]int32)
		items := 0
		for _, message := range packed.Messages {
			decoded, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(message.Value)
			size := len(message.Value)
			if err != nil || size > limits.Hard || (size > limits.Target && message.Items > 1) {
				t.Fatalf("%d bytes with %d points, limits %+v: %v", size, message.Items, limits, err)
			}
			parts = append(parts, decoded)
			items += message.Items
			for _, resource := range decoded.ResourceMetrics().All() {
				service := serviceOf(resource)
				if before, seen := where[service]; seen && before != message.Partition {
					t.Errorf("service %q is in two partitions", service)
				}
				where[service] = message.Partition
			}
		}
		if items+packed.TooLarge != batch.DataPointCount() {
			t.Errorf("%d sent and %d dropped of %d points", items, packed.TooLarge, batch.DataPointCount())
		}
		source, sent := pointsOf(t, batch), pointsOf(t, parts...)
		if packed.TooLarge == 0 && !maps.Equal(source, sent) {
			t.Error("the points of the messages are not those of the batch")
		}
		for point, count := range sent {
			if count > source[point] {
				t.Error("a point was made up or doubled")
			}
		}
	})
}

// TestALargeMetricIsCutBetweenItsPoints checks that a metric above the limit loses nothing.
func TestALargeMetricIsCutBetweenItsPoints(t *testing.T) {
	batch := pmetric.NewMetrics()
	metric := batch.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("requests")
	metric.SetEmptySum()
	for n := range 1000 {
		metric.Sum().DataPoints().AppendEmpty().SetIntValue(int64(n))
	}
	packed := packMetrics(t, batch, 4, Limits{Target: 1000, Hard: 1000})
	items := 0
	for _, message := range packed.Messages {
		items += message.Items
	}
	if items != 1000 || packed.TooLarge != 0 || packed.Splits != len(packed.Messages)-1 || packed.Splits < 10 {
		t.Errorf("%d points in %d messages, %d dropped", items, len(packed.Messages), packed.TooLarge)
	}
}

// TestWhatTheHardLimitAllowsIsNotDropped checks that a metric of the hard limit's size is sent
// whole, although the bound of its parts is computed with room to spare. Of a metric above the
// limit, only the point that fits nowhere is dropped.
func TestWhatTheHardLimitAllowsIsNotDropped(t *testing.T) {
	batch := pmetric.NewMetrics()
	metric := batch.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("requests")
	points := metric.SetEmptyGauge().DataPoints()
	points.AppendEmpty().Attributes().PutStr("k", strings.Repeat("v", 3000))
	hard := len(encodeMetrics(t, batch)) + nesting
	for n, want := range []struct{ items, lost int }{{1, 0}, {2, 0}, {2, 1}} {
		switch n {
		case 1:
			points.AppendEmpty()
		case 2:
			points.AppendEmpty().Attributes().PutStr("k", strings.Repeat("v", 4000))
		}
		packed := packMetrics(t, batch, 1, Limits{Target: 500, Hard: hard})
		items := 0
		for _, message := range packed.Messages {
			items += message.Items
		}
		if items != want.items || packed.TooLarge != want.lost {
			t.Errorf("%d points sent and %d dropped, want %+v", items, packed.TooLarge, want)
		}
	}
}
