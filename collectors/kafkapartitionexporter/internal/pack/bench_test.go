package pack

import (
	"math/rand/v2"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// BenchmarkRequest packs a batch like those of the gateway: 8192 spans of 400 requests from 8
// senders.
func BenchmarkRequest(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	batch := ptrace.NewTraces()
	for n := range 400 {
		resource := batch.ResourceSpans().AppendEmpty()
		resource.Resource().Attributes().PutStr("service.name", string(rune('a'+n%8)))
		spans := resource.ScopeSpans().AppendEmpty().Spans()
		for range 8192 / 400 {
			span := spans.AppendEmpty()
			var id pcommon.TraceID
			for i := range id {
				id[i] = byte(r.IntN(256))
			}
			span.SetTraceID(id)
			for _, key := range []string{"http.request.method", "url.path", "spillway.class", "server.address"} {
				span.Attributes().PutStr(key, "some value of this attribute")
			}
		}
	}
	request := encodeTraces(b, batch)
	b.SetBytes(int64(len(request)))
	for b.Loop() {
		if _, err := Traces.Request(request, 4, Limits{Target: 4_000_000, Hard: 4_000_000}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch.SpanCount()), "ns/span")
}
