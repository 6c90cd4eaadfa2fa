package kafkapartitionexporter

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// TestDataBeforeTheStartIsRefused checks that nothing is accepted before the queue is there. The
// error is not permanent, so the sender tries again.
func TestDataBeforeTheStartIsRefused(t *testing.T) {
	factory, ctx := NewFactory(), context.Background()
	config := factory.CreateDefaultConfig().(*Config)
	config.Brokers = []string{"127.0.0.1:1"}
	config.TimeoutSettings.Timeout = 100 * time.Millisecond
	config.BackOffConfig.Enabled = false
	traces, err := factory.CreateTraces(ctx, exportertest.NewNopSettings(factory.Type()), config)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := factory.CreateMetrics(ctx, exportertest.NewNopSettings(factory.Type()), config)
	if err != nil {
		t.Fatal(err)
	}
	for signal, err := range map[string]error{
		"traces":  traces.ConsumeTraces(ctx, spans("a")),
		"metrics": metrics.ConsumeMetrics(ctx, pmetric.NewMetrics()),
	} {
		if !errors.Is(err, errStarting) || consumererror.IsPermanent(err) {
			t.Errorf("%s before the start: %v", signal, err)
		}
	}
	for signal, started := range map[string]component.Component{"traces": traces, "metrics": metrics} {
		if err := started.Start(ctx, componenttest.NewNopHost()); err != nil {
			t.Fatalf("%s: %v", signal, err)
		}
		defer func() { _ = started.Shutdown(ctx) }()
	}
	if err := traces.ConsumeTraces(ctx, spans("a")); err != nil {
		t.Errorf("traces after the start: %v", err)
	}
	if err := metrics.ConsumeMetrics(ctx, pmetric.NewMetrics()); err != nil {
		t.Errorf("metrics after the start: %v", err)
	}
}
