package kubeletcpureceiver

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// kubeletOf starts a server that answers as a kubelet does (testdata/), over TLS, to clients that
// present the token.
func kubeletOf(t *testing.T, token string) (*Config, *kubeletScraper) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		file := map[string]string{"/stats/summary": "summary.json", "/pods": "pods.json"}[r.URL.Path]
		http.ServeFile(w, r, filepath.Join("testdata", file))
	}))
	t.Cleanup(server.Close)
	folder := t.TempDir()
	config := createDefaultConfig().(*Config)
	config.Endpoint, config.ServiceLabel = server.URL, "app"
	config.TokenFile, config.TLS.CAFile = filepath.Join(folder, "token"), filepath.Join(folder, "ca.crt")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(config.TLS.CAFile, ca, 0o600))
	require.NoError(t, config.Validate())
	scraper, err := newKubeletScraper(config, componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	require.NoError(t, scraper.start(t.Context(), componenttest.NewNopHost()))
	return config, scraper
}

func points(metrics pmetric.Metrics) map[string]float64 {
	found := map[string]float64{}
	for _, resource := range metrics.ResourceMetrics().All() {
		pod, _ := resource.Resource().Attributes().Get("k8s.pod.name")
		for _, m := range resource.ScopeMetrics().At(0).Metrics().All() {
			found[pod.Str()+" "+m.Name()] = m.Gauge().DataPoints().At(0).DoubleValue()
		}
	}
	return found
}

// TestScrape checks that a reading is passed on once, with usage, limit and share, and that the
// token is read at every scrape.
func TestScrape(t *testing.T) {
	config, scraper := kubeletOf(t, "second")
	require.NoError(t, os.WriteFile(config.TokenFile, []byte("first\n"), 0o600))
	_, err := scraper.scrape(t.Context())
	require.ErrorContains(t, err, "GET /stats/summary: 401 Unauthorized")
	require.NoError(t, os.WriteFile(config.TokenFile, []byte("second\n"), 0o600))
	first, err := scraper.scrape(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{
		"cart-5d9c7b6f4-x2x8v container.cpu.usage":                 0.25,
		"cart-5d9c7b6f4-x2x8v k8s.container.cpu_limit":             0.5,
		"cart-5d9c7b6f4-x2x8v k8s.container.cpu_limit_utilization": 0.5,
		"batch-28 container.cpu.usage":                             0.75,
	}, points(first))
	again, err := scraper.scrape(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again.DataPointCount())
}

// TestConfigNamesEveryWrongKey checks that every wrong key is reported, and that an endpoint that
// would send the token unencrypted is refused.
func TestConfigNamesEveryWrongKey(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Endpoint, config.TokenFile = "http://node:10255", ""
	err := config.Validate()
	require.Error(t, err)
	for _, key := range []string{"endpoint: ", "token_file: ", "service_label: "} {
		assert.ErrorContains(t, err, key)
	}
}
