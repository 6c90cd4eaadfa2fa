package kafkapartitionexporter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/plugin/kzap"
	"go.uber.org/zap"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// producer is the exporter's whole interface to Kafka.
type producer interface {
	// partitions returns how many partitions the topic has. It returns an error when no broker has
	// ever said so.
	partitions(ctx context.Context) (int, error)
	// produce writes the messages and returns the outcome of each, in the same order. It returns
	// when every outcome is known, or after close. A message that was given up may have been
	// written nevertheless, and a retry then writes it twice.
	produce(ctx context.Context, messages []pack.Message) []error
	// close fails all writes in flight.
	close()
}

var codecs = map[string]func() kgo.CompressionCodec{"zstd": kgo.ZstdCompression, "lz4": kgo.Lz4Compression}

// kafka is the producer of one topic.
type kafka struct {
	client  *client
	topic   string
	refresh time.Duration
	timeout time.Duration
	logger  *zap.Logger

	mu      sync.Mutex
	known   int // number of partitions; 0: no broker has said yet
	expires time.Time
}

func newKafka(ctx context.Context, c *Config, topic string, logger *zap.Logger) (producer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.WithLogger(kzap.New(logger.Named("franz"))),
		kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// With acknowledgement by all replicas the client is idempotent: its own retries write
		// nothing twice.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codecs[c.Compression]()),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),
		kgo.ProducerLinger(0), // the sending queue has already batched
		kgo.ProduceRequestTimeout(c.TimeoutSettings.Timeout),
		kgo.RequestTimeoutOverhead(c.TimeoutSettings.Timeout), // a silent broker is given up after both timeouts
		kgo.MetadataMaxAge(c.PartitionsRefreshInterval),
		kgo.AllowAutoTopicCreation(), // the broker's settings decide whether an unknown topic is created
	}
	if c.ClientID != "" {
		options = append(options, kgo.ClientID(c.ClientID))
	}
	tls, err := c.TLS.LoadTLSConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if tls != nil {
		options = append(options, kgo.DialTLSConfig(tls))
	}
	if c.SASL.Mechanism != "" {
		mechanism, err := c.SASL.mechanism(ctx)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := newClient(options)
	if err != nil {
		return nil, fmt.Errorf("client of Kafka: %w", err)
	}
	return &kafka{client: client, topic: topic, refresh: c.PartitionsRefreshInterval,
		timeout: c.TimeoutSettings.Timeout, logger: logger}, nil
}

func (k *kafka) partitions(ctx context.Context) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known > 0 && time.Now().Before(k.expires) {
		return k.known, nil
	}
	count, err := k.ask(ctx)
	if err != nil && k.known == 0 {
		return 0, fmt.Errorf("partitions of topic %q: %w", k.topic, err)
	}
	k.expires = time.Now().Add(k.refresh)
	if err == nil && count != k.known {
		if k.known > 0 {
			k.logger.Warn("The number of partitions has changed: spans of one trace may be in two partitions.",
				zap.String("topic", k.topic), zap.Int("before", k.known), zap.Int("now", count))
		}
		k.known = count
		k.client.get().ForceMetadataRefresh()
	}
	return k.known, nil
}

// ask counts the partitions that exist, including those without a leader, so that the count does
// not depend on the moment.
func (k *kafka) ask(ctx context.Context) (int, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = true
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(k.topic)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, k.client.get())
	if err != nil {
		return 0, err
	}
	if len(response.Topics) != 1 {
		return 0, fmt.Errorf("the broker answered for %d topics instead of one", len(response.Topics))
	}
	if err := kerr.ErrorForCode(response.Topics[0].ErrorCode); err != nil {
		return 0, err
	}
	if len(response.Topics[0].Partitions) == 0 {
		return 0, kerr.UnknownTopicOrPartition
	}
	return len(response.Topics[0].Partitions), nil
}

func (k *kafka) produce(ctx context.Context, messages []pack.Message) []error {
	outcomes := make([]error, len(messages))
	// The deadline of ctx is removed. When a record is given up whose first attempt may have been
	// written, the client gives its sequence number to the next record. The broker takes that one
	// for a repeat and acknowledges it without writing it.
	ctx = context.WithoutCancel(ctx)
	client := k.client.get()
	var under sync.WaitGroup
	under.Add(len(messages))
	for i, message := range messages {
		record := &kgo.Record{Topic: k.topic, Partition: message.Partition, Value: message.Value}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			outcomes[i] = err
			under.Done()
		})
	}
	under.Wait()
	for _, err := range outcomes {
		if err != nil {
			k.failed(ctx, client, err)
			break
		}
	}
	return outcomes
}

// failed prepares for another attempt: the partitions are counted again, and a spent client is
// replaced.
func (k *kafka) failed(ctx context.Context, client *kgo.Client, why error) {
	k.expire()
	if !spent(ctx, client, k.timeout, why) {
		return
	}
	if err := k.client.renew(client); err != nil {
		k.logger.Error("A client that the broker no longer accepts cannot be replaced.", zap.Error(err))
	}
}

// expire makes the next call count the partitions again, because a failure may be due to an
// outdated count.
func (k *kafka) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expires = time.Time{}
}

func (k *kafka) close() { k.client.close() }
