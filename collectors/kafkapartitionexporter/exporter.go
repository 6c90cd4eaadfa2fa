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
	logger *zap.Logger // of drops: a line a minute at most
	counts *counts

	producer producer
	connect  func(context.Context) (producer, error)

	// target is what a message is packed up to. It begins as the configured limit and falls when the broker refuses
	// a message as too large, so that a broker with a smaller limit gets smaller messages.
	target atomic.Int64
	// alone is held exclusively to write one message without company: only then is "too large" said of that message,
	// and not of a record batch that it shared with others.
	alone sync.RWMutex

	waiting waiting
}

// minTarget keeps a broker's refusals from splitting a batch into single spans for ever after. A message that is no
// larger is not split further when it is refused: max_message_bytes may not be less either.
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

// oncePerMinute passes the first line of each text within a minute.
func oncePerMinute(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 1, 0)
	}))
}

func (s *sender) hard() int { return s.config.MaxMessageBytes - recordBatchBytes }

// start reads certificates and passwords: what is wrong with them ends the collector at its start. Kafka may be away.
func (s *sender) start(ctx context.Context, _ component.Host) (err error) {
	if s.producer, err = s.connect(ctx); err != nil {
		return err
	}
	return s.observe()
}

func (s *sender) observe() error { return s.counts.age(s.waiting.oldest) }

// hurry ends what is under way once a shutdown has waited for timeout without an answer to anything. What is under way
// then is still in the queue when that is on disk, and lost otherwise.
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
	whole bool // nothing of the request was written or given up: all of it must be tried again
}

// send writes an encoded request. nil: all of it is in Kafka, but for what was counted as dropped.
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

// settle counts each message's outcome and gives those to be tried again.
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

// outcome is nil when the message is done with: written, or given up and counted.
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
	// Only what is wrong with the data itself is given up. A missing permission or a wrong password is repaired by an
	// operator while the queue holds the data.
	if errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp) {
		s.drop(ctx, dropInvalid, message.Items, err)
		return nil
	}
	if err == nil {
		s.counts.written(ctx, message)
	}
	return err
}

// lower makes the following messages at most half as large as one that the broker refused.
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
	s.logger.Error("Items are dropped: no attempt could ever write them.", zap.String("topic", s.topic),
		zap.String("reason", reason), zap.Int("items", items), zap.Error(why))
}
