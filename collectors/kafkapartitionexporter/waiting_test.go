package kafkapartitionexporter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// TestAShutdownLetsASlowBrokerFinish checks that messages that are acknowledged one after the
// other, each within the timeout, are not cut off although all of them take longer. Without a queue
// on disk they would be lost.
func TestAShutdownLetsASlowBrokerFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := false
		slow := &fake{count: 1, closed: func() { closed = true }, answer: func(pack.Message) error {
			time.Sleep(3 * time.Second)
			return nil
		}}
		s, _ := testSender(t, slow, 1000)
		stop := s.hurry()
		for range 5 {
			if err := s.pushTraces(context.Background(), spans("a")); err != nil || closed {
				t.Fatalf("cut off: %v", err)
			}
		}
		stop()
		time.Sleep(time.Minute)
		if closed {
			t.Error("closed after the shutdown was over")
		}
	})
}

// TestASilentBrokerShowsInTheAge checks that the age grows while nothing is acknowledged, and is 0
// again afterwards.
func TestASilentBrokerShowsInTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := &silent{closed: make(chan struct{})}
		s, telemetry := testSender(t, &fake{}, 1000)
		s.producer = hanging
		if err := s.observe(); err != nil {
			t.Fatal(err)
		}
		age := func() float64 {
			found, err := telemetry.GetMetric("otelcol_exporter_kafka_partition_oldest_message_age")
			if err != nil {
				t.Fatal(err)
			}
			return found.Data.(metricdata.Gauge[float64]).DataPoints[0].Value
		}
		if got := age(); got != 0 {
			t.Errorf("%v s with nothing under way", got)
		}
		go func() { _ = s.pushTraces(context.Background(), spans("a")) }()
		time.Sleep(10 * time.Second)
		go func() { _ = s.pushTraces(context.Background(), spans("b")) }()
		time.Sleep(50 * time.Second)
		if got := age(); got != 60 {
			t.Errorf("%v s, want 60", got)
		}
		hanging.close()
		synctest.Wait()
		if got := age(); got != 0 {
			t.Errorf("%v s after all has ended", got)
		}
	})
}
