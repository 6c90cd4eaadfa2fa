package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"spillway.dev/contracts/names"
)

// Silence returns the provider of a service that reports no CPU use. It has no reader.
func Silence() *sdkmetric.MeterProvider { return sdkmetric.NewMeterProvider() }

// StartTelemetry reports the pool's busy share to the collector once per interval, outside the
// request path. While the collector is away, readings are dropped. After that, each reading covers
// the time since the previous one.
func StartTelemetry(ctx context.Context, config Config, utilisation func() float64, every time.Duration) (
	*sdkmetric.MeterProvider, error) {
	exporter, err := otlpmetricgrpc.New(ctx,
		otlpmetricgrpc.WithEndpoint(config.Collector),
		security(config.CollectorTLS),
		otlpmetricgrpc.WithTimeout(every),
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: false}),
		// gRPC's own backoff grows to two minutes, but a collector that is back must be noticed at
		// once.
		otlpmetricgrpc.WithDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: every / 2, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 2 * every},
			MinConnectTimeout: every,
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("SPILLWAY_COLLECTOR %q: %w", config.Collector, err)
	}
	// watchedExporter logs the exporter's changes of state instead.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithResource(podResource(config)),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(
			&watchedExporter{Exporter: exporter, endpoint: config.Collector},
			sdkmetric.WithInterval(every), sdkmetric.WithTimeout(every))),
	)
	_, err = provider.Meter("spillway.dev/lab/emulator").Float64ObservableGauge(
		names.OtelMetricCpuLimitUtilization,
		metric.WithUnit("1"),
		metric.WithDescription("Busy share of the pod's worker pool since the last reading."),
		metric.WithFloat64Callback(func(_ context.Context, observer metric.Float64Observer) error {
			observer.Observe(utilisation())
			return nil
		}))
	return provider, err
}

func security(files CollectorTLS) otlpmetricgrpc.Option {
	if files == (CollectorTLS{}) {
		return otlpmetricgrpc.WithInsecure()
	}
	return otlpmetricgrpc.WithTLSCredentials(files.credentials())
}

func podResource(config Config) *resource.Resource {
	return resource.NewSchemaless(
		attribute.String(names.SpanAttributeService, config.Service),
		attribute.String(names.SpanAttributeCluster, config.Cluster),
		semconv.K8SPodName(config.Pod),
	)
}

// watchedExporter counts readings that did not arrive, and logs once per change of state.
type watchedExporter struct {
	sdkmetric.Exporter
	endpoint string
	away     atomic.Bool
	dropped  atomic.Uint64
}

// Export passes the readings on, and records whether they arrived.
func (e *watchedExporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	err := e.Exporter.Export(ctx, metrics)
	if err != nil {
		e.dropped.Add(1)
		if !e.away.Swap(true) {
			slog.Warn("collector away; readings are dropped", "collector", e.endpoint, "error", err.Error())
		}
	} else if e.away.Swap(false) {
		slog.Info("collector back", "collector", e.endpoint, "readings_dropped", e.dropped.Swap(0))
	}
	return err
}
