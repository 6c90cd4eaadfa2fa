package kubeletcpureceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/scraper"
	"go.opentelemetry.io/collector/scraper/scraperhelper"
)

var componentType = component.MustNewType("kubelet_cpu")

// NewFactory returns the factory of receivers of type kubelet_cpu.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(componentType, createDefaultConfig,
		receiver.WithMetrics(createMetrics, component.StabilityLevelBeta))
}

func createMetrics(_ context.Context, set receiver.Settings, config component.Config, next consumer.Metrics) (
	receiver.Metrics, error,
) {
	cfg := config.(*Config)
	kubelet, err := newKubeletScraper(cfg, set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	metrics, err := scraper.NewMetrics(kubelet.scrape, scraper.WithStart(kubelet.start))
	if err != nil {
		return nil, err
	}
	return scraperhelper.NewMetricsController(&cfg.ControllerConfig, set, next,
		scraperhelper.AddMetricsScraper(componentType, metrics))
}
