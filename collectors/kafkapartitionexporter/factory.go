package kafkapartitionexporter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"spillway.dev/collectors/kafkapartitionexporter/internal/metadata"
	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// NewFactory returns the factory that the collector's builder looks for.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithTraces(createTraces, metadata.TracesStability),
		exporter.WithMetrics(createMetrics, metadata.MetricsStability))
}

// createDefaultConfig leaves the brokers to be set, because they have no default.
func createDefaultConfig() component.Config {
	return &Config{
		TimeoutSettings:           exporterhelper.NewDefaultTimeoutConfig(),
		QueueBatchConfig:          configoptional.Some(exporterhelper.NewDefaultQueueConfig()),
		BackOffConfig:             configretry.NewDefaultBackOffConfig(),
		TLS:                       configtls.NewDefaultClientConfig(),
		Traces:                    SignalConfig{Topic: "otlp_spans"},
		Metrics:                   SignalConfig{Topic: "otlp_metrics"},
		MaxMessageBytes:           1_000_000, // Kafka's own default of message.max.bytes is slightly above 1 MiB
		Compression:               "zstd",
		PartitionsRefreshInterval: time.Minute,
	}
}

func createTraces(ctx context.Context, settings exporter.Settings, config component.Config) (exporter.Traces, error) {
	c := config.(*Config)
	s, err := newSender(c, c.Traces.Topic, pack.Traces, settings)
	if err != nil {
		return nil, err
	}
	inner, err := exporterhelper.NewTraces(ctx, settings, c, s.pushTraces, s.options(c.Traces)...)
	return &traces{Traces: inner, sender: s}, err
}

func createMetrics(ctx context.Context, settings exporter.Settings, config component.Config) (exporter.Metrics, error) {
	c := config.(*Config)
	s, err := newSender(c, c.Metrics.Topic, pack.Metrics, settings)
	if err != nil {
		return nil, err
	}
	inner, err := exporterhelper.NewMetrics(ctx, settings, c, s.pushMetrics, s.options(c.Metrics)...)
	return &metrics{Metrics: inner, sender: s}, err
}

func (s *sender) options(signal SignalConfig) []exporterhelper.Option {
	return []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(s.config.TimeoutSettings),
		exporterhelper.WithRetry(s.config.BackOffConfig),
		exporterhelper.WithQueue(queueOf(signal, s.config.QueueBatchConfig)),
		exporterhelper.WithStart(s.start),
		exporterhelper.WithShutdown(s.close),
	}
}

// queueOf returns the queue of a signal, whose small batches may wait for another time than those of
// the other signal.
func queueOf(
	signal SignalConfig, shared configoptional.Optional[exporterhelper.QueueBatchConfig],
) configoptional.Optional[exporterhelper.QueueBatchConfig] {
	if signal.FlushTimeout == 0 || !shared.HasValue() || !shared.Get().Batch.HasValue() {
		return shared
	}
	queue, batch := *shared.Get(), *shared.Get().Batch.Get()
	batch.FlushTimeout = signal.FlushTimeout
	queue.Batch = configoptional.Some(batch)
	return configoptional.Some(queue)
}

// errStarting is not permanent, so the receiver's client keeps the data and sends it again.
var errStarting = errors.New("the exporter is starting")

// gate refuses data until the exporter has started. A receiver that several pipelines share starts
// before the exporters of some of them, and the helper's queue loses data that is added while it
// reads its own file (it takes no lock there, in version 0.155).
type gate struct{ open atomic.Bool }

func (g *gate) start(ctx context.Context, host component.Host, inner component.Component) error {
	err := inner.Start(ctx, host)
	g.open.Store(err == nil)
	return err
}

// traces and metrics bound the time of a shutdown. The helper ends the queue before the exporter,
// and a request that is never answered would hold the queue for as long as the broker is away.
type traces struct {
	exporter.Traces
	sender *sender
	gate   gate
}

// Start starts the exporter, and then lets data in.
func (t *traces) Start(ctx context.Context, host component.Host) error {
	return t.gate.start(ctx, host, t.Traces)
}

// ConsumeTraces passes spans on. Before the exporter has started, it returns an error.
func (t *traces) ConsumeTraces(ctx context.Context, data ptrace.Traces) error {
	if !t.gate.open.Load() {
		return errStarting
	}
	return t.Traces.ConsumeTraces(ctx, data)
}

// Shutdown ends the exporter, and all writes in flight once Kafka has stopped answering.
func (t *traces) Shutdown(ctx context.Context) error {
	defer t.sender.hurry()()
	return t.Traces.Shutdown(ctx)
}

type metrics struct {
	exporter.Metrics
	sender *sender
	gate   gate
}

// Start starts the exporter, and then lets data in.
func (m *metrics) Start(ctx context.Context, host component.Host) error {
	return m.gate.start(ctx, host, m.Metrics)
}

// ConsumeMetrics passes metrics on. Before the exporter has started, it returns an error.
func (m *metrics) ConsumeMetrics(ctx context.Context, data pmetric.Metrics) error {
	if !m.gate.open.Load() {
		return errStarting
	}
	return m.Metrics.ConsumeMetrics(ctx, data)
}

// Shutdown ends the exporter, and all writes in flight once Kafka has stopped answering.
func (m *metrics) Shutdown(ctx context.Context) error {
	defer m.sender.hurry()()
	return m.Metrics.Shutdown(ctx)
}
