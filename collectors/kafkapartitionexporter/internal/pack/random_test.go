package pack

import (
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// anyText returns a text that is mostly short, sometimes long, and sometimes empty.
func anyText(r *rand.Rand) string {
	switch r.IntN(10) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("x", r.IntN(3000))
	}
	return strings.Repeat("y", 1+r.IntN(20))
}

func anyResource(r *rand.Rand, resource pcommon.Resource) {
	if r.IntN(8) > 0 {
		resource.Attributes().PutStr("service.name", string(rune('a'+r.IntN(4))))
	}
	if r.IntN(3) == 0 {
		resource.Attributes().PutStr("host", anyText(r))
		resource.SetDroppedAttributesCount(uint32(r.IntN(3)))
	}
}

func anyTraceID(r *rand.Rand) pcommon.TraceID {
	return pcommon.TraceID{0: byte(r.IntN(3)), 15: byte(r.IntN(20))}
}

func anyTraces(r *rand.Rand) ptrace.Traces {
	batch := ptrace.NewTraces()
	for range r.IntN(6) {
		resource := batch.ResourceSpans().AppendEmpty()
		anyResource(r, resource.Resource())
		resource.SetSchemaUrl(anyText(r))
		for range r.IntN(4) {
			scope := resource.ScopeSpans().AppendEmpty()
			scope.Scope().SetName(anyText(r))
			scope.SetSchemaUrl(anyText(r))
			for range r.IntN(30) {
				span := scope.Spans().AppendEmpty()
				span.SetTraceID(anyTraceID(r))
				span.SetSpanID(pcommon.SpanID{byte(r.IntN(256)), byte(r.IntN(256))})
				span.SetName(anyText(r))
				span.Attributes().PutInt("n", r.Int64())
			}
		}
	}
	return batch
}

func anyMetrics(r *rand.Rand) pmetric.Metrics {
	batch := pmetric.NewMetrics()
	for range r.IntN(6) {
		resource := batch.ResourceMetrics().AppendEmpty()
		anyResource(r, resource.Resource())
		for range r.IntN(3) {
			scope := resource.ScopeMetrics().AppendEmpty()
			scope.Scope().SetVersion(anyText(r))
			for range r.IntN(6) {
				anyMetric(r, scope.Metrics().AppendEmpty())
			}
		}
	}
	return batch
}

func anyMetric(r *rand.Rand, metric pmetric.Metric) {
	metric.SetName(anyText(r))
	metric.SetUnit("s")
	metric.Metadata().PutStr("from", "test")
	points := r.IntN(40)
	switch r.IntN(6) {
	case 0:
		metric.SetEmptyGauge()
		for range points * 4 {
			anyNumber(r, metric.Gauge().DataPoints().AppendEmpty())
		}
	case 1:
		metric.SetEmptySum().SetIsMonotonic(true)
		metric.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		for range points {
			metric.Sum().DataPoints().AppendEmpty().SetIntValue(r.Int64())
		}
	case 2:
		metric.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range points {
			metric.Histogram().DataPoints().AppendEmpty().BucketCounts().FromRaw([]uint64{1, r.Uint64(), 3})
		}
	case 3:
		metric.SetEmptyExponentialHistogram()
		for range points {
			metric.ExponentialHistogram().DataPoints().AppendEmpty().Positive().BucketCounts().Append(r.Uint64(), 2)
		}
	case 4:
		metric.SetEmptySummary()
		for range points {
			metric.Summary().DataPoints().AppendEmpty().SetCount(r.Uint64())
		}
	}
}

func anyNumber(r *rand.Rand, point pmetric.NumberDataPoint) {
	point.SetDoubleValue(r.Float64())
	point.Attributes().PutStr("k", anyText(r))
}

// seeds checks a property on many random batches. A failure names the seed.
func seeds(t *testing.T, property func(t *testing.T, r *rand.Rand)) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		property(t, r)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
