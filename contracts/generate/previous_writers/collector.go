package kafkapartitionexporter

import (
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// The Kafka message that the filter's request becomes.
func TestWritePrevious(t *testing.T) {
	folder := os.Getenv("SPILLWAY_PREVIOUS")
	request, err := os.ReadFile(filepath.Join(folder, "filter.otlp"))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(request)
	if err != nil {
		t.Fatal(err)
	}
	kafka := &fake{count: 4}
	s, _ := testSender(t, kafka, 100_000)
	if err := s.pushTraces(t.Context(), batch); err != nil || len(kafka.taken) != 1 {
		t.Fatal(err, len(kafka.taken))
	}
	if err := os.WriteFile(filepath.Join(folder, "otlp_spans.binpb"), kafka.taken[0].Value, 0o600); err != nil {
		t.Fatal(err)
	}
}
