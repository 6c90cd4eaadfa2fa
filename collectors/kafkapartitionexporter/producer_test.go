package kafkapartitionexporter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

const hangs = 100 * time.Millisecond // how long the exporter waits for an answer; after twice that it gives the connection up

// TestWhatIsAcknowledgedIsWritten checks a broker that hangs while it handles a message, refuses
// the second attempt because it has lost its leadership meanwhile, and then writes the first. All
// messages acknowledged after that are in the log.
func TestWhatIsAcknowledgedIsWritten(t *testing.T) {
	const topic = "spans"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	awake, attempt := make(chan struct{}), 0
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		switch attempt++; attempt {
		case 1: // the broker has received it, and writes it once it is awake
			cluster.SleepControl(func() { <-awake })
			return nil, nil, false
		case 2:
			time.AfterFunc(hangs, func() { close(awake) })
			return refusal(request.(*kmsg.ProduceRequest), kerr.NotLeaderForPartition), nil, true
		case 3: // answered only after the first attempt has been written
			cluster.SleepControl(func() { <-awake; time.Sleep(hangs) })
		}
		return nil, nil, false
	})
	kafka := connected(t, cluster, topic, hangs)
	values := []string{"first", "second", "third"}
	write(t, kafka, slices.Clone(values))
	written := read(t, cluster.ListenAddrs(), topic, len(values))
	for _, value := range values {
		if !slices.Contains(written, value) {
			t.Errorf("%q is acknowledged and not in the log: %v", value, written)
		}
	}
}

// TestAPermissionThatIsGrantedNeedsNoRestart checks a broker that refuses a producer id, which the
// client would remember for ever. Messages sent after the permission is granted are written, for
// all concurrent writers, and by a single new client.
func TestAPermissionThatIsGrantedNeedsNoRestart(t *testing.T) {
	const topic = "spans"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var granted atomic.Bool
	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.InitProducerID), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if granted.Load() {
			return nil, nil, false
		}
		refused.Add(1)
		response := request.ResponseKind().(*kmsg.InitProducerIDResponse)
		response.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return response, nil, true
	})
	kafka := connected(t, cluster, topic, 10*time.Second)
	messages := []pack.Message{{Value: []byte("value")}}
	for attempt := int32(1); attempt <= 2; attempt++ {
		if err := kafka.produce(context.Background(), messages)[0]; !errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		if asked := refused.Load(); asked != attempt {
			t.Errorf("after %d attempts the broker was asked for a producer id %d times", attempt, asked)
		}
	}
	granted.Store(true)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			if err := kafka.produce(context.Background(), messages)[0]; err != nil {
				t.Errorf("after the permission was granted: %v", err)
			}
		})
	}
	writers.Wait()
}

// TestTheLargestLimitIsOneThatTheClientTakes checks that the largest limit that the configuration
// allows does not fail at the start.
func TestTheLargestLimitIsOneThatTheClientTakes(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Brokers, config.MaxMessageBytes = []string{"127.0.0.1:1"}, maxMessageBytes
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	kafka, err := newKafka(context.Background(), config, "spans", zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	kafka.close()
}

func connected(t *testing.T, cluster *kfake.Cluster, topic string, timeout time.Duration) producer {
	t.Helper()
	config := createDefaultConfig().(*Config)
	config.Brokers, config.TimeoutSettings.Timeout = cluster.ListenAddrs(), timeout
	config.TLS.Insecure = true
	kafka, err := newKafka(context.Background(), config, topic, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.close)
	return kafka
}

// write tries each value until it is acknowledged. It tries the other values before it repeats one,
// as several consumers of the sending queue do.
func write(t *testing.T, kafka producer, values []string) {
	t.Helper()
	for attempts := 0; len(values) > 0; attempts++ {
		if attempts > 50 {
			t.Fatalf("never acknowledged: %v", values)
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		if kafka.produce(ctx, []pack.Message{{Value: []byte(values[0])}})[0] != nil {
			values = append(values, values[0])
		}
		values = values[1:]
		cancel()
	}
}

func refusal(request *kmsg.ProduceRequest, why *kerr.Error) kmsg.Response {
	response := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range request.Topics {
		refused := kmsg.NewProduceResponseTopic()
		refused.Topic, refused.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			answer := kmsg.NewProduceResponseTopicPartition()
			answer.Partition, answer.ErrorCode = partition.Partition, why.Code
			refused.Partitions = append(refused.Partitions, answer)
		}
		response.Topics = append(response.Topics, refused)
	}
	return response
}

// read returns the first `count` values of the topic, or fewer when the rest do not arrive within
// half a minute.
func read(t *testing.T, brokers []string, topic string, count int) (values []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for len(values) < count && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values
}
