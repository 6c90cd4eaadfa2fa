package kafkapartitionexporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// sender writes the requests of one signal to one topic.
type sender struct {
	config *Config
	topic  string
	signal pack.Signal
	logger *zap.Logger // for drops: at most one line a minute
	counts *counts

	producer producer
	connect  func(context.Context) (producer, error)

	// target is the size that messages are packed up to. It starts as the configured limit, and
	// falls when the broker refuses a message as too large. A broker with a smaller limit thus gets
	// smaller messages.
	target atomic.Int64
	// alone is held exclusively to write one message by itself. Only then does "too large" refer to
	// that message, and not to a record batch that it shared with others.
	alone sync.RWMutex

	waiting waiting
}

// minTarget is the lower bound of the target, so that a broker's refusals cannot split every later
// batch into single spans. A refused message of at most this size is not split further.
// max_message_bytes has the same lower bound.
const minTarget = 4096

func newSender(c *Config, topic string, signal pack.Signal, settings exporter.Settings) (*sender, error) {
	counts, err := newCounts(settings.TelemetrySettings, topic)
	if err != nil {
		return nil, err
	}
	s := &sender{config: c, topic: topic, signal: signal, counts: counts, logger: oncePerMinute(settings.Logger)}
	s.target.Store(int64(s.hard()))
	s.connect = func(ctx context.Context) (producer, error) { return newKafka(ctx, c, topic, settings.Logger) }
	return s, nil
}

// oncePerMinute passes only the first line of each text within a minute.
func oncePerMinute(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 1, 0)
	}))
}

// hard returns the largest size of an encoded request, in bytes.
func (s *sender) hard() int { return s.config.MaxMessageBytes - recordBatchBytes }

// start reads certificates and passwords. An error in them ends the collector at its start. Kafka
// need not be reachable.
func (s *sender) start(ctx context.Context, _ component.Host) (err error) {
	if s.producer, err = s.connect(ctx); err != nil {
		return err
	}
	return s.observe()
}

func (s *sender) observe() error { return s.counts.age(s.waiting.oldest) }

// hurry bounds a shutdown: once no request has been answered for the configured timeout, it closes
// the producer, which ends all writes in flight. Their data stays in the queue when that is on
// disk, and is lost otherwise. The caller must call `stop` when the shutdown is over.
func (s *sender) hurry() (stop func()) {
	if s.producer == nil {
		return func() {}
	}
	over := make(chan struct{})
	go func() {
		if s.waiting.stalled(s.config.TimeoutSettings.Timeout, over) {
			s.producer.close()
		}
	}()
	return func() { close(over) }
}

func (s *sender) close(context.Context) error {
	s.counts.telemetry.Shutdown()
	if s.producer != nil {
		s.producer.close()
	}
	return nil
}

// failure is what is left of a request: the error, and the messages that must be tried again.
type failure struct {
	error
	left  []pack.Message
	whole bool // nothing of the request was written or given up, so all of it must be tried again
}

// send writes an encoded request. It returns nil when all of it is in Kafka, except what was
// counted as dropped.
func (s *sender) send(ctx context.Context, request []byte) *failure {
	partitions, err := s.producer.partitions(ctx)
	if err != nil {
		s.counts.failed(ctx, err, 1)
		return &failure{error: err, whole: true}
	}
	limits := pack.Limits{Target: int(s.target.Load()), Hard: s.hard()}
	packed, err := s.signal.Request(request, partitions, limits)
	if err != nil {
		return &failure{error: consumererror.NewPermanent(err), whole: true}
	}
	if packed.TooLarge > 0 {
		s.drop(ctx, dropTooLarge, packed.TooLarge, fmt.Errorf("above max_message_bytes, %d", s.config.MaxMessageBytes))
	}
	s.counts.splits(ctx, packed.Splits)
	left, err := s.settle(ctx, packed.Messages, s.produce(ctx, packed.Messages))
	if err == nil {
		return nil
	}
	whole := packed.TooLarge == 0 && len(left) == len(packed.Messages)
	return &failure{error: err, left: left, whole: whole}
}

// settle counts the outcome of each message and returns the messages to be tried again.
func (s *sender) settle(ctx context.Context, messages []pack.Message, outcomes []error) ([]pack.Message, error) {
	var left []pack.Message
	var reasons []error
	for i, message := range messages {
		err := s.outcome(ctx, message, outcomes[i])
		if err == nil {
			continue
		}
		s.counts.failed(ctx, err, 1)
		left = append(left, message)
		if len(reasons) == 0 || reasons[len(reasons)-1].Error() != err.Error() {
			reasons = append(reasons, err)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return left, fmt.Errorf("topic %q: %d of %d messages: %w", s.topic, len(left), len(messages), errors.Join(reasons...))
}

// outcome returns nil when the message is finished: either written, or given up and counted.
func (s *sender) outcome(ctx context.Context, message pack.Message, err error) error {
	if errors.Is(err, kerr.MessageTooLarge) {
		if s.lower(message); message.Items > 1 && len(message.Value) > minTarget {
			return err
		}
		if err = s.produceAlone(ctx, message); errors.Is(err, kerr.MessageTooLarge) {
			s.drop(ctx, dropRefused, message.Items, err)
			return nil
		}
	}
	// Only messages with wrong data are given up. An operator can repair a missing permission or a
	// wrong password while the queue holds the data.
	if errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp) {
		s.drop(ctx, dropInvalid, message.Items, err)
		return nil
	}
	if err == nil {
		s.counts.written(ctx, message)
	}
	return err
}

// lower limits the following messages to at most half the size of one that the broker refused.
func (s *sender) lower(refused pack.Message) {
	target := max(int64(len(refused.Value)/2), minTarget)
	for now := s.target.Load(); target < now; now = s.target.Load() {
		if s.target.CompareAndSwap(now, target) {
			s.logger.Warn("The broker takes smaller messages than max_message_bytes: messages are split further.",
				zap.String("topic", s.topic), zap.Int("refused_bytes", len(refused.Value)), zap.Int64("limit_bytes", target))
			return
		}
	}
}

func (s *sender) produce(ctx context.Context, messages []pack.Message) []error {
	defer s.waiting.begin()()
	s.alone.RLock()
	defer s.alone.RUnlock()
	return s.producer.produce(ctx, messages)
}

func (s *sender) produceAlone(ctx context.Context, message pack.Message) error {
	defer s.waiting.begin()()
	s.alone.Lock()
	defer s.alone.Unlock()
	return s.producer.produce(ctx, []pack.Message{message})[0]
}

func (s *sender) drop(ctx context.Context, reason string, items int, why error) {
	s.counts.dropped(ctx, reason, items)
	s.logger.Error("Items are dropped: they can never be written.", zap.String("topic", s.topic),
		zap.String("reason", reason), zap.Int("items", items), zap.Error(why))
}
