package kubeletcpureceiver

import (
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// What the receiver reads of the kubelet of testdata; the collector's configuration adds the cluster.
func TestWritePrevious(t *testing.T) {
	config, scraper := kubeletOf(t, "token")
	if err := os.WriteFile(config.TokenFile, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	metrics, err := scraper.scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range metrics.ResourceMetrics().All() {
		resource.Resource().Attributes().PutStr("spillway.cluster", "west")
	}
	request, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(metrics)
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("SPILLWAY_PREVIOUS"), "otlp_metrics.binpb"), request, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
