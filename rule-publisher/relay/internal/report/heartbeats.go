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
	// A relay that has just begun knows few Envoys yet; for so long the word of the one before it
	// holds. Shorter than the TTL by more than a restart takes.
	firstHeartbeat = 5 * time.Second
)

// NewHeartbeat of the placed Envoys by service.
func NewHeartbeat(cluster string, version uint64, placed map[string]int, now time.Time) *spillwayv1.Heartbeat {
	heartbeat := &spillwayv1.Heartbeat{Cluster: cluster, At: timestamppb.New(now),
		TtlSeconds: uint32(heartbeatTTL / time.Second), RulesetVersion: version}
	for service, envoys := range placed {
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
	timer := time.NewTimer(firstHeartbeat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(heartbeatEvery)
		}
		payload, err := proto.Marshal(heartbeat(time.Now()))
		if err == nil {
			err = conn.Publish(subject, payload)
		}
		if err != nil {
			counters.Add(count.HeartbeatsNotSent)
		} else {
			counters.Add(count.HeartbeatsSent)
		}
	}
}
