package report

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
)

const (
	heartbeatEvery = 2 * time.Second
	heartbeatTTL   = 10 * time.Second
)

// NewHeartbeat of the connected Envoys by service.
func NewHeartbeat(cluster string, version uint64, connected map[string]int, now time.Time) *spillwayv1.Heartbeat {
	heartbeat := &spillwayv1.Heartbeat{Cluster: cluster, At: timestamppb.New(now),
		TtlSeconds: uint32(heartbeatTTL / time.Second), RulesetVersion: version}
	for service, envoys := range connected {
		heartbeat.Services = append(heartbeat.Services,
			&spillwayv1.ServicePresence{Service: service, ConnectedEnvoys: uint32(envoys)})
	}
	slices.SortFunc(heartbeat.Services, func(a, b *spillwayv1.ServicePresence) int {
		return strings.Compare(a.GetService(), b.GetService())
	})
	return heartbeat
}

// Heartbeats publishes until the context ends. They are true for seconds only, so one that cannot
// be sent is not kept: core NATS, no confirmation.
func Heartbeats(ctx context.Context, conn *nats.Conn, counters *count.Counters, cluster string,
	heartbeat func(time.Time) *spillwayv1.Heartbeat) {
	subject := strings.ReplaceAll(names.NatsSubjectHeartbeats, "{cluster}", cluster)
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		payload, err := proto.Marshal(heartbeat(time.Now()))
		if err == nil {
			err = conn.Publish(subject, payload)
		}
		if err != nil {
			counters.Add(count.HeartbeatsNotSent)
		} else {
			counters.Add(count.HeartbeatsSent)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
